//! A job's record as it is stored. `scripts/prelude/jobs.lua` says how it is written.

use lingua_core::job::{Grant, Stage};
use lingua_core::{Attempt, CellId, Epoch, Fence, InstanceId, JobId, NodeId, Slot};
use lingua_store::Result;
use lingua_store::contract::JobRecord;

use super::state;
use crate::reply::{Reply, corrupt};

/// Reads head, specification and outcome.
pub(super) fn read(id: JobId, reply: &mut Reply) -> Result<JobRecord> {
    let head = reply.text()?;
    let (spec, outcome) = (reply.bytes()?, reply.maybe_bytes()?);
    let mut record = read_head(id, &head)?;
    record.spec = spec.into();
    record.outcome = outcome.map(Into::into);
    Ok(record)
}

/// Reads the head alone; specification and outcome are empty.
pub(super) fn read_head(id: JobId, head: &str) -> Result<JobRecord> {
    let wrong = || corrupt(&format!("the record of {id} is {head:?}"));
    let words: Vec<&str> = head.split(' ').collect();
    let [owner, state_code, attempt, _token, created, updated, deadline, recoverable, grant] =
        words[..]
    else {
        return Err(wrong());
    };
    let number = |word: &str| word.parse::<u64>().map_err(|_| wrong());
    Ok(JobRecord {
        id,
        owner: InstanceId::new(owner).map_err(|_| wrong())?,
        stage: Stage {
            state: state(number(state_code)?)?,
            attempt: Attempt(attempt.parse().map_err(|_| wrong())?),
        },
        grant: read_grant(grant).ok_or_else(wrong)?,
        spec: [][..].into(),
        outcome: None,
        deadline_ms: match deadline {
            "-" => None,
            deadline => Some(number(deadline)?),
        },
        recoverable: recoverable == "1",
        created_ms: number(created)?,
        updated_ms: number(updated)?,
    })
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
    fn a_damaged_record_is_an_error_that_names_the_job() {
        for head in ["", "a 0", "a 99 1 - 1 1 - 1 -", "a 0 1 - x 1 - 1 -"] {
            let error = read_head(JobId::new(7), head).unwrap_err();
            assert_eq!(error.code(), "INTERNAL", "{error}");
        }
    }
}
