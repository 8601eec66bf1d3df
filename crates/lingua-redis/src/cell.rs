//! Nodes, leases and reservations: one typed function for each script on a cell.
//!
//! | file | what |
//! |---|---|
//! | `cell/profile.rs` | a node's capabilities as a list of the sets it is in |
//! | `cell/query.rs` | a job's needs as a list of the sets a node must be in |
//! | `cell/view.rs` | the records of a cell, read |
//!
//! Invariant: what a script decides is not decided here again; this only packs and reads.

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

use crate::record::{RecordReader, RecordWriter};
use crate::reply::{ScriptReply, corrupt, job_text, whole_number};
use crate::script::{COMMIT, FINISH, HEARTBEAT, REAP, REGISTER, RESERVE, SET_STATE, VIEW};
use crate::store::RedisStore;

use self::query::Sets;

mod profile;
mod query;
mod view;

/// Longest time that is added to the clock; keeps sums exact in a script's numbers.
const SPAN_MS_MAX: u64 = 1 << 48;

/// Most leases that are looked at for one heartbeat: twice what a node may have.
const RUNNING_MAX: usize = 2048;

/// Most leases that one clean-up ends.
const REAP_MAX: usize = 1 << 20;

/// Stands where no slot is asked for.
const SLOT_NONE: u8 = 255;

impl RedisStore {
    pub(crate) async fn register_node(&self, r: RegisterRequest) -> Result<RegisterReply> {
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
                self.tell_node(r.place.cell, reply.bytes()?).await;
                Ok(RegisterReply::Registered { lost: lost(reply.list()?)? })
            }
        }
    }

    pub(crate) async fn beat(&self, beat: HeartbeatRequest) -> Result<HeartbeatReply> {
        let cell = beat.place.cell;
        let keys = self.keys.cell(cell).all();
        let call = HEARTBEAT.call(self.script_ms(), &keys);
        let call = call.arg(cell.index()).arg(beat.place.slot.index()).arg(beat.place.epoch.0);
        let call = call.arg(beat.health.map_or(String::new(), |h| health_code(h).to_string()));
        let [cpu, gpu, memory] = Resource::ALL.map(|resource| beat.load.permille(resource));
        let call = call.arg(cpu).arg(gpu).arg(memory);
        let cost = beat.cost_ms.map_or(String::new(), |cost_ms| cost_ms.to_string());
        let call = call.arg(cost).arg(span(beat.fresh_ms)).arg(span(beat.lease_ms));
        let mut call = call.arg(self.overload(beat.load));
        let (looked_at, too_many) = beat.running.split_at(beat.running.len().min(RUNNING_MAX));
        for key in looked_at {
            call.push(job_text(key.job));
            call.push(key.attempt.0);
        }
        let mut reply = ScriptReply::new(self.connection.run(&call).await?)?;
        if reply.text()? == "reregister" {
            return Ok(HeartbeatReply::Reregister);
        }
        let drain = reply.flag()?;
        self.tell_node(cell, reply.bytes()?).await;
        let (mut places, mut unknown) = (reply.list()?, vec![]);
        while !places.is_empty() {
            let place: usize = places.small()?;
            let key = looked_at.get(place.wrapping_sub(1));
            unknown.push(*key.ok_or_else(|| corrupt("a heartbeat that ran more than it ran"))?);
        }
        unknown.extend(too_many);
        Ok(HeartbeatReply::Accepted { drain, unknown })
    }

    pub(crate) async fn order(&self, place: Place, order: NodeCommand) -> Result<NodeCommandReply> {
        let keys = self.keys.cell(place.cell);
        let keys =
            [&keys.hot, &keys.cold, &keys.nodes, &keys.index, &keys.leases, &keys.due, &keys.news];
        let word = match order {
            NodeCommand::Drain => "drain",
            NodeCommand::Resume => "resume",
            NodeCommand::Offline => "offline",
            NodeCommand::Retire => "retire",
        };
        let call = SET_STATE.call(self.script_ms(), &keys).arg(place.cell.index());
        let call = call.arg(place.slot.index()).arg(place.epoch.0).arg(word);
        let mut reply = ScriptReply::new(self.connection.run(&call).await?)?;
        if reply.text()? == "stale" {
            return Ok(NodeCommandReply::Stale);
        }
        self.tell_node(place.cell, reply.bytes()?).await;
        Ok(NodeCommandReply::Set { lost: lost(reply.list()?)? })
    }

    pub(crate) async fn reserve_slot(
        &self,
        cell: CellId,
        r: &ReserveRequest,
    ) -> Result<ReserveReply> {
        let keys = self.keys.cell(cell);
        let (leases, due) = (&keys.leases, &keys.due);
        let keys = [&keys.hot, &keys.cold, &keys.fresh, &keys.nodes, &keys.index, leases, due];
        let sets = query::sets(&r.query, self.rules.semantic);
        let call = RESERVE.call(self.script_ms(), &keys).arg(job_text(r.key.job));
        let call = call.arg(wish(r, sets.either));
        let mut call = match r.query.exclude.is_empty() {
            true => call.arg(""),
            false => call.arg(&r.query.exclude.mask().to_le_bytes()[..]),
        };
        for (name, _) in &sets.required {
            call.push(name);
        }
        let (said, expired) = match self.connection.run(&call).await? {
            Value::BulkString(said) => (said, vec![]),
            other => {
                let mut reply = ScriptReply::new(other)?;
                (reply.bytes()?, expired(reply.list()?)?)
            }
        };
        Ok(ReserveReply { outcome: outcome(cell, r, &sets, &said)?, expired })
    }

    pub(crate) async fn commit_lease(
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

    pub(crate) async fn finish_lease(&self, cell: CellId, key: LeaseKey) -> Result<Option<Freed>> {
        let keys = self.keys.cell(cell);
        let call = FINISH.call(self.script_ms(), &[&keys.hot, &keys.leases, &keys.due]);
        let call = call.arg(job_text(key.job)).arg(key.attempt.0);
        let freed = whole_number(self.connection.run(&call).await?)?;
        if freed < 0 {
            return Ok(None);
        }
        let (at, used, max) = (freed % 128, freed / 128 % 2048, freed / 128 / 2048 % 2048);
        Ok(Some(Freed { slot: slot(at as u64)?, used: used as u16, max: max as u16 }))
    }

    pub(crate) async fn reap_cell(&self, cell: CellId, limit: usize) -> Result<ReapReply> {
        let keys = self.keys.cell(cell);
        let (leases, due) = (&keys.leases, &keys.due);
        let keys = [&keys.hot, &keys.cold, &keys.fresh, &keys.nodes, leases, due, &keys.news];
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
        let mut untold = reply.list()?;
        while !untold.is_empty() {
            self.tell_node(cell, untold.bytes()?).await;
        }
        Ok(ReapReply { expired, lapsed })
    }

    pub(crate) async fn view_cell(&self, cell: CellId) -> Result<CellRecord> {
        let keys = self.keys.cell(cell);
        let call = VIEW.call(
            self.script_ms(),
            &[&keys.hot, &keys.cold, &keys.fresh, &keys.nodes, &keys.leases, &keys.due],
        );
        view::read(cell, ScriptReply::new(self.connection.run(&call).await?)?)
    }

    /// The resources that a node with this load has too little left of, as bits.
    fn overload(&self, load: Load) -> u8 {
        let exceeded = |r: Resource| u8::from(self.rules.thresholds.exceeded(load, r)) << r as u8;
        Resource::ALL.into_iter().map(exceeded).sum()
    }
}

fn span(ms: u64) -> u64 {
    ms.min(SPAN_MS_MAX)
}

fn health_code(health: Health) -> u8 {
    match health {
        Health::Ready => 0,
        Health::Registering => 1,
        Health::Degraded => 2,
        Health::Draining => 3,
    }
}

fn health(code: u64) -> Result<Health> {
    let all = [Health::Ready, Health::Registering, Health::Degraded, Health::Draining];
    let known = all.into_iter().find(|health| u64::from(health_code(*health)) == code);
    known.ok_or_else(|| corrupt(&format!("there is no health {code} of a node")))
}

fn state(code: u64) -> Result<NodeState> {
    Ok(match code {
        0 => NodeState::Ready,
        1 => NodeState::Registering,
        2 => NodeState::Degraded,
        3 => NodeState::Draining,
        4 => NodeState::Offline,
        _ => return Err(corrupt(&format!("there is no state {code} of a node"))),
    })
}

fn slot(number: u64) -> Result<Slot> {
    Slot::new(number as usize).ok_or_else(|| corrupt(&format!("there is no slot {number}")))
}

fn phase(code: u64) -> LeasePhase {
    match code {
        0 => LeasePhase::Reserved,
        _ => LeasePhase::Committed,
    }
}

/// What is asked for, apart from the sets.
fn wish(r: &ReserveRequest, either: usize) -> Vec<u8> {
    let (policy, k) = match r.query.policy {
        Policy::Balanced => (0, 0),
        Policy::Sample { k } => (1, k),
        Policy::LeastLoaded => (2, 0),
        Policy::Random => (3, 0),
    };
    let (slot, epoch, strict) = match r.pin {
        Some(pin) => (pin.slot.index() as u8, pin.epoch.0, pin.strict),
        None => (SLOT_NONE, 0, false),
    };
    let wish = RecordWriter::default().number(r.key.attempt.0).double(span(r.ack_lease_ms));
    let wish = wish.number(r.random).small(policy).small(k);
    let wish = wish.small(u8::from(r.query.keep_last)).small(slot).double(epoch);
    wish.small(u8::from(strict)).small(either as u8).0
}

/// What `reserve` said, in words.
fn outcome(cell: CellId, r: &ReserveRequest, sets: &Sets, said: &[u8]) -> Result<ReserveOutcome> {
    let mut said = RecordReader(said);
    Ok(match said.bytes(1)? {
        b"g" => {
            let (at, fence) = (slot(said.number(1)?)?, Fence(said.double()?));
            let (used, max) = (said.number(2)? as u16, said.number(2)? as u16);
            let free = said.number(4)? as u32;
            ReserveOutcome::Granted {
                grant: grant(cell, at, fence, said.text()?)?,
                used,
                max,
                free,
            }
        }
        b"d" => {
            let (at, fence) = (slot(said.number(1)?)?, Fence(said.double()?));
            ReserveOutcome::Duplicate(grant(cell, at, fence, said.text()?)?)
        }
        b"s" => ReserveOutcome::Stale { held: Attempt(said.number(4)? as u32) },
        b"f" => ReserveOutcome::Full { capable: said.number(4)? as _, free: said.number(4)? as _ },
        b"n" => ReserveOutcome::NoneCapable,
        b"p" => {
            let (why, capabilities) = said.text()?.split_once(' ').unwrap_or_default();
            ReserveOutcome::PinLost(sets.why(&r.query, why, capabilities)?)
        }
        other => return Err(corrupt(&format!("a reservation that ended with {other:?}"))),
    })
}

fn grant(cell: CellId, slot: Slot, fence: Fence, entry: &str) -> Result<Grant> {
    let (epoch, node, via) = tenant(entry)?;
    Ok(Grant { node, cell, slot, epoch, fence, via })
}

/// Who is in a slot: `epoch name via`.
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

#[cfg(test)]
mod tests {
    use lingua_core::node::{COST_MS_MAX, SLOTS_MAX};

    #[test]
    fn the_scripts_have_the_bounds_of_the_core() {
        let text = include_str!("../scripts/prelude/nodes.lua");
        assert!(text.contains(&format!("COST_MS_MAX = {COST_MS_MAX}\n")));
        // Slots, a flag and a flexibility have to fit below the free slots, and these below the place of a node.
        let (free, slots_below, place) = (1_048_576, 2048, 4_294_967_296);
        let text = include_str!("../scripts/prelude/leases.lua");
        assert!(text.contains(&format!("FREE, MAX, MAX_BELOW = {free}, 512, {slots_below}\n")));
        assert!(include_str!("../scripts/reserve.lua").contains(&format!("PLACE = {place}\n")));
        let slots = u64::from(SLOTS_MAX);
        assert!(slots < slots_below);
        assert!(slots * 512 + 256 + 255 < free);
        assert!((slots + 1) * free <= place);
    }
}
