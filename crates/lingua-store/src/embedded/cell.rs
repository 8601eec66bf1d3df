//! One cell in memory: its nodes, their leases, and the roster that selects.
//!
//! Start at [`Cell::reserve`]: it selects a node and takes a lease. Time comes in as an argument;
//! the caller holds the cell's lock.
//!
//! Invariants: `used` of a node is the number of its leases, because [`Cell::insert_lease`] and
//! [`Cell::remove_lease`] are the only places that change either. A node never gets more leases
//! than slots. Every lease belongs to its node's present epoch. Fences rise strictly.

use std::sync::Arc;

use hashbrown::HashMap;
use lingua_core::job::{AttemptOutcome, Grant};
use lingua_core::planted::{self, Bug};
use lingua_core::roster::{Capacity, Choice, LIMIT_NEW, limit_after, limit_after_heartbeat};
use lingua_core::{
    CELL_NODES_MAX, CellId, Epoch, Fence, JobId, NodeId, NodeState, RejectReason, Roster, Rules,
    Slot,
};

use crate::contract::{
    CellRecord, Change, CommitReply, ExpiredLease, Freed, HeartbeatReply, HeartbeatRequest,
    KeptLeases, LapsedNode, LeaseKey, LeasePhase, LeaseRecord, NodeCommand, NodeCommandReply,
    NodeRecord, Place, REAP_BATCH, ReapReply, RegisterReply, RegisterRequest, ReserveOutcome,
    ReserveReply, ReserveRequest,
};

#[derive(Debug, Clone)]
pub(super) struct Cell {
    id: CellId,
    roster: Roster,
    /// By slot. `used` is in the roster only.
    nodes: Vec<Option<NodeRecord>>,
    /// The highest epoch of each slot: a lower one is refused, even when the node is gone.
    pub(super) epochs: [Epoch; CELL_NODES_MAX],
    leases: HashMap<JobId, LeaseRecord>,
    /// No lease expires before this. A lower bound is enough: it spares most calls the search.
    next_expiry_ms: u64,
    pub(super) fence: Fence,
    /// How long a node that signed off counts as capable.
    gone_ms: u64,
    /// How many drain and resume commands were carried out.
    drain_commands: u64,
    /// Nodes that were draining before a restart and have not registered since.
    pub(super) drain_on_return: Vec<(Slot, NodeId)>,
}

/// A reply, and the change of a node for the feed.
pub(super) type CellReply<T> = (T, Option<Change>);

impl Cell {
    pub(super) fn new(id: CellId, rules: Rules) -> Self {
        Self {
            id,
            roster: Roster::new(rules),
            nodes: Vec::new(),
            epochs: [Epoch(0); CELL_NODES_MAX],
            leases: HashMap::new(),
            next_expiry_ms: u64::MAX,
            fence: Fence(0),
            gone_ms: rules.gone_ms,
            drain_commands: 0,
            drain_on_return: Vec::new(),
        }
    }

    /// Selects a node and takes a slot on it.
    pub(super) fn reserve(&mut self, request: &ReserveRequest, now_ms: u64) -> ReserveReply {
        let mut expired = Vec::new();
        self.reap_leases(REAP_BATCH, now_ms, &mut expired);
        let LeaseKey { job, attempt } = request.key;
        if let Some(&held) = self.leases.get(&job) {
            if held.key.attempt >= attempt {
                let outcome = match held.key.attempt == attempt {
                    true => ReserveOutcome::Duplicate(self.grant_of(&held)),
                    false => ReserveOutcome::Stale { held: held.key.attempt },
                };
                return ReserveReply { outcome, expired };
            }
            self.remove_lease(job);
        }
        loop {
            let outcome = self.select_and_take(request, now_ms);
            let is_full = matches!(
                outcome,
                ReserveOutcome::Full { .. } | ReserveOutcome::PinLost(RejectReason::Full)
            );
            // An expired lease must not make a cell full: end some, then try again.
            if !is_full || !self.reap_leases(REAP_BATCH, now_ms, &mut expired) {
                return ReserveReply { outcome, expired };
            }
        }
    }

    fn select_and_take(&mut self, request: &ReserveRequest, now_ms: u64) -> ReserveOutcome {
        let mut choice = self.roster.choose(&request.query, now_ms, request.random);
        if let Some(pin) = request.pin {
            let admitted = match self.node(pin.slot) {
                Some(node) if node.place.epoch != pin.epoch => Err(RejectReason::Superseded),
                _ => self.roster.admits(pin.slot, &request.query, now_ms),
            };
            match admitted {
                Ok(()) => choice.slot = Some(pin.slot),
                Err(why) if pin.strict => return ReserveOutcome::PinLost(why),
                Err(_) => {}
            }
        }
        match choice.slot {
            Some(slot) => {
                let lease = self.insert_lease(request, slot, now_ms);
                let weight = self.roster.weight(slot);
                let counted = if self.roster.limit(slot) > 0 { weight } else { 0 };
                let free = choice.capacity.free - u64::from(counted);
                ReserveOutcome::Granted {
                    grant: self.grant_of(&lease),
                    used: self.roster.used(slot),
                    max: self.slots_max(slot),
                    free: choice.free - 1,
                    capacity: Capacity { free, ..choice.capacity },
                    weight,
                }
            }
            None if choice.capable == 0 => ReserveOutcome::NoneCapable,
            None => {
                let Choice { capable, free, capacity, .. } = choice;
                ReserveOutcome::Full { capable, free, capacity }
            }
        }
    }

    pub(super) fn commit(&mut self, key: LeaseKey, run_lease_ms: u64, now_ms: u64) -> CommitReply {
        match self.leases.get_mut(&key.job) {
            Some(lease) if lease.key == key => {
                lease.phase = LeasePhase::Committed;
                lease.deadline_ms = lease.deadline_ms.max(now_ms.saturating_add(run_lease_ms));
                CommitReply::Committed(lease.fence)
            }
            Some(_) => CommitReply::Stale,
            None => CommitReply::Gone,
        }
    }

    pub(super) fn finish(&mut self, key: LeaseKey, outcome: AttemptOutcome) -> Option<Freed> {
        let lease = self.leases.get(&key.job)?;
        if lease.key != key && !planted::is(Bug::FinishIgnoresAttempt) {
            return None;
        }
        let slot = self.remove_lease(key.job)?.slot;
        let max = self.slots_max(slot);
        self.roster.set_limit(slot, limit_after(self.roster.limit(slot), outcome, max));
        Some(Freed { slot, used: self.roster.used(slot), max })
    }

    pub(super) fn register(&mut self, r: RegisterRequest, now_ms: u64) -> CellReply<RegisterReply> {
        let (slot, i) = (r.place.slot, r.place.slot.index());
        let known = self.epochs[i];
        let old = self.node(slot);
        let same = old.filter(|old| old.place == r.place && old.node == r.node);
        let is_online = same.is_some_and(|old| old.state != NodeState::Offline);
        if r.place.epoch <= known && !is_online {
            return (RegisterReply::Stale { current: known }, None);
        }
        // A drain command survives the node's reconnect, but not the node.
        let mut drain_ordered = old.is_some_and(|old| old.node == r.node && old.drain_ordered);
        let is_same = same.is_some();
        let keep = match old {
            Some(old) if old.node == r.node => r.keep,
            _ => KeptLeases::NONE,
        };
        let load = same.map(|old| old.load).unwrap_or_default();
        let is_back = old.is_some_and(|old| old.fresh_until_ms < now_ms)
            && !planted::is(Bug::SilentReturnNotAnnounced);
        let before = old.map(|old| (old.place.epoch, old.state, Arc::clone(&old.profile)));
        // What was learned of a node survives its reconnect, at whichever instance.
        let before_it = old.filter(|old| old.node == r.node);
        let learned = before_it.map(|old| old.speed).filter(|speed| speed.jobs > 0);
        let speed = learned.filter(|_| r.speed.jobs == 0).unwrap_or(r.speed);
        let limit = before_it.map_or(LIMIT_NEW, |_| limit_after_heartbeat(self.roster.limit(slot)));
        if let Some(at) = self.drain_on_return.iter().position(|(drained, _)| *drained == slot) {
            drain_ordered |= self.drain_on_return.swap_remove(at).1 == r.node;
        }
        let lost = if is_same { vec![] } else { self.move_leases(slot, r.place.epoch, &keep) };
        let node = NodeRecord {
            limit: limit.min(r.profile.slots_max()),
            node: r.node,
            place: r.place,
            profile: r.profile,
            health: r.health,
            state: NodeState::of(r.health, drain_ordered),
            drain_ordered,
            load,
            speed,
            used: self.roster.used(slot),
            heartbeat_ms: now_ms,
            fresh_until_ms: now_ms.saturating_add(r.fresh_ms),
            version: r.version,
            via: r.via,
        };
        let after = (node.place.epoch, node.state, Arc::clone(&node.profile));
        let is_change = is_back || before != Some(after);
        let change = is_change.then(|| node_change(node.node.clone(), node.place));
        node.enroll(&mut self.roster);
        if self.nodes.len() <= i {
            self.nodes.resize(i + 1, None);
        }
        self.nodes[i] = Some(node);
        self.epochs[i] = r.place.epoch;
        (RegisterReply::Registered { lost, speed }, change)
    }

    pub(super) fn heartbeat(
        &mut self,
        request: HeartbeatRequest,
        now_ms: u64,
    ) -> CellReply<HeartbeatReply> {
        let Place { slot, epoch, .. } = request.place;
        let found = match planted::is(Bug::HeartbeatIgnoresEpoch) {
            false => current(&mut self.nodes, request.place),
            true => self.nodes.get_mut(slot.index()).and_then(Option::as_mut),
        };
        let Some(node) = found.filter(|node| node.state != NodeState::Offline) else {
            return (HeartbeatReply::Reregister, None);
        };
        let before = node.state;
        // Instances may have read that no node here can do a job.
        let is_back = node.fresh_until_ms < now_ms && !planted::is(Bug::SilentReturnNotAnnounced);
        node.health = request.health.unwrap_or(node.health);
        node.state = NodeState::of(node.health, node.drain_ordered);
        node.load = request.load.unwrap_or(node.load);
        node.speed = request.speed.unwrap_or(node.speed);
        node.heartbeat_ms = now_ms;
        node.fresh_until_ms = now_ms.saturating_add(request.fresh_ms);
        let (state, drain, id) = (node.state, node.drain_ordered, node.node.clone());
        self.roster.set_load(slot, node.load);
        self.roster.set_cost(slot, node.speed.cost_ms);
        self.roster.set_limit(slot, limit_after_heartbeat(self.roster.limit(slot)));
        self.roster.refresh(slot, node.fresh_until_ms);
        if state != before {
            self.roster.set_state(slot, state);
        }
        let deadline_ms = now_ms.saturating_add(request.lease_ms);
        if planted::is(Bug::CellAdopts) {
            self.adopt(&request, deadline_ms);
        }
        let mut unknown = Vec::new();
        for key in request.running {
            let lease = self.leases.get_mut(&key.job);
            match lease.filter(|l| (l.key, l.slot, l.epoch) == (key, slot, epoch)) {
                Some(lease) => lease.deadline_ms = lease.deadline_ms.max(deadline_ms),
                None => unknown.push(key),
            }
        }
        let change = (is_back || state != before).then(|| node_change(id, request.place));
        (HeartbeatReply::Accepted { drain, unknown }, change)
    }

    /// A planted bug: a cell cannot know whether the owner still wants the attempt.
    fn adopt(&mut self, request: &HeartbeatRequest, deadline_ms: u64) {
        let Place { slot, epoch, .. } = request.place;
        for &key in &request.running {
            let is_known = self.leases.contains_key(&key.job);
            if !is_known && self.roster.used(slot) < self.slots_max(slot) {
                let (phase, fence) = (LeasePhase::Committed, self.fence);
                let lease = LeaseRecord { key, slot, epoch, phase, fence, deadline_ms };
                self.leases.insert(key.job, lease);
                self.roster.set_used(slot, self.roster.used(slot) + 1);
            }
        }
    }

    pub(super) fn set_state(
        &mut self,
        place: Place,
        command: NodeCommand,
        now_ms: u64,
    ) -> CellReply<NodeCommandReply> {
        let Some(node) = current(&mut self.nodes, place) else {
            return (NodeCommandReply::Stale, None);
        };
        let before = node.state;
        match command {
            NodeCommand::Drain | NodeCommand::Resume => {
                node.drain_ordered = command == NodeCommand::Drain;
                self.drain_commands += 1;
                if before != NodeState::Offline {
                    node.state = NodeState::of(node.health, node.drain_ordered);
                }
            }
            NodeCommand::Offline | NodeCommand::Retire => node.state = NodeState::Offline,
        }
        let (state, id) = (node.state, node.node.clone());
        if state == NodeState::Offline && before != NodeState::Offline {
            node.fresh_until_ms = now_ms.saturating_add(self.gone_ms);
            self.roster.refresh(place.slot, node.fresh_until_ms);
        }
        self.roster.set_state(place.slot, state);
        let is_offline = state == NodeState::Offline;
        let lost = if is_offline { self.remove_leases_of(place.slot) } else { vec![] };
        if command == NodeCommand::Retire {
            self.roster.remove(place.slot);
            self.nodes[place.slot.index()] = None;
        }
        let is_change = state != before || command == NodeCommand::Retire;
        let change = is_change.then(|| node_change(id, place));
        (NodeCommandReply::Set { lost }, change)
    }

    /// The node that has just got this command, and the command's number, if it is one to drain or
    /// to resume.
    pub(super) fn last_drain_command(
        &mut self,
        place: Place,
        command: NodeCommand,
    ) -> Option<(NodeId, u64)> {
        let is_drain = matches!(command, NodeCommand::Drain | NodeCommand::Resume);
        let node = current(&mut self.nodes, place).filter(|_| is_drain)?;
        Some((node.node.clone(), self.drain_commands))
    }

    pub(super) fn reap(&mut self, limit: usize, now_ms: u64) -> ReapReply {
        let mut expired = Vec::new();
        self.reap_leases(limit, now_ms, &mut expired);
        let lapsed = self.nodes.iter().flatten().filter(|node| node.fresh_until_ms < now_ms);
        let lapsed = lapsed.map(|node| LapsedNode {
            node: node.node.clone(),
            place: node.place,
            state: node.state,
            for_ms: now_ms - node.fresh_until_ms,
        });
        ReapReply { lapsed: lapsed.collect(), expired }
    }

    pub(super) fn view(&self, now_ms: u64) -> CellRecord {
        let node_record = |node: &NodeRecord| {
            let (used, limit) =
                (self.roster.used(node.place.slot), self.roster.limit(node.place.slot));
            NodeRecord { used, limit, ..node.clone() }
        };
        let nodes = self.nodes.iter().flatten().map(node_record).collect();
        let mut leases: Vec<LeaseRecord> = self.leases.values().copied().collect();
        leases.sort_unstable_by_key(|lease| lease.key);
        CellRecord { cell: self.id, now_ms, nodes, leases }
    }

    fn node(&self, slot: Slot) -> Option<&NodeRecord> {
        self.nodes.get(slot.index())?.as_ref()
    }

    fn slots_max(&self, slot: Slot) -> u16 {
        self.node(slot).map_or(0, |node| node.profile.slots_max())
    }

    fn grant_of(&self, lease: &LeaseRecord) -> Grant {
        let node = self.node(lease.slot).expect("a lease ends with its node");
        Grant {
            node: node.node.clone(),
            cell: self.id,
            slot: lease.slot,
            epoch: lease.epoch,
            fence: lease.fence,
            via: node.via.clone(),
        }
    }

    fn insert_lease(&mut self, request: &ReserveRequest, slot: Slot, now_ms: u64) -> LeaseRecord {
        self.fence = self.fence.after(now_ms * 1000);
        let lease = LeaseRecord {
            key: request.key,
            slot,
            epoch: self.epochs[slot.index()],
            phase: LeasePhase::Reserved,
            fence: self.fence,
            deadline_ms: now_ms.saturating_add(request.ack_lease_ms),
        };
        let replaced = self.leases.insert(request.key.job, lease);
        debug_assert!(replaced.is_none(), "a job has one lease");
        self.next_expiry_ms = self.next_expiry_ms.min(lease.deadline_ms);
        self.roster.set_used(slot, self.roster.used(slot) + 1);
        lease
    }

    fn remove_lease(&mut self, job: JobId) -> Option<LeaseRecord> {
        let lease = self.leases.remove(&job)?;
        self.roster.set_used(lease.slot, self.roster.used(lease.slot) - 1);
        Some(lease)
    }

    fn remove_leases_of(&mut self, slot: Slot) -> Vec<LeaseKey> {
        let of_slot = self.leases.values().filter(|lease| lease.slot == slot);
        let mut lost: Vec<LeaseKey> = of_slot.map(|lease| lease.key).collect();
        lost.sort_unstable();
        for key in &lost {
            self.remove_lease(key.job);
        }
        lost
    }

    /// Moves the leases of a slot that are kept to a new epoch and ends the others.
    fn move_leases(&mut self, slot: Slot, epoch: Epoch, keep: &KeptLeases) -> Vec<LeaseKey> {
        let mut lost = Vec::new();
        for lease in self.leases.values_mut().filter(|lease| lease.slot == slot) {
            match keep {
                KeptLeases::Only(kept) if !kept.contains(&lease.key) => lost.push(lease.key),
                _ => lease.epoch = epoch,
            }
        }
        lost.sort_unstable();
        for key in &lost {
            self.remove_lease(key.job);
        }
        lost
    }

    /// Ends up to `limit` expired leases, oldest first. False if there were none.
    fn reap_leases(&mut self, limit: usize, now_ms: u64, expired: &mut Vec<ExpiredLease>) -> bool {
        if now_ms <= self.next_expiry_ms || limit == 0 {
            return false;
        }
        let mut due: Vec<(u64, JobId)> = Vec::new();
        let mut next_expiry_ms = u64::MAX;
        for (&job, lease) in &self.leases {
            let stays =
                lease.phase == LeasePhase::Committed && planted::is(Bug::CommittedNeverExpires);
            if lease.deadline_ms < now_ms && !stays {
                due.push((lease.deadline_ms, job));
            } else {
                next_expiry_ms = next_expiry_ms.min(lease.deadline_ms);
            }
        }
        due.sort_unstable();
        self.next_expiry_ms =
            due.get(limit).map_or(next_expiry_ms, |&(deadline_ms, _)| deadline_ms);
        due.truncate(limit);
        for &(_, job) in &due {
            if let Some(lease) = self.remove_lease(job) {
                if planted::is(Bug::ExpiredSlotStaysCounted) {
                    self.roster.set_used(lease.slot, self.roster.used(lease.slot) + 1);
                }
                let LeaseRecord { key, slot, phase, .. } = lease;
                expired.push(ExpiredLease { key, slot, phase });
            }
        }
        !due.is_empty()
    }
}

fn node_change(node: NodeId, Place { cell, slot, epoch }: Place) -> Change {
    Change::Node { cell, slot, epoch, node }
}

/// The node in this place, if it is this incarnation.
fn current(nodes: &mut [Option<NodeRecord>], place: Place) -> Option<&mut NodeRecord> {
    nodes.get_mut(place.slot.index())?.as_mut().filter(|node| node.place.epoch == place.epoch)
}
