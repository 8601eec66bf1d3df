//! Reads the records of a cell; `scripts/prelude/cells.lua` and `leases.lua` describe the layout.

use std::collections::HashMap;
use std::sync::Arc;

use lingua_core::{Attempt, CellId, Epoch, Fence, Load};
use lingua_store::Result;
use lingua_store::contract::{CellRecord, LeaseKey, LeaseRecord, NodeRecord, NodeSpeed, Place};

use super::{health, node_entry, phase, profile, slot, state};
use crate::constants::{
    COLD_BYTES, FILLER, FREE_UNIT, FRESH_BYTES, HOT_BYTES, HOT_HEAD, HOT_ROOM, LEASE_BYTES,
    LEASES_HEAD, LIMIT_UNIT, MAX_BELOW, MAX_UNIT, STATE_UNIT,
};
use crate::record::RecordReader;
use crate::reply::{corrupt, read_job};
use crate::store::RedisStore;

/// The reply of `scripts/view.lua`: time, hot, cold, fresh, nodes, leases, deadlines.
pub(super) type ViewReply = (u64, Vec<u8>, Vec<u8>, Vec<u8>, Fields, Fields, HashMap<String, f64>);

type Fields = HashMap<String, Vec<u8>>;

pub(super) fn read(store: &RedisStore, cell: CellId, reply: ViewReply) -> Result<CellRecord> {
    let (now_ms, hot, cold, fresh, texts, leases, due) = reply;
    let mut nodes = vec![];
    let mut epochs: HashMap<usize, Epoch> = HashMap::new();
    let hot = hot.get(HOT_HEAD as usize..).unwrap_or_default().chunks(HOT_BYTES as usize);
    let slots = hot.zip(cold.chunks(COLD_BYTES as usize)).zip(fresh.chunks(FRESH_BYTES as usize));
    for (i, ((hot, cold), fresh)) in slots.enumerate() {
        let counts = read_counts(RecordReader(hot))?;
        let (mut cold, fresh_until_ms) = (RecordReader(cold), RecordReader(fresh).double()?);
        let node = read_node(cell, i, counts, &mut cold, fresh_until_ms, &texts);
        if let Some(node) = store.readable(node)?.flatten() {
            epochs.insert(i, node.place.epoch);
            nodes.push(node);
        }
    }
    let mut views = Vec::with_capacity(leases.len());
    let is_lease = |job: &str| job != LEASES_HEAD && job != FILLER;
    for (job, lease) in leases.iter().filter(|(job, _)| is_lease(job)) {
        views.extend(store.readable(read_lease(job, lease, &epochs, &due))?);
    }
    views.sort_unstable_by_key(|lease| lease.key);
    Ok(CellRecord { cell, now_ms, nodes, leases: views })
}

/// The parts of a node's room.
struct Counts {
    used: u16,
    max: u16,
    limit: u16,
}

/// Free slots are negative when a node has shrunk.
fn read_counts(mut hot: RecordReader<'_>) -> Result<Counts> {
    hot.bytes(HOT_ROOM as usize)?;
    let room = hot.signed()?;
    let part = |unit: u64| room.div_euclid(unit as i64).rem_euclid(MAX_BELOW as i64);
    let (max, limit) = (part(MAX_UNIT), part(LIMIT_UNIT));
    let used = (max - room.div_euclid(FREE_UNIT as i64)) as u16;
    Ok(Counts { used, max: max as u16, limit: limit as u16 })
}

fn read_node(
    cell: CellId,
    at: usize,
    counts: Counts,
    cold: &mut RecordReader<'_>,
    fresh_until_ms: u64,
    texts: &Fields,
) -> Result<Option<NodeRecord>> {
    let (_epoch, heartbeat_ms) = (cold.double()?, cold.double()?);
    let [cpu, gpu, memory] = [cold.number(2)?, cold.number(2)?, cold.number(2)?]
        .map(|permille| permille as f64 / 1000.0);
    let cost_ms = cold.number(4)? as u32;
    let gate = cold.number(1)?;
    let (health_code, drain, _offline) = (cold.number(1)?, cold.number(1)?, cold.number(1)?);
    if cold.number(1)? == 0 {
        return Ok(None);
    }
    let (learned_ms, jobs) = (cold.number(4)? as u32, cold.number(2)? as u16);
    let Counts { used, max, limit } = counts;
    let text = |field: String| {
        let bytes = texts.get(&field).map(|bytes| String::from_utf8_lossy(bytes));
        bytes.ok_or_else(|| corrupt(&format!("slot {at} of cell {cell} has no {field:?}")))
    };
    let (epoch, node, via) = node_entry(&text(at.to_string())?)?;
    let profile = profile::decode(&text(format!("{at}c"))?, max)?;
    let version = texts.get(&format!("{at}v")).map(|bytes| String::from_utf8_lossy(bytes).into());
    let load = Load::new(cpu, gpu, memory).map_err(|error| corrupt(&error.to_string()))?;
    Ok(Some(NodeRecord {
        node,
        place: Place { cell, slot: slot(at as u64)?, epoch },
        profile: Arc::new(profile),
        health: health(health_code)?,
        state: state(gate / STATE_UNIT)?,
        drain_ordered: drain == 1,
        load,
        speed: NodeSpeed { cost_ms, learned_ms, jobs },
        used,
        limit,
        heartbeat_ms,
        fresh_until_ms,
        version,
        via,
    }))
}

/// Reads any bytes as a node of slot 0, with this text of its capabilities, and as a lease on it.
#[cfg(feature = "decoders")]
pub(crate) fn read_any(bytes: &[u8], text: &[u8]) {
    let texts = [("0", &b"1 n1 one"[..]), ("0c", text), ("0v", text)];
    let texts = texts.map(|(field, text)| (field.to_owned(), text.to_vec())).into();
    if let (Some(cell), Ok(counts)) = (CellId::new(0), read_counts(RecordReader(bytes))) {
        let cold = bytes.get(HOT_BYTES as usize..).unwrap_or_default();
        read_node(cell, 0, counts, &mut RecordReader(cold), 0, &texts).ok();
    }
    let job = "00000000000000000000000000000001";
    let due = [(job.to_owned(), 1.0)].into();
    read_lease(job, bytes, &[(0, Epoch(1))].into(), &due).ok();
    super::node_entry(&String::from_utf8_lossy(text)).ok();
}

fn read_lease(
    job: &str,
    lease: &[u8],
    epochs: &HashMap<usize, Epoch>,
    due: &HashMap<String, f64>,
) -> Result<LeaseRecord> {
    if lease.len() as u64 != LEASE_BYTES {
        return Err(corrupt("a lease of the wrong length"));
    }
    let mut lease = RecordReader(lease);
    let (at, phase_code) = (lease.number(1)?, lease.number(1)?);
    let (attempt, fence) = (lease.number(4)? as u32, lease.double()?);
    let (Some(&epoch), Some(&deadline_ms)) = (epochs.get(&(at as usize)), due.get(job)) else {
        return Err(corrupt("a lease without a node or a deadline"));
    };
    Ok(LeaseRecord {
        key: LeaseKey { job: read_job(job)?, attempt: Attempt(attempt) },
        slot: slot(at)?,
        epoch,
        phase: phase(phase_code),
        fence: Fence(fence),
        deadline_ms: deadline_ms as u64,
    })
}
