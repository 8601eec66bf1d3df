//! Which nodes a reservation may get: the rules of selection, one node at a time.

use lingua_core::node::COST_MS_MAX;
use lingua_core::roster::Capacity;
use lingua_core::{CellId, Fence, NodeState, Policy, RejectReason, Resource, Slot};

use super::{Model, ModelNode};
use crate::contract::{Pin, ReserveOutcome, ReserveRequest};

impl Model {
    /// Invariant 4: draining, offline, stale, overloaded and incapable nodes are never chosen.
    fn may_take(&self, node: &ModelNode, request: &ReserveRequest) -> bool {
        let overloaded = |r| self.rules.thresholds.exceeded(node.view.load, r);
        self.is_capable(node, request)
            && node.state() == NodeState::Ready
            && !request.query.exclude.contains(node.view.place.slot)
            && !Resource::ALL.into_iter().any(overloaded)
    }

    fn is_capable(&self, node: &ModelNode, request: &ReserveRequest) -> bool {
        let query = &request.query;
        let caps = node.view.profile.capabilities();
        caps.missing(query.pair, query.needs, self.rules.semantic).is_none()
            && node.view.profile.admits(query.public, query.tenant)
            && node.view.fresh_until_ms >= self.now_ms
    }

    fn nodes_of(&self, cell: CellId) -> impl Iterator<Item = &ModelNode> {
        self.nodes.iter().filter(move |n| n.view.place.cell == cell)
    }

    fn free_of(&self, node: &ModelNode) -> u32 {
        let used = self.used(node.view.place.cell, node.view.place.slot);
        u32::from(node.view.profile.slots_max().saturating_sub(used))
    }

    /// Nodes that may get the job and have room.
    fn open(&self, cell: CellId, request: &ReserveRequest) -> Vec<&ModelNode> {
        self.nodes_of(cell).filter(|n| self.may_take(n, request) && self.free_of(n) > 0).collect()
    }

    /// The slots that the policy may choose from among nodes with room.
    fn allowed(&self, cell: CellId, request: &ReserveRequest) -> Vec<Slot> {
        let open = self.open(cell, request);
        let used = |n: &ModelNode| u64::from(self.used(cell, n.view.place.slot));
        let max = |n: &ModelNode| u64::from(n.view.profile.slots_max());
        match request.query.policy {
            Policy::Random => open.iter().map(|n| n.view.place.slot).collect(),
            Policy::LeastLoaded => {
                let less = |a: &ModelNode, b: &ModelNode| used(a) * max(b) < used(b) * max(a);
                let least = |n: &&&ModelNode| !open.iter().any(|other| less(other, n));
                open.iter().filter(least).map(|n| n.view.place.slot).collect()
            }
            Policy::Sample { k } => {
                // The least used of some sample of k: at least k - 1 others are not less used.
                let k = usize::from(k).min(open.len());
                let fits =
                    |n: &&&ModelNode| open.iter().filter(|o| used(o) >= used(n)).count() >= k;
                open.iter().filter(fits).map(|n| n.view.place.slot).collect()
            }
            Policy::Balanced => {
                let flexibility =
                    |n: &ModelNode| u64::from(n.view.profile.flexibility(self.rules.semantic));
                let takers: Vec<&ModelNode> =
                    self.nodes_of(cell).filter(|n| self.may_take(n, request)).collect();
                let least = takers.iter().map(|n| flexibility(n)).min().unwrap_or(0);
                let extra = |n: &ModelNode| flexibility(n) - least;
                let mut offered = open.clone();
                let is_kept =
                    |n: &ModelNode| request.query.keep_last && self.is_scarce(&takers, n, 20, true);
                offered.retain(|n| !is_kept(n));
                // A node at its limit gets jobs only if no other node is left, then a spared one.
                let is_below = |n: &&ModelNode| used(n) < u64::from(n.view.limit);
                prefer(&mut offered, is_below);
                prefer(&mut offered, |n| !self.is_scarce(&takers, n, 75, false));
                offered.sort_by_key(|n| n.view.place.slot);
                let delay =
                    |n: &ModelNode, cost_ms: u64| cost_ms * (100 + 15 * used(n)) * (100 + extra(n));
                // Costs within 30 % of that of the soonest node count as its cost.
                let soonest = offered.iter().min_by_key(|n| delay(n, cost(n)));
                let usual = soonest.map_or(0, |n| cost(n));
                let is_near = |c: u64| c * 100 <= usual * 130 && usual * 100 <= c * 130;
                let score = |n: &ModelNode| match cost(n) {
                    near if is_near(near) => delay(n, usual),
                    far => delay(n, far),
                };
                let best = offered.iter().map(|n| score(n)).min();
                let good = offered.iter().filter(|n| Some(score(n)) == best);
                good.map(|n| n.view.place.slot).collect()
            }
        }
    }

    /// Whether a node is in a group with few free slots: at most this share of its nodes, rounded
    /// up, and perhaps more slots than that in all. A group is all takers from some flexibility on.
    fn is_scarce(
        &self,
        takers: &[&ModelNode],
        node: &ModelNode,
        percent: usize,
        has_more: bool,
    ) -> bool {
        let flexibility = |n: &ModelNode| n.view.profile.flexibility(self.rules.semantic);
        let least = takers.iter().map(|n| flexibility(n)).min().unwrap_or(0);
        let levels = takers.iter().map(|n| flexibility(n));
        levels.filter(|level| (least + 5..=flexibility(node)).contains(level)).any(|level| {
            let group: Vec<_> = takers.iter().filter(|n| flexibility(n) >= level).collect();
            let most = (percent * group.len()).div_ceil(100) as u32;
            let free: u32 = group.iter().map(|n| self.free_of(n)).sum();
            let slots: u32 = group.iter().map(|n| u32::from(n.view.profile.slots_max())).sum();
            free <= most && (!has_more || slots > most)
        })
    }

    /// What the nodes that take jobs now can do: a slot counts by the speed of its node.
    fn capacity(&self, cell: CellId, request: &ReserveRequest) -> Capacity {
        let mut capacity = Capacity::default();
        for node in self.nodes_of(cell).filter(|n| self.may_take(n, request)) {
            let weight = weight(node);
            capacity.all += u64::from(node.view.profile.slots_max()) * weight;
            if node.view.limit > 0 {
                capacity.free += u64::from(self.free_of(node)) * weight;
            }
        }
        capacity
    }

    /// Whether a strict or loose pin can be followed.
    fn pinned(
        &self,
        cell: CellId,
        request: &ReserveRequest,
        pin: Pin,
    ) -> Result<Slot, Option<RejectReason>> {
        let Some(node) = self.nodes_of(cell).find(|n| n.view.place.slot == pin.slot) else {
            return Err(Some(RejectReason::NoNode));
        };
        if node.view.place.epoch != pin.epoch {
            return Err(Some(RejectReason::Superseded));
        }
        match self.may_take(node, request) {
            true if self.free_of(node) > 0 => Ok(pin.slot),
            true => Err(Some(RejectReason::Full)),
            // Which of several reasons is named first is the core's business.
            false => Err(None),
        }
    }

    /// Whether nothing but the clean-up of dead leases could still help.
    pub(super) fn has_no_room(&self, cell: CellId, request: &ReserveRequest) -> bool {
        match request.pin.map(|pin| (pin, self.pinned(cell, request, pin))) {
            Some((_, Ok(_))) => false,
            Some((pin, Err(why))) if pin.strict => why == Some(RejectReason::Full),
            _ => {
                let capable = self.nodes_of(cell).any(|n| self.is_capable(n, request));
                capable && self.allowed(cell, request).is_empty()
            }
        }
    }

    /// Holds the outcome of a reservation against the rules, and takes the lease if one was given.
    pub(super) fn check_outcome(
        &mut self,
        cell: CellId,
        request: &ReserveRequest,
        outcome: &ReserveOutcome,
    ) {
        let capable = self.nodes_of(cell).filter(|n| self.is_capable(n, request)).count() as u16;
        let free: u32 = self.open(cell, request).iter().map(|n| self.free_of(n)).sum();
        let capacity = self.capacity(cell, request);
        let pinned = request.pin.map(|pin| (pin, self.pinned(cell, request, pin)));
        let allowed = match pinned {
            Some((_, Ok(slot))) => vec![slot],
            Some((pin, Err(why))) if pin.strict => {
                let ReserveOutcome::PinLost(said) = outcome else {
                    panic!("pin lost, got {outcome:?}")
                };
                assert!(why.is_none_or(|why| why == *said), "{why:?} is not {said:?}");
                assert_ne!(*said, RejectReason::KeptForRarerPairs);
                return;
            }
            _ => self.allowed(cell, request),
        };
        match outcome {
            ReserveOutcome::Granted { grant, used, max, free: left, capacity: now, weight } => {
                assert!(allowed.contains(&grant.slot), "{grant:?} is not one of {allowed:?}");
                let last = self.fences.iter().filter(|(c, _)| *c == cell).map(|(_, f)| *f).max();
                assert!(grant.fence > last.unwrap_or(Fence(0)), "invariant 6: fences rise");
                self.fences.retain(|(c, _)| *c != cell);
                self.fences.push((cell, grant.fence));
                let node = self.node_at(cell, grant.slot).expect("a granted slot has a node");
                let place = node.view.place;
                let slots_max = node.view.profile.slots_max();
                let of_slot = self::weight(node);
                let taken = if node.view.limit > 0 { of_slot } else { 0 };
                assert_eq!(u64::from(*weight), of_slot);
                assert_eq!(*now, Capacity { free: capacity.free - taken, ..capacity });
                assert_eq!((&node.view.node, place.epoch), (&grant.node, grant.epoch));
                assert_eq!(node.view.via, grant.via);
                self.take_lease(place, request, grant.fence);
                let now_used = self.used(cell, grant.slot);
                assert_eq!((*used, *max, *left), (now_used, slots_max, free - 1));
                assert!(now_used <= slots_max, "invariant 2: oversold");
            }
            ReserveOutcome::Full { capable: c, free: f, capacity: now } => {
                assert!(allowed.is_empty(), "invariant 8: full, though {allowed:?} are free");
                assert!(capable > 0, "full, though nobody can do it");
                assert_eq!((*c, *f, *now), (capable, free, capacity));
                assert!(free == 0 || request.query.keep_last, "invariant 8: full with free slots");
            }
            ReserveOutcome::NoneCapable => assert_eq!(capable, 0, "somebody can do it"),
            other => panic!("{request:?} cannot get {other:?}"),
        }
    }
}

/// Leaves the nodes that are preferred, or all if there are none.
fn prefer(nodes: &mut Vec<&ModelNode>, is_preferred: impl Fn(&&ModelNode) -> bool) {
    if nodes.iter().any(&is_preferred) {
        nodes.retain(is_preferred);
    }
}

fn cost(node: &ModelNode) -> u64 {
    u64::from(node.view.speed.cost_ms.clamp(1, COST_MS_MAX))
}

/// What a slot of the node counts.
fn weight(node: &ModelNode) -> u64 {
    u64::from(u32::MAX) / cost(node)
}
