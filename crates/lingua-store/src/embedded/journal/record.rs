//! What is written to disk: the changes, and each record as bytes.
//!
//! A record is a version byte, a JSON header, a line feed, and the raw content (a specification or
//! an outcome) up to the end. A job is two rows: what never changes, and its present step.
//!
//! Invariant: reading never panics. Bytes that make no sense, or of another version, are an error.

use lingua_core::job::{Grant, JobState, Stage};
use lingua_core::{
    Attempt, CellId, Epoch, Fence, InstanceId, JobId, NodeId, Slot, Tenant, Term, TokenName,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::contract::{
    BindingRecord, Bytes, Digest, Incarnation, JobRecord, NodeClass, Place, UsageRecord,
};
use crate::embedded::bindings::{KeptBinding, OwnedKey};
use crate::embedded::directory::Placement;
use crate::embedded::keys::StoredKey;

/// The first byte of every record.
pub(super) const RECORD_VERSION: u8 = 5;

/// A change that must survive a restart.
#[derive(Debug, Clone)]
pub(in super::super) enum DurableChange {
    JobCreated(JobRecord),
    JobMoved(StoredJob),
    /// What a tenant has used on a day, all in all.
    Used(UsageRecord),
    /// The counts of this day are not kept any longer.
    DayDropped(u64),
    /// The job is not kept any longer.
    JobDropped(JobId),
    /// An idempotency key stands for a job.
    KeyClaimed(StoredKey),
    /// The key is not kept any longer.
    KeyDropped(Digest),
    /// A node got a place, or a new epoch in its place.
    NodePlaced(NodeId, Placement),
    /// A node's place is free; commands to the node are void.
    NodeReleased(NodeId),
    /// An operator's command to drain (true) or to resume (false).
    NodeDrained(NodeId, bool),
    /// A key was bound to a node.
    Bound(OwnedKey, KeptBinding),
    /// A binding is not kept any longer.
    Unbound(OwnedKey),
    /// A new leader's term.
    Term(Term),
    /// The clock stays below this until it is raised.
    Ceiling(u64),
}

/// A job and the token of its last step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct StoredJob {
    pub(in super::super) record: JobRecord,
    pub(in super::super) last_token: Option<u64>,
}

/// The header of a job's first row; the specification follows.
#[derive(Serialize, Deserialize)]
struct SpecHeader {
    created_ms: u64,
    deadline_ms: Option<u64>,
    recoverable: bool,
    label: u64,
}

/// The header of a job's second row; the outcome follows, if there is one.
#[derive(Serialize, Deserialize)]
struct StepHeader {
    state: String,
    attempt: u32,
    updated_ms: u64,
    kept_until_ms: Option<u64>,
    token: Option<u64>,
    owner: String,
    grant: Option<GrantHeader>,
    has_outcome: bool,
}

#[derive(Serialize, Deserialize)]
struct GrantHeader {
    node: String,
    place: PlaceHeader,
    fence: u64,
    via: String,
}

#[derive(Serialize, Deserialize)]
struct PlacementHeader {
    place: PlaceHeader,
    incarnation: u64,
    class: u32,
    owner: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct BindingHeader {
    node: String,
    place: PlaceHeader,
    until_ms: u64,
}

/// Cell, slot, epoch.
#[derive(Serialize, Deserialize)]
struct PlaceHeader(usize, usize, u64);

impl PlaceHeader {
    fn read(&self) -> Option<Place> {
        let (cell, slot) = (CellId::new(self.0)?, Slot::new(self.1)?);
        Some(Place { cell, slot, epoch: Epoch(self.2) })
    }
}

pub(super) fn write_spec(job: &JobRecord) -> Vec<u8> {
    let &JobRecord { created_ms, deadline_ms, recoverable, label, .. } = job;
    write(&SpecHeader { created_ms, deadline_ms, recoverable, label }, &job.spec)
}

pub(super) fn write_step(job: &JobRecord, token: Option<u64>) -> Vec<u8> {
    let grant = job.grant.as_ref().map(|grant| GrantHeader {
        node: grant.node.to_string(),
        place: PlaceHeader(grant.cell.index(), grant.slot.index(), grant.epoch.0),
        fence: grant.fence.0,
        via: grant.via.to_string(),
    });
    let header = StepHeader {
        state: job.stage.state.as_str().to_owned(),
        attempt: job.stage.attempt.0,
        updated_ms: job.updated_ms,
        kept_until_ms: job.kept_until_ms,
        token,
        owner: job.owner.to_string(),
        grant,
        has_outcome: job.outcome.is_some(),
    };
    write(&header, job.outcome.as_deref().unwrap_or_default())
}

pub(super) fn write_placement(placement: &Placement) -> Vec<u8> {
    let Place { cell, slot, epoch } = placement.place;
    let place = PlaceHeader(cell.index(), slot.index(), epoch.0);
    let (incarnation, class) = (placement.incarnation.0, placement.class.0);
    let owner = placement.owner.as_ref().map(TokenName::to_string);
    write(&PlacementHeader { place, incarnation, class, owner }, &[])
}

/// The row's key: the tenant, a line feed (which no tenant has), and the bind key.
pub(super) fn binding_key((tenant, key): &OwnedKey) -> String {
    format!("{tenant}\n{key}")
}

pub(super) fn write_binding(KeptBinding { binding, until_ms }: &KeptBinding) -> Vec<u8> {
    let Place { cell, slot, epoch } = binding.place;
    let place = PlaceHeader(cell.index(), slot.index(), epoch.0);
    write(&BindingHeader { node: binding.node.to_string(), place, until_ms: *until_ms }, &[])
}

pub(super) fn read_binding(key: &str, row: &[u8]) -> Option<(OwnedKey, KeptBinding)> {
    let (header, _): (BindingHeader, _) = read(row)?;
    let (tenant, key) = key.split_once('\n')?;
    let node = NodeId::new(&header.node).ok()?;
    let binding = BindingRecord { node, place: header.place.read()? };
    let kept = KeptBinding { binding, until_ms: header.until_ms };
    Some(((Tenant::new(tenant).ok()?, key.into()), kept))
}

/// Reads both rows of a job.
pub(super) fn read_job(id: JobId, spec: &[u8], step: &[u8]) -> Option<StoredJob> {
    let (SpecHeader { created_ms, deadline_ms, recoverable, label }, spec) = read(spec)?;
    let (step, outcome): (StepHeader, _) = read(step)?;
    let grant = match step.grant {
        Some(grant) => {
            let Place { cell, slot, epoch } = grant.place.read()?;
            let (node, via) = (NodeId::new(&grant.node).ok()?, InstanceId::new(&grant.via).ok()?);
            Some(Grant { node, cell, slot, epoch, fence: Fence(grant.fence), via })
        }
        None => None,
    };
    let (state, attempt) = (JobState::from_name(&step.state)?, Attempt(step.attempt));
    let record = JobRecord {
        id,
        owner: InstanceId::new(&step.owner).ok()?,
        stage: Stage { state, attempt },
        grant,
        spec,
        outcome: step.has_outcome.then_some(outcome),
        deadline_ms,
        recoverable,
        label,
        created_ms,
        updated_ms: step.updated_ms,
        kept_until_ms: step.kept_until_ms,
    };
    Some(StoredJob { record, last_token: step.token })
}

pub(super) fn read_placement(node: &str, row: &[u8]) -> Option<(NodeId, Placement)> {
    let (header, _): (PlacementHeader, _) = read(row)?;
    let (incarnation, class) = (Incarnation(header.incarnation), NodeClass(header.class));
    let owner = match header.owner {
        Some(name) => Some(TokenName::new(&name).ok()?),
        None => None,
    };
    let placement = Placement { place: header.place.read()?, incarnation, class, owner };
    Some((NodeId::new(node).ok()?, placement))
}

fn write(header: &impl Serialize, content: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(256 + content.len());
    row.push(RECORD_VERSION);
    serde_json::to_writer(&mut row, header).expect("a header is plain data");
    row.push(b'\n');
    row.extend_from_slice(content);
    row
}

fn read<H: DeserializeOwned>(row: &[u8]) -> Option<(H, Bytes)> {
    let (&RECORD_VERSION, row) = row.split_first()? else { return None };
    let end = row.iter().position(|&byte| byte == b'\n')?;
    let header = serde_json::from_slice(&row[..end]).ok()?;
    Some((header, Bytes::copy_from_slice(&row[end + 1..])))
}
