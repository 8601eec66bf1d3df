//! What is written down, and how it looks in bytes.
//!
//! A job is two rows: what never changes (its specification may be large) and where it stands. Numbers
//! are little-endian; names are led by their length in one byte; what may be large comes last and needs
//! none. A layout is never changed, a new one gets a new [`VERSION`](super::disk::VERSION).
//!
//! Invariant: reading never panics; bytes that mean nothing give `None`.

use lingua_core::job::{Grant, JobState, Stage};
use lingua_core::{Attempt, CellId, Epoch, Fence, InstanceId, JobId, NodeId, Slot, Term};

use crate::contract::{Bytes, Incarnation, JobRecord, NodeClass, Place};
use crate::embedded::directory::Tenant;

/// Something to be written down.
#[derive(Debug, Clone)]
pub(in super::super) enum Note {
    /// A job was accepted.
    Accepted(JobRecord),
    /// A job stands elsewhere or is another's, by this token.
    Moved(JobRecord, Option<u64>),
    /// A job is not remembered any more.
    Forgotten(JobId),
    /// A node has a place, or a new epoch there.
    Placed(NodeId, Tenant),
    /// A node's place is free; orders to it are over.
    Released(NodeId),
    /// An operator's order to a node: whether to drain.
    Ordered(NodeId, bool),
    /// A new leader's term.
    Term(Term),
    /// The clock stays below this until it is written anew.
    Ceiling(u64),
}

/// What of a job never changes.
pub(super) fn write_spec(job: &JobRecord) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(18 + job.spec.len());
    write_spec_to(&mut bytes, job);
    bytes
}

/// The same, behind what is there already.
pub(in super::super) fn write_spec_to(bytes: &mut Vec<u8>, job: &JobRecord) {
    bytes.extend(job.created_ms.to_le_bytes());
    write_optional(bytes, job.deadline_ms);
    bytes.push(job.recoverable.into());
    bytes.extend_from_slice(&job.spec);
}

/// A grant follows, as it was written before nodes could be connected elsewhere.
const GRANT: u8 = 1;

/// A grant follows, and the instance that the node was connected to.
const GRANT_VIA: u8 = 2;

/// Where a job stands.
pub(super) fn write_step(job: &JobRecord, token: Option<u64>) -> Vec<u8> {
    let outcome_len = job.outcome.as_ref().map_or(0, |outcome| outcome.len());
    let mut bytes = Vec::with_capacity(96 + outcome_len);
    write_step_to(&mut bytes, job, token);
    bytes
}

/// The same, behind what is there already.
pub(in super::super) fn write_step_to(bytes: &mut Vec<u8>, job: &JobRecord, token: Option<u64>) {
    bytes.push(state_code(job.stage.state));
    bytes.extend(job.stage.attempt.0.to_le_bytes());
    bytes.extend(job.updated_ms.to_le_bytes());
    write_optional(bytes, token);
    write_name(bytes, job.owner.as_str());
    bytes.push(if job.grant.is_some() { GRANT_VIA } else { 0 });
    if let Some(grant) = &job.grant {
        write_name(bytes, grant.node.as_str());
        write_place(bytes, grant.cell, grant.slot, grant.epoch);
        bytes.extend(grant.fence.0.to_le_bytes());
        write_name(bytes, grant.via.as_str());
    }
    bytes.push(job.outcome.is_some().into());
    if let Some(outcome) = &job.outcome {
        bytes.extend_from_slice(outcome);
    }
}

/// The job of both rows, and the token of its last step.
pub(in super::super) fn read_job(
    id: JobId,
    spec: &[u8],
    step: &[u8],
) -> Option<(JobRecord, Option<u64>)> {
    let (mut spec, mut step) = (Reader(spec), Reader(step));
    let created_ms = spec.u64()?;
    let deadline_ms = spec.optional()?;
    let recoverable = spec.flag()?;
    let state = state_of(step.u8()?)?;
    let attempt = Attempt(step.u32()?);
    let updated_ms = step.u64()?;
    let token = step.optional()?;
    let owner = InstanceId::new(step.name()?).ok()?;
    let grant = match step.u8()? {
        0 => None,
        kind @ (GRANT | GRANT_VIA) => {
            let node = NodeId::new(step.name()?).ok()?;
            let Place { cell, slot, epoch } = step.place()?;
            let fence = Fence(step.u64()?);
            let via = match kind {
                GRANT_VIA => InstanceId::new(step.name()?).ok()?,
                _ => owner.clone(),
            };
            Some(Grant { node, cell, slot, epoch, fence, via })
        }
        _ => return None,
    };
    let outcome = match step.flag()? {
        true => Some(Bytes::copy_from_slice(step.rest()).into()),
        false => step.end().map(|()| None)?,
    };
    let stage = Stage { state, attempt };
    let spec = Bytes::copy_from_slice(spec.rest());
    let job = JobRecord {
        id,
        owner,
        stage,
        grant,
        spec,
        outcome,
        deadline_ms,
        recoverable,
        created_ms,
        updated_ms,
    };
    Some((job, token))
}

/// A node's place.
pub(super) fn write_tenant(tenant: &Tenant) -> Vec<u8> {
    let Place { cell, slot, epoch } = tenant.place;
    let mut bytes = Vec::with_capacity(23);
    write_place(&mut bytes, cell, slot, epoch);
    bytes.extend(tenant.incarnation.0.to_le_bytes());
    bytes.extend(tenant.class.0.to_le_bytes());
    bytes
}

/// A node and its place.
pub(super) fn read_tenant(node: &str, bytes: &[u8]) -> Option<(NodeId, Tenant)> {
    let mut bytes = Reader(bytes);
    let place = bytes.place()?;
    let incarnation = Incarnation(bytes.u64()?);
    let class = NodeClass(bytes.u32()?);
    bytes.end()?;
    Some((NodeId::new(node).ok()?, Tenant { place, incarnation, class }))
}

fn write_optional(bytes: &mut Vec<u8>, number: Option<u64>) {
    bytes.push(number.is_some().into());
    bytes.extend(number.unwrap_or(0).to_le_bytes());
}

fn write_name(bytes: &mut Vec<u8>, name: &str) {
    bytes.push(u8::try_from(name.len()).expect("a name has at most 128 bytes"));
    bytes.extend(name.as_bytes());
}

fn write_place(bytes: &mut Vec<u8>, cell: CellId, slot: Slot, epoch: Epoch) {
    bytes.extend((cell.index() as u16).to_le_bytes());
    bytes.push(slot.index() as u8);
    bytes.extend(epoch.0.to_le_bytes());
}

/// The place of a state in this list is its code on disk: add at the end only.
const STATES: [JobState; 9] = [
    JobState::New,
    JobState::Selecting,
    JobState::Reserved,
    JobState::Dispatched,
    JobState::Acked,
    JobState::Retrying,
    JobState::Done,
    JobState::Failed,
    JobState::Cancelled,
];

fn state_code(state: JobState) -> u8 {
    let code = STATES.iter().position(|&known| known == state);
    code.expect("every state is in the list") as u8
}

fn state_of(code: u8) -> Option<JobState> {
    STATES.get(usize::from(code)).copied()
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk()?;
        self.0 = tail;
        Some(*head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn optional(&mut self) -> Option<Option<u64>> {
        let is_some = self.flag()?;
        self.u64().map(|number| is_some.then_some(number))
    }

    fn name(&mut self) -> Option<&'a str> {
        let len = usize::from(self.u8()?);
        let (name, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        std::str::from_utf8(name).ok()
    }

    fn place(&mut self) -> Option<Place> {
        let cell = CellId::new(self.u16()?.into())?;
        let slot = Slot::new(self.u8()?.into())?;
        Some(Place { cell, slot, epoch: Epoch(self.u64()?) })
    }

    fn rest(self) -> &'a [u8] {
        self.0
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
