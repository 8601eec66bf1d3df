//! Nodes, leases and reservations: one typed function for each script on a cell.
//!
//! Start at [`RedisStore::reserve`]; its script is `scripts/reserve.lua`.
//!
//! | file | contents |
//! |---|---|
//! | `cell/profile.rs` | a node's capabilities as a list of the sets that it is in |
//! | `cell/query.rs` | a job's needs as a list of the sets that a node must be in |
//! | `cell/view.rs` | reads the records of a cell |
//!
//! Invariant: the scripts decide; these functions pack arguments and read replies.

use lingua_core::job::{AttemptOutcome, Grant};
use lingua_core::roster::Capacity;
use lingua_core::{
    Attempt, CellId, Epoch, Fence, Health, InstanceId, Load, NodeId, NodeState, Policy, Resource,
    Slot,
};
use lingua_store::Result;
use lingua_store::contract::{
    CellRecord, CommitReply, ExpiredLease, Freed, HeartbeatReply, HeartbeatRequest, KeptLeases,
    LapsedNode, LeaseKey, LeasePhase, NodeCommand, NodeCommandReply, NodeSpeed, Place, ReapReply,
    RegisterReply, RegisterRequest, ReserveOutcome, ReserveReply, ReserveRequest,
};
use redis::Value;

use crate::constants::{
    BALANCED, DEGRADED, DRAINING, FAILED, FREED_MAX, FREED_USED, LEAST_LOADED, MAX_BELOW, OFFLINE,
    PHASE_RESERVED, RANDOM, READY, REGISTERING, SAMPLE, SLOT_NONE, SUCCEEDED, UNKNOWN,
};
use crate::record::{RecordReader, RecordWriter};
use crate::reply::{ScriptReply, convert, corrupt, job_text, read_job};
use crate::script::{COMMIT, FINISH, HEARTBEAT, REAP, REGISTER, RESERVE, SET_STATE, VIEW};
use crate::store::RedisStore;

use self::query::Sets;

pub(crate) mod profile;
mod query;
pub(crate) mod view;

/// Longest time that is added to the clock, so that sums stay exact in doubles.
const SPAN_MS_MAX: u64 = 1 << 48;

/// Most leases that one heartbeat can renew: twice the slots of a node.
const RUNNING_MAX: usize = 2048;

/// Most leases that one call of `reap` ends.
const REAP_MAX: usize = 1 << 20;

impl RedisStore {
    pub(crate) async fn register(&self, r: RegisterRequest) -> Result<RegisterReply> {
        let rule = self.options.rules.semantic;
        let (keep_all, kept) = match &r.keep {
            KeptLeases::All => (true, vec![]),
            KeptLeases::Only(keys) => (false, keys.iter().map(lease_args).collect()),
        };
        let args = (
            place_args(r.place),
            r.node.as_str(),
            format!("{} {} {}", r.place.epoch, r.node, r.via),
            health_code(r.health),
            speed_args(r.speed),
            span(r.fresh_ms),
            r.profile.slots_max(),
            r.profile.flexibility(rule),
            self.overload(Load::default()),
            profile::encode(&r.profile, rule),
            r.version.as_deref().unwrap_or_default(),
            (u8::from(keep_all), kept),
        );
        let keys = self.keys.cell(r.place.cell).all();
        let mut reply: ScriptReply = self.call(&REGISTER, &keys, args).await?;
        if reply.next::<String>()? == "stale" {
            return Ok(RegisterReply::Stale { current: Epoch(reply.next()?) });
        }
        self.publish_node_change(r.place.cell, reply.next()?).await;
        let lost = lost(reply.next()?)?;
        let (cost_ms, learned_ms, jobs) = (reply.next()?, reply.next()?, reply.next()?);
        Ok(RegisterReply::Registered { lost, speed: NodeSpeed { cost_ms, learned_ms, jobs } })
    }

    pub(crate) async fn heartbeat(&self, request: HeartbeatRequest) -> Result<HeartbeatReply> {
        let cell = request.place.cell;
        let (renewable, too_many) =
            request.running.split_at(request.running.len().min(RUNNING_MAX));
        let running: Vec<_> = renewable.iter().map(lease_args).collect();
        let load = Resource::ALL.map(|resource| {
            request.load.map_or(String::new(), |load| load.permille(resource).to_string())
        });
        let args = (
            place_args(request.place),
            request.health.map_or(String::new(), |h| health_code(h).to_string()),
            &load,
            request.speed.map(speed_args).unwrap_or_default(),
            span(request.fresh_ms),
            span(request.lease_ms),
            self.overload(request.load.unwrap_or_default()),
            running,
        );
        let keys = self.keys.cell(cell).all();
        let mut reply: ScriptReply = self.call(&HEARTBEAT, &keys, args).await?;
        if reply.next::<String>()? == "reregister" {
            return Ok(HeartbeatReply::Reregister);
        }
        let drain = reply.next()?;
        self.publish_node_change(cell, reply.next()?).await;
        let positions: Vec<usize> = reply.next()?;
        let key = |position: &usize| renewable.get(position.wrapping_sub(1)).copied();
        let unknown: Option<Vec<LeaseKey>> = positions.iter().map(key).collect();
        let mut unknown =
            unknown.ok_or_else(|| corrupt("a heartbeat reply with a position beyond the list"))?;
        unknown.extend(too_many);
        Ok(HeartbeatReply::Accepted { drain, unknown })
    }

    pub(crate) async fn set_state(
        &self,
        place: Place,
        command: NodeCommand,
    ) -> Result<NodeCommandReply> {
        let keys = self.keys.cell(place.cell).all();
        let args = (place_args(place), command.as_str(), span(self.options.rules.gone_ms));
        let mut reply: ScriptReply = self.call(&SET_STATE, &keys, args).await?;
        if reply.next::<String>()? == "stale" {
            return Ok(NodeCommandReply::Stale);
        }
        self.publish_node_change(place.cell, reply.next()?).await;
        Ok(NodeCommandReply::Set { lost: lost(reply.next()?)? })
    }

    pub(crate) async fn reserve(&self, cell: CellId, r: ReserveRequest) -> Result<ReserveReply> {
        let [hot, cold, fresh, nodes, index, leases, due, _unpublished] =
            self.keys.cell(cell).all();
        let keys = [hot, cold, fresh, nodes, index, leases, due];
        let sets = query::sets(&r.query, self.options.rules.semantic);
        let excluded = r.query.exclude.mask().to_le_bytes();
        let args = (
            job_text(r.key.job),
            packed_request(&r, sets.either),
            if r.query.exclude.is_empty() { &[][..] } else { &excluded[..] },
            &sets,
        );
        let (reply, expired) = match self.call(&RESERVE, &keys, args).await? {
            Value::BulkString(reply) => (reply, vec![]),
            other => {
                let (reply, leases): (Vec<u8>, Vec<ExpiredFields>) = convert(other)?;
                (reply, expired(leases)?)
            }
        };
        Ok(ReserveReply { outcome: outcome(cell, &r, &sets, &reply)?, expired })
    }

    pub(crate) async fn commit(
        &self,
        cell: CellId,
        key: LeaseKey,
        run_lease_ms: u64,
    ) -> Result<CommitReply> {
        let keys = self.keys.cell(cell);
        let args = (lease_args(&key), span(run_lease_ms));
        let committed: i64 = self.call(&COMMIT, &[&keys.leases, &keys.due], args).await?;
        Ok(match committed {
            0 => CommitReply::Gone,
            fence @ 1.. => CommitReply::Committed(Fence(fence as u64)),
            _ => CommitReply::Stale,
        })
    }

    pub(crate) async fn finish(
        &self,
        cell: CellId,
        key: LeaseKey,
        outcome: AttemptOutcome,
    ) -> Result<Option<Freed>> {
        let keys = self.keys.cell(cell);
        let keys = [&keys.hot, &keys.leases, &keys.due];
        let outcome = match outcome {
            AttemptOutcome::Unknown => UNKNOWN,
            AttemptOutcome::Succeeded => SUCCEEDED,
            AttemptOutcome::Failed => FAILED,
        };
        let freed: i64 = self.call(&FINISH, &keys, (lease_args(&key), outcome)).await?;
        let Ok(freed) = u64::try_from(freed) else { return Ok(None) };
        let used = (freed / FREED_USED % MAX_BELOW) as u16;
        let max = (freed / FREED_MAX) as u16;
        Ok(Some(Freed { slot: slot(freed % FREED_USED)?, used, max }))
    }

    pub(crate) async fn reap(&self, cell: CellId, limit: usize) -> Result<ReapReply> {
        let [hot, cold, fresh, nodes, _index, leases, due, unpublished] =
            self.keys.cell(cell).all();
        let keys = [hot, cold, fresh, nodes, leases, due, unpublished];
        let (leases, silent, unpublished): (Vec<ExpiredFields>, Vec<SilentFields>, Vec<Vec<u8>>) =
            self.call(&REAP, &keys, limit.min(REAP_MAX)).await?;
        let mut lapsed = Vec::with_capacity(silent.len());
        for (entry, at, code, for_ms) in silent {
            let (epoch, node, _) = node_entry(&entry)?;
            let place = Place { cell, slot: slot(at)?, epoch };
            lapsed.push(LapsedNode { node, place, state: state(code)?, for_ms });
        }
        for change in unpublished {
            self.publish_node_change(cell, change).await;
        }
        Ok(ReapReply { expired: expired(leases)?, lapsed })
    }

    pub(crate) async fn view(&self, cell: CellId) -> Result<CellRecord> {
        let [hot, cold, fresh, nodes, _index, leases, due, _unpublished] =
            self.keys.cell(cell).all();
        let keys = [hot, cold, fresh, nodes, leases, due];
        let no_args: Option<u64> = None;
        view::read(self, cell, self.call(&VIEW, &keys, no_args).await?)
    }

    /// The resources that this load exhausts, as bits.
    fn overload(&self, load: Load) -> u8 {
        let exceeded =
            |r: Resource| u8::from(self.options.rules.thresholds.exceeded(load, r)) << r as u8;
        Resource::ALL.into_iter().map(exceeded).sum()
    }
}

fn span(ms: u64) -> u64 {
    ms.min(SPAN_MS_MAX)
}

fn place_args(place: Place) -> (usize, usize, u64) {
    (place.cell.index(), place.slot.index(), place.epoch.0)
}

fn speed_args(speed: NodeSpeed) -> (String, String, String) {
    let NodeSpeed { cost_ms, learned_ms, jobs } = speed;
    (cost_ms.to_string(), learned_ms.to_string(), jobs.to_string())
}

fn lease_args(key: &LeaseKey) -> (String, u32) {
    (job_text(key.job), key.attempt.0)
}

fn health_code(health: Health) -> u64 {
    match health {
        Health::Ready => READY,
        Health::Registering => REGISTERING,
        Health::Degraded => DEGRADED,
        Health::Draining => DRAINING,
    }
}

fn health(code: u64) -> Result<Health> {
    let known = Health::ALL.into_iter().find(|health| health_code(*health) == code);
    known.ok_or_else(|| corrupt(&format!("there is no health {code} of a node")))
}

fn state(code: u64) -> Result<NodeState> {
    match code {
        OFFLINE => Ok(NodeState::Offline),
        _ => health(code).map(|health| NodeState::of(health, false)),
    }
}

fn slot(number: u64) -> Result<Slot> {
    Slot::new(number as usize).ok_or_else(|| corrupt(&format!("there is no slot {number}")))
}

fn phase(code: u64) -> LeasePhase {
    match code == PHASE_RESERVED {
        true => LeasePhase::Reserved,
        false => LeasePhase::Committed,
    }
}

/// The arguments of a reservation, apart from the sets.
fn packed_request(r: &ReserveRequest, either: usize) -> Vec<u8> {
    let (policy, k) = match r.query.policy {
        Policy::Balanced => (BALANCED, 0),
        Policy::Sample { k } => (SAMPLE, k),
        Policy::LeastLoaded => (LEAST_LOADED, 0),
        Policy::Random => (RANDOM, 0),
    };
    let (slot, epoch, strict) = match r.pin {
        Some(pin) => (pin.slot.index() as u8, pin.epoch.0, pin.strict),
        None => (SLOT_NONE as u8, 0, false),
    };
    let packed = RecordWriter::default().number(r.key.attempt.0).double(span(r.ack_lease_ms));
    let packed = packed.number(r.random).small(policy as u8).small(k);
    let packed = packed.small(u8::from(r.query.keep_last)).small(slot).double(epoch);
    packed.small(u8::from(strict)).small(either as u8).0
}

/// The reply of `reserve`.
fn outcome(cell: CellId, r: &ReserveRequest, sets: &Sets, reply: &[u8]) -> Result<ReserveOutcome> {
    let mut reply = RecordReader(reply);
    Ok(match reply.bytes(1)? {
        b"g" => {
            let (at, fence) = (slot(reply.number(1)?)?, Fence(reply.double()?));
            let (used, max) = (reply.number(2)? as u16, reply.number(2)? as u16);
            let (free, capacity) = (reply.number(4)? as u32, capacity(&mut reply)?);
            let weight = reply.number(4)? as u32;
            let grant = grant(cell, at, fence, reply.text()?)?;
            ReserveOutcome::Granted { grant, used, max, free, capacity, weight }
        }
        b"d" => {
            let (at, fence) = (slot(reply.number(1)?)?, Fence(reply.double()?));
            ReserveOutcome::Duplicate(grant(cell, at, fence, reply.text()?)?)
        }
        b"s" => ReserveOutcome::Stale { held: Attempt(reply.number(4)? as u32) },
        b"f" => {
            let (capable, free) = (reply.number(4)? as u16, reply.number(4)? as u32);
            ReserveOutcome::Full { capable, free, capacity: capacity(&mut reply)? }
        }
        b"n" => ReserveOutcome::NoneCapable,
        b"p" => {
            let (why, capabilities) = reply.text()?.split_once(' ').unwrap_or_default();
            ReserveOutcome::PinLost(sets.why(&r.query, why, capabilities)?)
        }
        other => return Err(corrupt(&format!("a reservation that ended with {other:?}"))),
    })
}

fn capacity(reply: &mut RecordReader<'_>) -> Result<Capacity> {
    Ok(Capacity { free: reply.double()?, all: reply.double()? })
}

fn grant(cell: CellId, slot: Slot, fence: Fence, entry: &str) -> Result<Grant> {
    let (epoch, node, via) = node_entry(entry)?;
    Ok(Grant { node, cell, slot, epoch, fence, via })
}

/// The node in a slot: `epoch name via`.
fn node_entry(entry: &str) -> Result<(Epoch, NodeId, InstanceId)> {
    let mut words = entry.splitn(3, ' ');
    let mut parts = || {
        let epoch = Epoch(words.next()?.parse().ok()?);
        Some((epoch, NodeId::new(words.next()?).ok()?, InstanceId::new(words.next()?).ok()?))
    };
    parts().ok_or_else(|| corrupt(&format!("{entry:?} where a node belongs")))
}

fn lost(leases: Vec<(String, u32)>) -> Result<Vec<LeaseKey>> {
    let keys = leases.iter().map(|(job, attempt)| lease_key(job, *attempt));
    let mut lost = keys.collect::<Result<Vec<_>>>()?;
    lost.sort_unstable();
    Ok(lost)
}

/// Job, attempt, slot and phase of an expired lease.
type ExpiredFields = (String, u32, u64, u64);

/// The node, its slot, its state and for how long it has been silent.
type SilentFields = (String, u64, u64, u64);

fn expired(leases: Vec<ExpiredFields>) -> Result<Vec<ExpiredLease>> {
    let lease = |(job, attempt, at, code): ExpiredFields| {
        let key = lease_key(&job, attempt)?;
        Ok(ExpiredLease { key, slot: slot(at)?, phase: phase(code) })
    };
    leases.into_iter().map(lease).collect()
}

fn lease_key(job: &str, attempt: u32) -> Result<LeaseKey> {
    Ok(LeaseKey { job: read_job(job)?, attempt: Attempt(attempt) })
}
