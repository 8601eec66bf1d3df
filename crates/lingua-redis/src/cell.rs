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

use lingua_core::job::Grant;
use lingua_core::{
    Attempt, CellId, Epoch, Fence, Health, InstanceId, Load, NodeId, NodeState, Policy, Resource,
    Slot,
};
use lingua_store::Result;
use lingua_store::contract::{
    CellRecord, CommitReply, ExpiredLease, Freed, HeartbeatReply, HeartbeatRequest, LapsedNode,
    LeaseKey, LeasePhase, NodeCommand, NodeCommandReply, Place, ReapReply, RegisterReply,
    RegisterRequest, ReserveOutcome, ReserveReply, ReserveRequest,
};
use redis::Value;

use crate::constants::{
    BALANCED, DEGRADED, DRAINING, FREED_MAX, FREED_USED, LEAST_LOADED, MAX_BELOW, OFFLINE,
    PHASE_RESERVED, RANDOM, READY, REGISTERING, SAMPLE, SLOT_NONE,
};
use crate::record::{RecordReader, RecordWriter};
use crate::reply::{ScriptReply, corrupt, job_text, whole_number};
use crate::script::{COMMIT, FINISH, HEARTBEAT, REAP, REGISTER, RESERVE, SET_STATE, VIEW};
use crate::store::RedisStore;

use self::query::Sets;

mod profile;
mod query;
mod view;

/// Longest time that is added to the clock, so that sums stay exact in doubles.
const SPAN_MS_MAX: u64 = 1 << 48;

/// Most leases that one heartbeat can renew: twice the slots of a node.
const RUNNING_MAX: usize = 2048;

/// Most leases that one call of `reap` ends.
const REAP_MAX: usize = 1 << 20;

impl RedisStore {
    pub(crate) async fn register(&self, r: RegisterRequest) -> Result<RegisterReply> {
        let keys = self.keys.cell(r.place.cell).all();
        let rule = self.rules.semantic;
        let call = REGISTER.call(self.script_ms(), &keys);
        let call = call.arg(r.place.cell.index()).arg(r.place.slot.index()).arg(r.place.epoch.0);
        let tenant = format!("{} {} {}", r.place.epoch, r.node, r.via);
        let call = call.arg(r.node.as_str()).arg(tenant).arg(health_code(r.health));
        let call = call.arg(r.cost_ms).arg(span(r.fresh_ms));
        let call = call.arg(r.profile.slots_max()).arg(r.profile.flexibility(rule));
        let call = call.arg(self.overload(Load::default())).arg(profile::encode(&r.profile, rule));
        let call = match &r.version {
            Some(version) => call.arg(&**version),
            None => call,
        };
        let mut reply = ScriptReply::new(self.connection.run(&call).await?)?;
        match reply.text()?.as_str() {
            "stale" => Ok(RegisterReply::Stale { current: Epoch(reply.number()?) }),
            _ => {
                self.publish_node_change(r.place.cell, reply.bytes()?).await;
                Ok(RegisterReply::Registered { lost: lost(reply.list()?)? })
            }
        }
    }

    pub(crate) async fn heartbeat(&self, request: HeartbeatRequest) -> Result<HeartbeatReply> {
        let cell = request.place.cell;
        let keys = self.keys.cell(cell).all();
        let call = HEARTBEAT.call(self.script_ms(), &keys);
        let call =
            call.arg(cell.index()).arg(request.place.slot.index()).arg(request.place.epoch.0);
        let call = call.arg(request.health.map_or(String::new(), |h| health_code(h).to_string()));
        let [cpu, gpu, memory] = Resource::ALL.map(|resource| request.load.permille(resource));
        let call = call.arg(cpu).arg(gpu).arg(memory);
        let cost = request.cost_ms.map_or(String::new(), |cost_ms| cost_ms.to_string());
        let call = call.arg(cost).arg(span(request.fresh_ms)).arg(span(request.lease_ms));
        let mut call = call.arg(self.overload(request.load));
        let (renewable, too_many) =
            request.running.split_at(request.running.len().min(RUNNING_MAX));
        for key in renewable {
            call.push(job_text(key.job));
            call.push(key.attempt.0);
        }
        let mut reply = ScriptReply::new(self.connection.run(&call).await?)?;
        if reply.text()? == "reregister" {
            return Ok(HeartbeatReply::Reregister);
        }
        let drain = reply.flag()?;
        self.publish_node_change(cell, reply.bytes()?).await;
        let (mut places, mut unknown) = (reply.list()?, vec![]);
        while !places.is_empty() {
            let place: usize = places.small()?;
            let key = renewable.get(place.wrapping_sub(1));
            unknown.push(
                *key.ok_or_else(|| corrupt("a heartbeat reply with a position beyond the list"))?,
            );
        }
        unknown.extend(too_many);
        Ok(HeartbeatReply::Accepted { drain, unknown })
    }

    pub(crate) async fn set_state(
        &self,
        place: Place,
        command: NodeCommand,
    ) -> Result<NodeCommandReply> {
        let keys = self.keys.cell(place.cell);
        let keys = [
            &keys.hot,
            &keys.cold,
            &keys.nodes,
            &keys.index,
            &keys.leases,
            &keys.due,
            &keys.unpublished,
        ];
        let name = match command {
            NodeCommand::Drain => "drain",
            NodeCommand::Resume => "resume",
            NodeCommand::Offline => "offline",
            NodeCommand::Retire => "retire",
        };
        let call = SET_STATE.call(self.script_ms(), &keys).arg(place.cell.index());
        let call = call.arg(place.slot.index()).arg(place.epoch.0).arg(name);
        let mut reply = ScriptReply::new(self.connection.run(&call).await?)?;
        if reply.text()? == "stale" {
            return Ok(NodeCommandReply::Stale);
        }
        self.publish_node_change(place.cell, reply.bytes()?).await;
        Ok(NodeCommandReply::Set { lost: lost(reply.list()?)? })
    }

    pub(crate) async fn reserve(&self, cell: CellId, r: ReserveRequest) -> Result<ReserveReply> {
        let keys = self.keys.cell(cell);
        let (leases, due) = (&keys.leases, &keys.due);
        let keys = [&keys.hot, &keys.cold, &keys.fresh, &keys.nodes, &keys.index, leases, due];
        let sets = query::sets(&r.query, self.rules.semantic);
        let call = RESERVE.call(self.script_ms(), &keys).arg(job_text(r.key.job));
        let call = call.arg(packed_request(&r, sets.either));
        let mut call = match r.query.exclude.is_empty() {
            true => call.arg(""),
            false => call.arg(&r.query.exclude.mask().to_le_bytes()[..]),
        };
        for (name, _) in &sets.required {
            call.push(name);
        }
        let (reply, expired) = match self.connection.run(&call).await? {
            Value::BulkString(reply) => (reply, vec![]),
            other => {
                let mut reply = ScriptReply::new(other)?;
                (reply.bytes()?, expired(reply.list()?)?)
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
        let call = COMMIT.call(self.script_ms(), &[&keys.leases, &keys.due]);
        let call = call.arg(job_text(key.job)).arg(key.attempt.0).arg(span(run_lease_ms));
        Ok(match whole_number(self.connection.run(&call).await?)? {
            0 => CommitReply::Gone,
            fence @ 1.. => CommitReply::Committed(Fence(fence as u64)),
            _ => CommitReply::Stale,
        })
    }

    pub(crate) async fn finish(&self, cell: CellId, key: LeaseKey) -> Result<Option<Freed>> {
        let keys = self.keys.cell(cell);
        let call = FINISH.call(self.script_ms(), &[&keys.hot, &keys.leases, &keys.due]);
        let call = call.arg(job_text(key.job)).arg(key.attempt.0);
        let freed = whole_number(self.connection.run(&call).await?)?;
        if freed < 0 {
            return Ok(None);
        }
        let freed = freed as u64;
        let used = (freed / FREED_USED % MAX_BELOW) as u16;
        let max = (freed / FREED_MAX) as u16;
        Ok(Some(Freed { slot: slot(freed % FREED_USED)?, used, max }))
    }

    pub(crate) async fn reap(&self, cell: CellId, limit: usize) -> Result<ReapReply> {
        let keys = self.keys.cell(cell);
        let (leases, due) = (&keys.leases, &keys.due);
        let keys =
            [&keys.hot, &keys.cold, &keys.fresh, &keys.nodes, leases, due, &keys.unpublished];
        let call = REAP.call(self.script_ms(), &keys).arg(limit.min(REAP_MAX));
        let mut reply = ScriptReply::new(self.connection.run(&call).await?)?;
        let expired = expired(reply.list()?)?;
        let (mut silent, mut lapsed) = (reply.list()?, vec![]);
        while !silent.is_empty() {
            let (epoch, node, _) = tenant(&silent.text()?)?;
            let place = Place { cell, slot: slot(silent.number()?)?, epoch };
            let (state, for_ms) = (state(silent.number()?)?, silent.number()?);
            lapsed.push(LapsedNode { node, place, state, for_ms });
        }
        let mut unpublished = reply.list()?;
        while !unpublished.is_empty() {
            self.publish_node_change(cell, unpublished.bytes()?).await;
        }
        Ok(ReapReply { expired, lapsed })
    }

    pub(crate) async fn view(&self, cell: CellId) -> Result<CellRecord> {
        let keys = self.keys.cell(cell);
        let call = VIEW.call(
            self.script_ms(),
            &[&keys.hot, &keys.cold, &keys.fresh, &keys.nodes, &keys.leases, &keys.due],
        );
        view::read(cell, ScriptReply::new(self.connection.run(&call).await?)?)
    }

    /// The resources that this load exhausts, as bits.
    fn overload(&self, load: Load) -> u8 {
        let exceeded = |r: Resource| u8::from(self.rules.thresholds.exceeded(load, r)) << r as u8;
        Resource::ALL.into_iter().map(exceeded).sum()
    }
}

fn span(ms: u64) -> u64 {
    ms.min(SPAN_MS_MAX)
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
    let all = [Health::Ready, Health::Registering, Health::Degraded, Health::Draining];
    let known = all.into_iter().find(|health| health_code(*health) == code);
    known.ok_or_else(|| corrupt(&format!("there is no health {code} of a node")))
}

fn state(code: u64) -> Result<NodeState> {
    Ok(match code {
        READY => NodeState::Ready,
        REGISTERING => NodeState::Registering,
        DEGRADED => NodeState::Degraded,
        DRAINING => NodeState::Draining,
        OFFLINE => NodeState::Offline,
        _ => return Err(corrupt(&format!("there is no node state {code}"))),
    })
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
            let free = reply.number(4)? as u32;
            ReserveOutcome::Granted {
                grant: grant(cell, at, fence, reply.text()?)?,
                used,
                max,
                free,
            }
        }
        b"d" => {
            let (at, fence) = (slot(reply.number(1)?)?, Fence(reply.double()?));
            ReserveOutcome::Duplicate(grant(cell, at, fence, reply.text()?)?)
        }
        b"s" => ReserveOutcome::Stale { held: Attempt(reply.number(4)? as u32) },
        b"f" => {
            ReserveOutcome::Full { capable: reply.number(4)? as _, free: reply.number(4)? as _ }
        }
        b"n" => ReserveOutcome::NoneCapable,
        b"p" => {
            let (why, capabilities) = reply.text()?.split_once(' ').unwrap_or_default();
            ReserveOutcome::PinLost(sets.why(&r.query, why, capabilities)?)
        }
        other => return Err(corrupt(&format!("a reservation that ended with {other:?}"))),
    })
}

fn grant(cell: CellId, slot: Slot, fence: Fence, entry: &str) -> Result<Grant> {
    let (epoch, node, via) = tenant(entry)?;
    Ok(Grant { node, cell, slot, epoch, fence, via })
}

/// The node in a slot: `epoch name via`.
fn tenant(entry: &str) -> Result<(Epoch, NodeId, InstanceId)> {
    let mut words = entry.splitn(3, ' ');
    let mut parts = || {
        let epoch = Epoch(words.next()?.parse().ok()?);
        Some((epoch, NodeId::new(words.next()?).ok()?, InstanceId::new(words.next()?).ok()?))
    };
    parts().ok_or_else(|| corrupt(&format!("{entry:?} where a node belongs")))
}

fn lost(mut list: ScriptReply) -> Result<Vec<LeaseKey>> {
    let mut lost = Vec::with_capacity(list.len() / 2);
    while !list.is_empty() {
        lost.push(LeaseKey { job: list.job()?, attempt: Attempt(list.small()?) });
    }
    lost.sort_unstable();
    Ok(lost)
}

fn expired(mut list: ScriptReply) -> Result<Vec<ExpiredLease>> {
    let mut expired = Vec::with_capacity(list.len() / 4);
    while !list.is_empty() {
        let key = LeaseKey { job: list.job()?, attempt: Attempt(list.small()?) };
        expired.push(ExpiredLease {
            key,
            slot: slot(list.number()?)?,
            phase: phase(list.number()?),
        });
    }
    Ok(expired)
}
