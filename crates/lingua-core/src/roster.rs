//! The nodes of one cell, and the choice of one of them.
//!
//! Start at [`Roster::choose`] in `select.rs`. A roster holds one small record for each node, and
//! sets of slots for everything that is true or false of a node; a choice intersects the sets and
//! scores the nodes that are left. The owner of a roster (a store, the simulation) keeps it up to
//! date and counts the leases.
//!
//! | file | what it holds |
//! |---|---|
//! | `select.rs` | the choice of a node: sieve, rank, take |
//! | `policy.rs` | the policies and their names |
//! | `query.rs` | what a job asks for, and the reasons to reject a node |
//! | `index.rs` | which nodes recognise, repair, translate and speak what |
//! | `explain.rs` | the same steps as `select.rs`, written down for people |
//!
//! Invariants: enrolling and removing a node costs time linear in its languages, a heartbeat
//! constant time. Time and random numbers come in as arguments.

use std::sync::Arc;

use crate::id::{CELL_NODES_MAX, Slot};
use crate::job::AttemptOutcome;
use crate::node::{COST_MS_MAX, Load, NodeState, Profile, Resource, Rules};
use crate::slot_set::SlotSet;

mod explain;
mod index;
mod policy;
mod query;
mod select;
#[cfg(test)]
mod tests;

pub use explain::{Explanation, NodeVerdict};
pub use policy::Policy;
pub use query::{Query, RejectReason};
pub use select::{
    BAND_PERCENT, CONTENTION_PERCENT, Capacity, Choice, FLEXIBLE_FROM, KEPT_PERCENT, RANDOM_FACTOR,
    RANDOM_MODULUS, SHARE_UNIT, SPARED_PERCENT, WEIGHT_UNIT, slot_weight,
};

use index::Index;

/// The nodes of one cell.
#[derive(Debug, Clone, Default)]
pub struct Roster {
    rules: Rules,
    index: Index,
    records: Vec<Record>,
    /// Until when each node's last heartbeat counts. A choice seldom looks at it.
    fresh_until_ms: Vec<u64>,
    profiles: Vec<Option<Arc<Profile>>>,
    /// Slots with a node in them.
    enrolled: SlotSet,
    /// Nodes in each [`NodeState`].
    in_state: [SlotSet; NodeState::ALL.len()],
    /// Nodes that have too little left of each [`Resource`].
    overloaded: [SlotSet; Resource::ALL.len()],
    /// Nodes with used < max.
    free: SlotSet,
    /// Nodes with used ≥ limit.
    at_limit: SlotSet,
    /// Nodes of each flexibility that occurs, least flexible first.
    by_flexibility: Vec<(u8, SlotSet)>,
    /// Until when every node's last heartbeat counts: no node is stale before.
    all_fresh_until_ms: u64,
}

/// What every choice looks at: 16 bytes, so that a cell's nodes fit into 25 cache lines.
#[derive(Debug, Clone, Copy, Default)]
struct Record {
    cost_ms: u32,
    /// What one of its slots counts in a [`Capacity`]; follows from the cost.
    weight: u32,
    used: u16,
    max: u16,
    limit: u16,
    flexibility: u8,
}

/// What changes about a node while it is registered, for [`Roster::enroll`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeStatus {
    /// Whether the node takes jobs.
    pub state: NodeState,
    /// Until when its last heartbeat counts.
    pub fresh_until_ms: u64,
    /// How busy it says it is.
    pub load: Load,
    /// How long a job takes on it when it does nothing else.
    pub cost_ms: u32,
    /// How many leases it has.
    pub used: u16,
    /// With this many leases it gets more only if no other node is left: see [`limit_after`].
    pub limit: u16,
}

/// The limit of a node that has just come.
pub const LIMIT_NEW: u16 = 1;

/// A node's limit after an attempt on it: twice as much after a success, half after a failure. So
/// a new node starts slowly and a failing one gets little, until its next heartbeat gives it
/// another chance ([`limit_after_heartbeat`]).
pub fn limit_after(limit: u16, outcome: AttemptOutcome, slots_max: u16) -> u16 {
    match outcome {
        AttemptOutcome::Succeeded => limit.saturating_mul(2).clamp(1, slots_max),
        AttemptOutcome::Failed => limit / 2,
        AttemptOutcome::Unknown => limit,
    }
}

/// A node's limit after a heartbeat.
pub fn limit_after_heartbeat(limit: u16) -> u16 {
    limit.max(1)
}

impl Roster {
    /// An empty cell.
    pub fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Puts a node into a slot and replaces the one before.
    pub fn enroll(&mut self, slot: Slot, profile: Arc<Profile>, status: NodeStatus) {
        let i = slot.index();
        if self.records.len() <= i {
            debug_assert!(i < CELL_NODES_MAX);
            self.records.resize(i + 1, Record::default());
            self.fresh_until_ms.resize(i + 1, 0);
            self.profiles.resize(i + 1, None);
        }
        // A heartbeat that repeats the capabilities must not touch the index.
        let unchanged = self.profiles[i].as_ref().is_some_and(|old| **old == *profile);
        if !unchanged {
            if let Some(old) = self.profiles[i].take() {
                self.index.set(slot, &old, self.rules.semantic, false);
            }
            self.index.set(slot, &profile, self.rules.semantic, true);
        }
        if self.enrolled.contains(slot) {
            self.leave_level(slot);
        }
        self.records[i].max = profile.slots_max();
        self.records[i].flexibility = profile.flexibility(self.rules.semantic);
        self.profiles[i] = Some(profile);
        self.enrolled.insert(slot);
        self.join_level(slot);
        self.set_state(slot, status.state);
        self.refresh(slot, status.fresh_until_ms);
        self.set_load(slot, status.load);
        self.set_cost(slot, status.cost_ms);
        self.set_used(slot, status.used);
        self.set_limit(slot, status.limit);
    }

    /// Removes the node from a slot.
    pub fn remove(&mut self, slot: Slot) {
        let Some(old) = self.profiles.get_mut(slot.index()).and_then(Option::take) else { return };
        self.index.set(slot, &old, self.rules.semantic, false);
        self.leave_level(slot);
        self.records[slot.index()] = Record::default();
        self.fresh_until_ms[slot.index()] = 0;
        self.enrolled.remove(slot);
        self.free.remove(slot);
        self.at_limit.remove(slot);
        self.in_state.iter_mut().chain(&mut self.overloaded).for_each(|set| set.remove(slot));
    }

    /// The profile of the node in this slot.
    pub fn profile(&self, slot: Slot) -> Option<&Arc<Profile>> {
        self.profiles.get(slot.index())?.as_ref()
    }

    /// How many leases the node in this slot has.
    pub fn used(&self, slot: Slot) -> u16 {
        self.records.get(slot.index()).map_or(0, |record| record.used)
    }

    /// Sets the state of the node.
    pub fn set_state(&mut self, slot: Slot, state: NodeState) {
        for (set, of) in self.in_state.iter_mut().zip(NodeState::ALL) {
            set.set(slot, of == state);
        }
    }

    /// Sets until when the node's last heartbeat counts.
    pub fn refresh(&mut self, slot: Slot, fresh_until_ms: u64) {
        self.fresh_until_ms[slot.index()] = fresh_until_ms;
        let all = self.enrolled.iter().map(|slot| self.fresh_until_ms[slot.index()]);
        self.all_fresh_until_ms = all.min().unwrap_or(u64::MAX);
    }

    /// Sets how busy the node is.
    pub fn set_load(&mut self, slot: Slot, load: Load) {
        for (set, resource) in self.overloaded.iter_mut().zip(Resource::ALL) {
            set.set(slot, self.rules.thresholds.exceeded(load, resource));
        }
    }

    /// Sets how long a job takes on the node when it does nothing else.
    pub fn set_cost(&mut self, slot: Slot, cost_ms: u32) {
        let record = &mut self.records[slot.index()];
        record.cost_ms = cost_ms.clamp(1, COST_MS_MAX);
        record.weight = slot_weight(record.cost_ms);
    }

    /// Sets how many leases the node has.
    pub fn set_used(&mut self, slot: Slot, used: u16) {
        let record = &mut self.records[slot.index()];
        record.used = used;
        self.free.set(slot, used < record.max);
        self.at_limit.set(slot, used >= record.limit);
    }

    /// The leases from which on the node gets more only if no other is left.
    pub fn limit(&self, slot: Slot) -> u16 {
        self.records.get(slot.index()).map_or(0, |record| record.limit)
    }

    /// Sets that number.
    pub fn set_limit(&mut self, slot: Slot, limit: u16) {
        let record = &mut self.records[slot.index()];
        record.limit = limit;
        self.at_limit.set(slot, record.used >= limit);
    }

    /// What a slot of the node counts in a [`Capacity`].
    pub fn weight(&self, slot: Slot) -> u32 {
        self.records.get(slot.index()).map_or(0, |record| record.weight)
    }

    fn join_level(&mut self, slot: Slot) {
        let level = self.records[slot.index()].flexibility;
        match self.by_flexibility.binary_search_by_key(&level, |&(level, _)| level) {
            Ok(at) => self.by_flexibility[at].1.insert(slot),
            Err(at) => self.by_flexibility.insert(at, (level, SlotSet::from_iter([slot]))),
        }
    }

    fn leave_level(&mut self, slot: Slot) {
        self.by_flexibility.iter_mut().for_each(|(_, nodes)| nodes.remove(slot));
        self.by_flexibility.retain(|(_, nodes)| !nodes.is_empty());
    }
}
