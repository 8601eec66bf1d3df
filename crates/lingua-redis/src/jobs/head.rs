//! A job's record as it is stored. `scripts/prelude/jobs.lua` says how it is written.

use lingua_core::id::hex;
use lingua_core::job::{Grant, JobState, Stage};
use lingua_core::{Attempt, CellId, Epoch, Fence, InstanceId, JobId, NodeId, Slot};
use lingua_store::Result;
use lingua_store::contract::{Bytes, JobRecord};

use super::{code, state};
use crate::record::{RecordReader, RecordWriter};
use crate::reply::{ScriptReply, corrupt};

/// Flags of a head.
const RECOVERABLE: u64 = 1;

/// Stands where there is no deadline.
const NO_DEADLINE: u64 = u64::MAX;

/// The stage of a new job.
pub(super) const NEW: Stage = Stage { state: JobState::New, attempt: Attempt::FIRST };

/// Reads head, specification and outcome.
pub(super) fn read(id: JobId, reply: &mut ScriptReply) -> Result<JobRecord> {
    let head = reply.bytes()?;
    let (spec, outcome) = (reply.bytes()?, reply.maybe_bytes()?);
    let mut record = read_head(id, &head)?;
    record.spec = spec.into();
    record.outcome = outcome.map(Into::into);
    Ok(record)
}

/// Reads the head alone; specification and outcome are empty.
pub(super) fn read_head(id: JobId, head: &[u8]) -> Result<JobRecord> {
    fields(id, head)
        .map_err(|_| corrupt(&format!("the record of {id} is {:?}", head.escape_ascii())))
}

fn fields(id: JobId, head: &[u8]) -> Result<JobRecord> {
    let mut head = RecordReader(head);
    let (state, attempt) = (state(head.number(1)?)?, Attempt(head.number(4)? as u32));
    let length = head.number(1)? as usize;
    let owner = RecordReader(head.bytes(length)?).text()?;
    let owner = InstanceId::new(owner).map_err(|error| corrupt(&error.to_string()))?;
    let _token = head.number(8)?;
    let (updated_ms, created_ms) = (head.double()?, head.double()?);
    let (deadline_ms, flags) = (head.number(8)?, head.number(1)?);
    let grant = head.text()?;
    Ok(JobRecord {
        id,
        owner,
        stage: Stage { state, attempt },
        grant: read_grant(grant).ok_or_else(|| corrupt(&format!("the grant {grant:?}")))?,
        spec: Bytes::new(),
        outcome: None,
        deadline_ms: (deadline_ms != NO_DEADLINE).then_some(deadline_ms),
        recoverable: flags & RECOVERABLE != 0,
        created_ms,
        updated_ms,
    })
}

/// The first part of a head, up to the token of the last step.
pub(super) fn standing(stage: Stage, owner: &InstanceId, token: u64) -> Vec<u8> {
    let owner = owner.as_str().as_bytes();
    let standing = RecordWriter::default().small(code(stage.state)).number(stage.attempt.0);
    standing.small(owner.len() as u8).bytes(owner).bytes(&token.to_le_bytes()).0
}

/// The last part of a new job's head, from the deadline on.
pub(super) fn rest(deadline_ms: Option<u64>, recoverable: bool) -> Vec<u8> {
    let rest = RecordWriter::default().bytes(&deadline_ms.unwrap_or(NO_DEADLINE).to_le_bytes());
    rest.small(u8::from(recoverable)).bytes(grant_text(None).as_bytes()).0
}

/// How an open job stands on the list of its owner.
pub(super) fn member(owner: &InstanceId, job: JobId) -> Vec<u8> {
    [owner.as_str().as_bytes(), b" ", &hex(job.number())].concat()
}

/// A grant as text without spaces.
pub(super) fn grant_text(grant: Option<&Grant>) -> String {
    match grant {
        None => "-".to_owned(),
        Some(Grant { node, cell, slot, epoch, fence, via }) => {
            format!("{},{slot},{epoch},{fence},{node},{via}", cell.index())
        }
    }
}

fn read_grant(text: &str) -> Option<Option<Grant>> {
    if text == "-" {
        return Some(None);
    }
    let mut words = text.splitn(6, ',');
    let mut number = || words.next()?.parse::<u64>().ok();
    let cell = CellId::new(number()? as usize)?;
    let slot = Slot::new(number()? as usize)?;
    let (epoch, fence) = (Epoch(number()?), Fence(number()?));
    let node = NodeId::new(words.next()?).ok()?;
    let via = InstanceId::new(words.next()?).ok()?;
    Some(Some(Grant { node, cell, slot, epoch, fence, via }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_reads_back_as_it_was_written() {
        let grant = Grant {
            node: NodeId::new("rack:3@site-1").unwrap(),
            cell: CellId::new(7).unwrap(),
            slot: Slot::new(99).unwrap(),
            epoch: Epoch(1_800_000_000_123),
            fence: Fence(1_800_000_000_123_456),
            via: InstanceId::new("host:7410").unwrap(),
        };
        assert_eq!(read_grant(&grant_text(Some(&grant))), Some(Some(grant)));
        assert_eq!(read_grant(&grant_text(None)), Some(None));
        assert_eq!(read_grant("7,99"), None);
    }

    #[test]
    fn a_head_reads_back_as_it_was_written() {
        let (owner, attempt) = (InstanceId::new("host:7410").unwrap(), Attempt(3));
        let stage = Stage { state: JobState::Dispatched, attempt };
        let times = RecordWriter::default().double(1_800_000_000_456).double(1_800_000_000_123).0;
        let head =
            [standing(stage, &owner, 7), times, rest(Some(1_900_000_000_000), true)].concat();
        let record = read_head(JobId::new(7), &head).unwrap();
        assert_eq!((record.stage, record.owner), (stage, owner));
        assert_eq!((record.updated_ms, record.created_ms), (1_800_000_000_456, 1_800_000_000_123));
        assert_eq!((record.deadline_ms, record.recoverable), (Some(1_900_000_000_000), true));
        assert_eq!(record.grant, None);
    }

    #[test]
    fn a_damaged_record_is_an_error_that_names_the_job() {
        let owner = InstanceId::new("a").unwrap();
        let good = [standing(NEW, &owner, 0), vec![0; 16], rest(None, false)].concat();
        assert!(read_head(JobId::new(7), &good).is_ok());
        let (mut no_state, mut no_owner) = (good.clone(), good.clone());
        (no_state[0], no_owner[5]) = (99, 200);
        for head in [&[][..], &good[..9], &no_state, &no_owner] {
            let error = read_head(JobId::new(7), head).unwrap_err();
            assert_eq!(error.code(), "INTERNAL", "{error}");
            assert!(error.to_string().contains(&JobId::new(7).to_string()), "{error}");
        }
    }
}
