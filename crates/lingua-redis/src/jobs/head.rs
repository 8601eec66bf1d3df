//! A job's record as it is stored; `scripts/prelude/jobs.lua` describes the layout.

use lingua_core::id::hex;
use lingua_core::job::{Grant, JobState, Stage};
use lingua_core::{Attempt, CellId, Epoch, Fence, InstanceId, JobId, NodeId, Slot};
use lingua_store::Result;
use lingua_store::contract::{Bytes, JobRecord, NewJob};

use super::{code, state};
use crate::constants::RECOVERABLE;
use crate::record::{RecordReader, RecordWriter};
use crate::reply::corrupt;

/// The deadline of a job without one.
const NO_DEADLINE: u64 = u64::MAX;

/// The stage of a new job.
pub(super) const NEW: Stage = Stage { state: JobState::New, attempt: Attempt::FIRST };

/// Head, specification and outcome of a job.
pub(super) type Fields = (Vec<u8>, Vec<u8>, Option<Vec<u8>>);

pub(super) fn read(id: JobId, (head, spec, outcome): Fields) -> Result<JobRecord> {
    let outcome = outcome.map(Into::into);
    Ok(JobRecord { spec: spec.into(), outcome, ..read_head(id, &head)? })
}

/// Reads the head alone; specification and outcome stay empty.
pub(crate) fn read_head(id: JobId, head: &[u8]) -> Result<JobRecord> {
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
    let (updated_ms, created_ms, kept_ms) = (head.double()?, head.double()?, head.double()?);
    let (deadline_ms, label, flags) = (head.number(8)?, head.number(8)?, head.number(1)?);
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
        label,
        created_ms,
        updated_ms,
        kept_until_ms: state.is_terminal().then_some(kept_ms),
    })
}

/// The first part of a head, up to the token of the last step.
pub(super) fn start(stage: Stage, owner: &InstanceId, token: u64) -> Vec<u8> {
    let owner = owner.as_str().as_bytes();
    let start = RecordWriter::default().small(code(stage.state)).number(stage.attempt.0);
    start.small(owner.len() as u8).bytes(owner).bytes(&token.to_le_bytes()).0
}

/// The last part of a new job's head, from the deadline on.
pub(super) fn rest(job: &NewJob) -> Vec<u8> {
    let deadline_ms = job.deadline_ms.unwrap_or(NO_DEADLINE);
    let rest = RecordWriter::default().bytes(&deadline_ms.to_le_bytes());
    let rest = rest.bytes(&job.label.to_le_bytes());
    let flags = if job.recoverable { RECOVERABLE as u8 } else { 0 };
    rest.small(flags).bytes(grant_text(None).as_bytes()).0
}

/// An open job's member in the set of open jobs.
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
mod tests;
