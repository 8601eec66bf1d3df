//! One cell in memory: nodes, their leases, and the roster that chooses.
//!
//! Start at [`Cell::reserve`]. Time comes in as an argument; whoever calls holds the cell's lock.
//!
//! Invariants: `used` of a node is the number of its leases, because [`Cell::grant_lease`] and
//! [`Cell::end_lease`] are the only places that change either; a node never gets a lease beyond
//! its slots; every lease is of its node's present epoch; fences rise strictly.

use std::cmp::Ordering;
use std::sync::Arc;

use hashbrown::HashMap;
use lingua_core::job::Grant;
use lingua_core::planted::{self, Bug};
use lingua_core::roster::NodeStatus;
use lingua_core::{
    Attempt, CELL_NODES_MAX, CellId, Epoch, Fence, Health, InstanceId, JobId, Load, NodeId,
    NodeState, RejectReason, Roster, Rules, Slot,
};

use crate::contract::{
    CellRecord, CommitReply, ExpiredLease, Freed, HeartbeatReply, HeartbeatRequest, LapsedNode,
    LeaseKey, LeasePhase, LeaseRecord, NodeCommand, NodeCommandReply, NodeRecord, Place,
    REAP_BATCH, ReapReply, RegisterReply, RegisterRequest, ReserveOutcome, ReserveReply,
    ReserveRequest,
};

#[derive(Debug, Clone)]
pub(super) struct Cell {
    id: CellId,
    roster: Roster,
    nodes: Vec<Option<Node>>,
    /// The highest epoch ever seen in each slot: what is older is refused, even when the node is
    /// gone.
    epochs: [Epoch; CELL_NODES_MAX],
    leases: HashMap<JobId, Lease>,
    /// No lease ends before this. A lower bound is enough: it spares most calls the search.
    none_ends_before_ms: u64,
    fence: Fence,
    /// How many orders of operators were carried out.
    orders: u64,
    /// Nodes that a former life ordered to drain and that have not come back yet.
    drained_before: Vec<(Slot, NodeId)>,
}

#[derive(Debug, Clone)]
struct Node {
    id: NodeId,
    epoch: Epoch,
    health: Health,
    drain_ordered: bool,
    offline: bool,
    load: Load,
    cost_ms: u32,
    heartbeat_ms: u64,
    fresh_until_ms: u64,
    version: Option<Arc<str>>,
    via: InstanceId,
}

impl Node {
    fn state(&self) -> NodeState {
        match self.offline {
            true => NodeState::Offline,
            false => NodeState::of(self.health, self.drain_ordered),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    slot: Slot,
    epoch: Epoch,
    attempt: Attempt,
    phase: LeasePhase,
    fence: Fence,
    deadline_ms: u64,
}

/// A reply, and whether others want to hear of the change.
pub(super) struct Changed<T> {
    pub(super) reply: T,
    /// The node that is different now.
    pub(super) node: Option<(NodeId, Place)>,
}

impl Cell {
    pub(super) fn new(id: CellId, rules: Rules) -> Self {
        Self {
            id,
            roster: Roster::new(rules),
            nodes: Vec::new(),
            epochs: [Epoch(0); CELL_NODES_MAX],
            leases: HashMap::new(),
            none_ends_before_ms: u64::MAX,
            fence: Fence(0),
            orders: 0,
            drained_before: Vec::new(),
        }
    }

    /// Goes on above what an earlier life may have given: fences, and epochs in every slot.
    pub(super) fn resume(&mut self, fence: Fence, epoch: Epoch) {
        self.fence = fence;
        self.epochs = [epoch; CELL_NODES_MAX];
    }

    /// Orders a node to drain as soon as it comes back.
    pub(super) fn drain_on_return(&mut self, slot: Slot, node: NodeId) {
        self.drained_before.push((slot, node));
    }

    /// Refuses the epochs of a slot's former tenants, and no later one.
    pub(super) fn refuse_up_to(&mut self, slot: Slot, epoch: Epoch) {
        self.epochs[slot.index()] = epoch;
    }

    pub(super) fn register(&mut self, r: RegisterRequest, now_ms: u64) -> Changed<RegisterReply> {
        let i = r.place.slot.index();
        let known = self.epochs[i];
        let old = self.nodes.get_mut(i).and_then(Option::take);
        let same = old.as_ref().is_some_and(|n| n.epoch == r.place.epoch && n.id == r.node);
        let alive = old.as_ref().is_some_and(|n| !n.offline);
        if r.place.epoch <= known && !(same && alive) {
            if let Some(old) = old {
                self.nodes[i] = Some(old);
            }
            return Changed { reply: RegisterReply::Stale { current: known }, node: None };
        }
        let lost = if same { vec![] } else { self.end_leases_of(r.place.slot) };
        // An operator's order outlives the node's reconnect, but not the node.
        let mut drain_ordered = old.as_ref().is_some_and(|n| n.id == r.node && n.drain_ordered);
        if let Some(at) = self.drained_before.iter().position(|(slot, _)| *slot == r.place.slot) {
            drain_ordered |= self.drained_before.swap_remove(at).1 == r.node;
        }
        let before = old.as_ref().map(|n| (n.epoch, n.state()));
        let node = Node {
            id: r.node.clone(),
            epoch: r.place.epoch,
            health: r.health,
            drain_ordered,
            offline: false,
            load: old.filter(|_| same).map(|n| n.load).unwrap_or_default(),
            cost_ms: r.cost_ms,
            heartbeat_ms: now_ms,
            fresh_until_ms: now_ms.saturating_add(r.fresh_ms),
            version: r.version,
            via: r.via,
        };
        let is_news = before != Some((node.epoch, node.state()))
            || self.roster.profile(r.place.slot).is_none_or(|known| **known != *r.profile);
        let standing = NodeStatus {
            state: node.state(),
            fresh_until_ms: node.fresh_until_ms,
            load: node.load,
            cost_ms: node.cost_ms,
            used: self.roster.used(r.place.slot),
        };
        self.roster.enroll(r.place.slot, Arc::clone(&r.profile), standing);
        if self.nodes.len() <= i {
            self.nodes.resize_with(i + 1, || None);
        }
        self.nodes[i] = Some(node);
        self.epochs[i] = r.place.epoch;
        let node = is_news.then_some((r.node, r.place));
        Changed { reply: RegisterReply::Registered { lost }, node }
    }

    pub(super) fn heartbeat(
        &mut self,
        beat: HeartbeatRequest,
        now_ms: u64,
    ) -> Changed<HeartbeatReply> {
        let slot = beat.place.slot;
        let found = match planted::is(Bug::HeartbeatIgnoresEpoch) {
            false => current(&mut self.nodes, beat.place),
            true => self.nodes.get_mut(slot.index()).and_then(Option::as_mut),
        };
        let Some(node) = found.filter(|node| !node.offline) else {
            return Changed { reply: HeartbeatReply::Reregister, node: None };
        };
        let before = node.state();
        node.health = beat.health.unwrap_or(node.health);
        node.load = beat.load;
        node.cost_ms = beat.cost_ms.unwrap_or(node.cost_ms);
        node.heartbeat_ms = now_ms;
        node.fresh_until_ms = now_ms.saturating_add(beat.fresh_ms);
        let (state, drain, id) = (node.state(), node.drain_ordered, node.id.clone());
        self.roster.set_load(slot, beat.load);
        self.roster.set_cost(slot, node.cost_ms);
        self.roster.refresh(slot, node.fresh_until_ms);
        if state != before {
            self.roster.set_state(slot, state);
        }
        let deadline_ms = now_ms.saturating_add(beat.lease_ms);
        if planted::is(Bug::CellAdopts) {
            self.adopt(&beat, deadline_ms);
        }
        let mut unknown = Vec::new();
        for key in beat.running {
            match self.leases.get_mut(&key.job) {
                Some(l)
                    if l.attempt == key.attempt
                        && l.slot == slot
                        && l.epoch == beat.place.epoch =>
                {
                    l.deadline_ms = l.deadline_ms.max(deadline_ms);
                }
                _ => unknown.push(key),
            }
        }
        let reply = HeartbeatReply::Accepted { drain, unknown };
        Changed { reply, node: (state != before).then_some((id, beat.place)) }
    }

    /// What a cell must not do: it cannot know whether the owner still wants the attempt.
    fn adopt(&mut self, beat: &HeartbeatRequest, deadline_ms: u64) {
        let (slot, epoch) = (beat.place.slot, beat.place.epoch);
        for &LeaseKey { job, attempt } in &beat.running {
            if !self.leases.contains_key(&job) && self.roster.used(slot) < self.slots_max(slot) {
                let (phase, fence) = (LeasePhase::Committed, self.fence);
                self.leases.insert(job, Lease { slot, epoch, attempt, phase, fence, deadline_ms });
                self.roster.set_used(slot, self.roster.used(slot) + 1);
            }
        }
    }

    pub(super) fn set_state(
        &mut self,
        place: Place,
        order: NodeCommand,
    ) -> Changed<NodeCommandReply> {
        let Some(node) = current(&mut self.nodes, place) else {
            return Changed { reply: NodeCommandReply::Stale, node: None };
        };
        let before = node.state();
        match order {
            NodeCommand::Drain | NodeCommand::Resume => {
                node.drain_ordered = order == NodeCommand::Drain;
                self.orders += 1;
            }
            NodeCommand::Offline | NodeCommand::Retire => node.offline = true,
        }
        let (state, id) = (node.state(), node.id.clone());
        self.roster.set_state(place.slot, state);
        let lost = if node.offline { self.end_leases_of(place.slot) } else { vec![] };
        if order == NodeCommand::Retire {
            self.roster.remove(place.slot);
            self.nodes[place.slot.index()] = None;
        }
        let is_news = state != before || order == NodeCommand::Retire;
        Changed { reply: NodeCommandReply::Set { lost }, node: is_news.then_some((id, place)) }
    }

    /// The node in a slot, and the number of the order that was carried out last.
    pub(super) fn last_order(&self, slot: Slot) -> Option<(NodeId, u64)> {
        let node = self.nodes.get(slot.index())?.as_ref()?;
        Some((node.id.clone(), self.orders))
    }

    pub(super) fn reserve(&mut self, request: &ReserveRequest, now_ms: u64) -> ReserveReply {
        let mut expired = Vec::new();
        self.reap_leases(REAP_BATCH, now_ms, &mut expired);
        let LeaseKey { job, attempt } = request.key;
        if let Some(&held) = self.leases.get(&job) {
            match held.attempt.cmp(&attempt) {
                Ordering::Equal => {
                    let outcome = ReserveOutcome::Duplicate(self.grant_of(&held));
                    return ReserveReply { outcome, expired };
                }
                Ordering::Greater => {
                    let outcome = ReserveOutcome::Stale { held: held.attempt };
                    return ReserveReply { outcome, expired };
                }
                Ordering::Less => drop(self.end_lease(job)),
            }
        }
        loop {
            let outcome = self.choose_and_take(request, now_ms);
            let no_room = matches!(
                outcome,
                ReserveOutcome::Full { .. } | ReserveOutcome::PinLost(RejectReason::Full)
            );
            // A slot that is held by a dead lease is not taken: clean up before saying no.
            if !no_room || !self.reap_leases(REAP_BATCH, now_ms, &mut expired) {
                return ReserveReply { outcome, expired };
            }
        }
    }

    fn choose_and_take(&mut self, request: &ReserveRequest, now_ms: u64) -> ReserveOutcome {
        let mut choice = self.roster.choose(&request.query, now_ms, request.random);
        if let Some(pin) = request.pin {
            let node = self.nodes.get(pin.slot.index()).and_then(Option::as_ref);
            let admitted = match node {
                Some(node) if node.epoch != pin.epoch => Err(RejectReason::Superseded),
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
                let lease = self.grant_lease(request, slot, now_ms);
                let used = self.roster.used(slot);
                let max = self.slots_max(slot);
                ReserveOutcome::Granted {
                    grant: self.grant_of(&lease),
                    used,
                    max,
                    free: choice.free - 1,
                }
            }
            None if choice.capable == 0 => ReserveOutcome::NoneCapable,
            None => ReserveOutcome::Full { capable: choice.capable, free: choice.free },
        }
    }

    pub(super) fn commit(&mut self, key: LeaseKey, run_lease_ms: u64, now_ms: u64) -> CommitReply {
        match self.leases.get_mut(&key.job) {
            Some(lease) if lease.attempt == key.attempt => {
                lease.phase = LeasePhase::Committed;
                lease.deadline_ms = lease.deadline_ms.max(now_ms.saturating_add(run_lease_ms));
                CommitReply::Committed(lease.fence)
            }
            Some(_) => CommitReply::Stale,
            None => CommitReply::Gone,
        }
    }

    pub(super) fn finish(&mut self, key: LeaseKey) -> Option<Freed> {
        let is_it =
            |lease: &&Lease| lease.attempt == key.attempt || planted::is(Bug::FinishIgnoresAttempt);
        self.leases.get(&key.job).filter(is_it)?;
        let slot = self.end_lease(key.job)?.slot;
        Some(Freed { slot, used: self.roster.used(slot), max: self.slots_max(slot) })
    }

    pub(super) fn reap(&mut self, limit: usize, now_ms: u64) -> ReapReply {
        let mut reaped = ReapReply::default();
        self.reap_leases(limit, now_ms, &mut reaped.expired);
        for (node, slot) in self.nodes_by_slot() {
            if node.fresh_until_ms < now_ms {
                reaped.lapsed.push(LapsedNode {
                    node: node.id.clone(),
                    place: Place { cell: self.id, slot, epoch: node.epoch },
                    state: node.state(),
                    for_ms: now_ms - node.fresh_until_ms,
                });
            }
        }
        reaped
    }

    pub(super) fn view(&self, now_ms: u64) -> CellRecord {
        let node_view = |(node, slot): (&Node, Slot)| {
            Some(NodeRecord {
                node: node.id.clone(),
                place: Place { cell: self.id, slot, epoch: node.epoch },
                profile: Arc::clone(self.roster.profile(slot)?),
                health: node.health,
                state: node.state(),
                drain_ordered: node.drain_ordered,
                load: node.load,
                cost_ms: node.cost_ms,
                used: self.roster.used(slot),
                heartbeat_ms: node.heartbeat_ms,
                fresh_until_ms: node.fresh_until_ms,
                version: node.version.clone(),
                via: node.via.clone(),
            })
        };
        let lease_view = |(&job, lease): (&JobId, &Lease)| LeaseRecord {
            key: LeaseKey { job, attempt: lease.attempt },
            slot: lease.slot,
            epoch: lease.epoch,
            phase: lease.phase,
            fence: lease.fence,
            deadline_ms: lease.deadline_ms,
        };
        let mut leases: Vec<LeaseRecord> = self.leases.iter().map(lease_view).collect();
        leases.sort_unstable_by_key(|lease| lease.key);
        let nodes = self.nodes_by_slot().filter_map(node_view).collect();
        CellRecord { cell: self.id, now_ms, nodes, leases }
    }

    fn nodes_by_slot(&self) -> impl Iterator<Item = (&Node, Slot)> {
        self.nodes.iter().enumerate().filter_map(|(i, node)| Some((node.as_ref()?, Slot::new(i)?)))
    }

    fn slots_max(&self, slot: Slot) -> u16 {
        self.roster.profile(slot).map_or(0, |profile| profile.slots_max())
    }

    fn grant_of(&self, lease: &Lease) -> Grant {
        let node = self.nodes[lease.slot.index()].as_ref().expect("a lease dies with its node");
        Grant {
            node: node.id.clone(),
            cell: self.id,
            slot: lease.slot,
            epoch: lease.epoch,
            fence: lease.fence,
            via: node.via.clone(),
        }
    }

    fn grant_lease(&mut self, request: &ReserveRequest, slot: Slot, now_ms: u64) -> Lease {
        self.fence = self.fence.after(now_ms * 1000);
        let lease = Lease {
            slot,
            epoch: self.epochs[slot.index()],
            attempt: request.key.attempt,
            phase: LeasePhase::Reserved,
            fence: self.fence,
            deadline_ms: now_ms.saturating_add(request.ack_lease_ms),
        };
        let replaced = self.leases.insert(request.key.job, lease);
        debug_assert!(replaced.is_none(), "one lease for each job");
        self.none_ends_before_ms = self.none_ends_before_ms.min(lease.deadline_ms);
        self.roster.set_used(slot, self.roster.used(slot) + 1);
        lease
    }

    fn end_lease(&mut self, job: JobId) -> Option<Lease> {
        let lease = self.leases.remove(&job)?;
        self.roster.set_used(lease.slot, self.roster.used(lease.slot) - 1);
        Some(lease)
    }

    fn end_leases_of(&mut self, slot: Slot) -> Vec<LeaseKey> {
        let of_slot = self.leases.iter().filter(|(_, lease)| lease.slot == slot);
        let key = |(&job, lease): (&JobId, &Lease)| LeaseKey { job, attempt: lease.attempt };
        let mut lost: Vec<LeaseKey> = of_slot.map(key).collect();
        lost.sort_unstable();
        for key in &lost {
            self.end_lease(key.job);
        }
        lost
    }

    /// Ends up to `limit` leases whose time is over, oldest first; says whether it ended any.
    fn reap_leases(&mut self, limit: usize, now_ms: u64, expired: &mut Vec<ExpiredLease>) -> bool {
        if now_ms <= self.none_ends_before_ms || limit == 0 {
            return false;
        }
        let mut due: Vec<(u64, JobId)> = Vec::new();
        let mut next_end_ms = u64::MAX;
        for (&job, lease) in &self.leases {
            let stays =
                lease.phase == LeasePhase::Committed && planted::is(Bug::CommittedNeverExpires);
            if lease.deadline_ms < now_ms && !stays {
                due.push((lease.deadline_ms, job));
            } else {
                next_end_ms = next_end_ms.min(lease.deadline_ms);
            }
        }
        due.sort_unstable();
        self.none_ends_before_ms =
            due.get(limit).map_or(next_end_ms, |&(deadline_ms, _)| deadline_ms);
        due.truncate(limit);
        for &(_, job) in &due {
            if let Some(lease) = self.end_lease(job) {
                if planted::is(Bug::ExpiredSlotStaysCounted) {
                    self.roster.set_used(lease.slot, self.roster.used(lease.slot) + 1);
                }
                let key = LeaseKey { job, attempt: lease.attempt };
                expired.push(ExpiredLease { key, slot: lease.slot, phase: lease.phase });
            }
        }
        !due.is_empty()
    }
}

/// The node in this place, if it is still this incarnation.
fn current(nodes: &mut [Option<Node>], place: Place) -> Option<&mut Node> {
    nodes.get_mut(place.slot.index())?.as_mut().filter(|node| node.epoch == place.epoch)
}
