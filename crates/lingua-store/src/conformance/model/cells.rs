//! Places, registrations and leases, as the contract has them.

use std::collections::BTreeMap;

use lingua_core::job::AttemptOutcome;
use lingua_core::{CELL_NODES_MAX, CellId, Epoch, Fence, Load, NodeId, NodeState};

use super::{Lease, Model, ModelNode, ModelOccupant};
use crate::contract::{
    AssignReply, AssignRequest, CommitReply, Freed, HeartbeatReply, HeartbeatRequest, KeptLeases,
    LapsedNode, LeaseKey, LeasePhase, LeaseRecord, NodeCommand, NodeCommandReply, NodeRecord,
    Place, REAP_BATCH, ReapReply, RegisterReply, RegisterRequest, ReserveOutcome, ReserveReply,
    ReserveRequest, SPREAD_FROM,
};

impl Model {
    /// Checks a place that the store gave or refused, and remembers it.
    pub fn check_assign(&mut self, request: &AssignRequest, reply: AssignReply) {
        let known = self.tenants.iter().find(|t| t.node == request.node);
        let had = known.and_then(|t| t.owner.clone());
        let is_theirs = known.is_some() && had == request.owner;
        let owned = self.tenants.iter().filter(|t| t.owner == request.owner).count();
        let is_full = request.owner.is_some() && request.owned_max.is_some_and(|max| owned >= max);
        let expected = match (&had, &request.owner) {
            (Some(had), Some(owner)) if had != owner => Some(AssignReply::Taken),
            _ if is_full && !is_theirs => Some(AssignReply::TooMany),
            _ => None,
        };
        match (expected, reply) {
            (None, AssignReply::Placed(place)) => self.check_place(request, place),
            (expected, reply) => assert_eq!(Some(reply), expected, "{request:?}"),
        }
    }

    fn check_place(&mut self, request: &AssignRequest, place: Place) {
        let highest = self.tenants.iter().map(|t| t.place.epoch).max();
        let known = self.tenants.iter().position(|t| t.node == request.node);
        if let Some(i) = known {
            let old = &self.tenants[i];
            assert_eq!(
                (place.cell, place.slot),
                (old.place.cell, old.place.slot),
                "a place is kept"
            );
            if old.incarnation == request.incarnation && old.owner == request.owner {
                assert_eq!(place.epoch, old.place.epoch, "assign is idempotent by incarnation");
            } else {
                assert!(highest.is_none_or(|h| place.epoch > h), "epochs rise over the fleet");
            }
            self.tenants.remove(i);
        } else {
            assert!(highest.is_none_or(|h| place.epoch > h), "epochs rise over the fleet");
            let in_cell = self.tenants.iter().filter(|t| t.place.cell == place.cell);
            assert!(in_cell.clone().count() < CELL_NODES_MAX, "a cell has at most 100 nodes");
            assert!(in_cell.clone().all(|t| t.place.slot != place.slot), "one node in a slot");
        }
        let AssignRequest { node, incarnation, class, owner, .. } = request.clone();
        self.tenants.push(ModelOccupant { node, place, incarnation, class, owner });
        let mut cells: Vec<CellId> =
            self.tenants.iter().filter(|t| t.class == class).map(|t| t.place.cell).collect();
        let enough = known.is_none() && cells.len() > SPREAD_FROM;
        cells.sort();
        cells.dedup();
        assert!(!enough || cells.len() > 1, "a popular class spans two cells");
        let is_first =
            known.is_none() && self.tenants.iter().filter(|t| t.class == class).count() == 1;
        let sizes =
            self.tenants.iter().map(|t| t.place.cell).fold(BTreeMap::new(), |mut sizes, c| {
                *sizes.entry(c).or_insert(0usize) += 1;
                sizes
            });
        let here = sizes.get(&place.cell).copied().unwrap_or(0);
        assert!(
            !is_first || sizes.values().all(|&n| n + 1 >= here),
            "the first of a class goes where there are least nodes: {sizes:?}"
        );
    }

    /// What releasing a place must answer.
    pub fn expect_release(&mut self, node: &NodeId, epoch: Epoch) -> bool {
        let before = self.tenants.len();
        self.tenants.retain(|t| t.node != *node || t.place.epoch != epoch);
        self.tenants.len() < before
    }

    /// Which cells have nodes.
    pub fn expect_cells(&self) -> Vec<CellId> {
        let mut cells: Vec<CellId> = self.tenants.iter().map(|t| t.place.cell).collect();
        cells.sort();
        cells.dedup();
        cells
    }

    /// What a registration must answer.
    pub fn expect_register(&mut self, r: &RegisterRequest) -> RegisterReply {
        let Place { cell, slot, epoch } = r.place;
        let current = self.epoch_seen(cell, slot);
        let old = self.node_at(cell, slot).cloned();
        let same =
            old.as_ref().is_some_and(|n| n.view.place.epoch == epoch && n.view.node == r.node);
        let alive = old.as_ref().is_some_and(|n| !n.offline);
        if epoch < current || (epoch == current && !(same && alive)) {
            return RegisterReply::Stale { current };
        }
        let is_known = old.as_ref().is_some_and(|n| n.view.node == r.node);
        let is_kept = |key: LeaseKey| match &r.keep {
            KeptLeases::All => is_known,
            KeptLeases::Only(keys) => is_known && keys.contains(&key),
        };
        let is_over =
            |l: &Lease| (l.cell, l.view.slot) == (cell, slot) && !same && !is_kept(l.view.key);
        let mut lost: Vec<LeaseKey> =
            self.leases.iter().filter(|l| is_over(l)).map(|l| l.view.key).collect();
        lost.sort();
        self.leases.retain(|l| !is_over(l));
        for lease in self.leases.iter_mut().filter(|l| (l.cell, l.view.slot) == (cell, slot)) {
            lease.view.epoch = epoch;
        }
        let drain_ordered =
            old.as_ref().is_some_and(|n| n.view.node == r.node && n.view.drain_ordered);
        // What is known of a node survives its reconnect; a new one starts with one job.
        let before = old.as_ref().filter(|n| n.view.node == r.node).map(|n| &n.view);
        let limit = before.map_or(1, |n| n.limit.max(1));
        let speed = match before {
            Some(n) if n.speed.jobs > 0 && r.speed.jobs == 0 => n.speed,
            _ => r.speed,
        };
        let view = NodeRecord {
            node: r.node.clone(),
            place: r.place,
            profile: r.profile.clone(),
            health: r.health,
            state: NodeState::Ready,
            drain_ordered,
            load: old.as_ref().filter(|_| same).map_or(Load::default(), |n| n.view.load),
            speed,
            used: 0,
            limit: limit.min(r.profile.slots_max()),
            heartbeat_ms: self.now_ms,
            fresh_until_ms: self.now_ms + r.fresh_ms,
            version: r.version.clone(),
            via: r.via.clone(),
        };
        let new = ModelNode { view, health: r.health, offline: false };
        let is_news = old.is_none_or(|old| {
            old.view.place != r.place
                || old.state() != new.state()
                || old.view.profile != r.profile
                || old.view.fresh_until_ms < self.now_ms
        });
        if is_news {
            self.push_node_change(r.node.clone(), r.place);
        }
        self.nodes.retain(|n| (n.view.place.cell, n.view.place.slot) != (cell, slot));
        self.nodes.push(new);
        self.epochs.push((cell, slot, epoch));
        RegisterReply::Registered { lost, speed }
    }

    /// What a heartbeat must answer.
    pub fn expect_heartbeat(&mut self, heartbeat: &HeartbeatRequest) -> HeartbeatReply {
        let Place { cell, slot, epoch } = heartbeat.place;
        let now_ms = self.now_ms;
        let Some(node) =
            self.node_at(cell, slot).filter(|n| n.view.place.epoch == epoch && !n.offline)
        else {
            return HeartbeatReply::Reregister;
        };
        let before = node.state();
        let is_back = node.view.fresh_until_ms < now_ms;
        node.health = heartbeat.health.unwrap_or(node.health);
        node.view.load = heartbeat.load.unwrap_or(node.view.load);
        node.view.speed = heartbeat.speed.unwrap_or(node.view.speed);
        node.view.limit = node.view.limit.max(1);
        node.view.heartbeat_ms = now_ms;
        node.view.fresh_until_ms = now_ms + heartbeat.fresh_ms;
        let (state, name) = (node.state(), node.view.node.clone());
        let drain = node.view.drain_ordered;
        if state != before || is_back {
            self.push_node_change(name, heartbeat.place);
        }
        let mut unknown = vec![];
        for &key in &heartbeat.running {
            let lease = self.leases.iter_mut().find(|l| {
                l.cell == cell && l.view.key == key && l.view.slot == slot && l.view.epoch == epoch
            });
            match lease {
                Some(l) => l.view.deadline_ms = l.view.deadline_ms.max(now_ms + heartbeat.lease_ms),
                None => unknown.push(key),
            }
        }
        HeartbeatReply::Accepted { drain, unknown }
    }

    /// What an order must answer.
    pub fn expect_set_state(&mut self, place: Place, order: NodeCommand) -> NodeCommandReply {
        let Place { cell, slot, epoch } = place;
        let (now_ms, gone_ms) = (self.now_ms, self.rules.gone_ms);
        let Some(node) = self.node_at(cell, slot).filter(|n| n.view.place.epoch == epoch) else {
            return NodeCommandReply::Stale;
        };
        let before = node.state();
        match order {
            NodeCommand::Drain => node.view.drain_ordered = true,
            NodeCommand::Resume => node.view.drain_ordered = false,
            NodeCommand::Offline | NodeCommand::Retire => {
                if !node.offline {
                    node.view.fresh_until_ms = now_ms + gone_ms;
                }
                node.offline = true;
            }
        }
        let (state, name) = (node.state(), node.view.node.clone());
        let gone = state == NodeState::Offline;
        let lost = if gone { self.end_leases_on(cell, slot) } else { vec![] };
        if order == NodeCommand::Retire {
            self.nodes.retain(|n| n.view.place != place);
        }
        if state != before || order == NodeCommand::Retire {
            self.push_node_change(name, place);
        }
        NodeCommandReply::Set { lost }
    }

    /// Holds a reservation's reply against what is allowed, and takes over what the store did.
    pub fn check_reserve(&mut self, cell: CellId, request: &ReserveRequest, reply: &ReserveReply) {
        let mut expired = self.reap_leases(cell, REAP_BATCH);
        let LeaseKey { job, attempt } = request.key;
        if let Some(held) = self.lease_of(cell, job).map(|l| l.view) {
            if held.key.attempt == attempt {
                // Invariant 9: the same attempt gets the same slot, and no second one.
                let ReserveOutcome::Duplicate(grant) = &reply.outcome else {
                    panic!("{:?} holds {held:?} and got {reply:?}", request.key)
                };
                assert_eq!(
                    (grant.slot, grant.epoch, grant.fence),
                    (held.slot, held.epoch, held.fence)
                );
                assert_eq!(reply.expired, expired);
                return;
            }
            if held.key.attempt > attempt {
                assert_eq!(reply.outcome, ReserveOutcome::Stale { held: held.key.attempt });
                assert_eq!(reply.expired, expired);
                return;
            }
            self.leases.retain(|l| l.cell != cell || l.view.key != held.key);
        }
        while self.has_no_room(cell, request) {
            let more = self.reap_leases(cell, REAP_BATCH);
            if more.is_empty() {
                break;
            }
            expired.extend(more);
        }
        assert_eq!(reply.expired, expired);
        self.check_outcome(cell, request, &reply.outcome);
    }

    pub(super) fn take_lease(&mut self, place: Place, request: &ReserveRequest, fence: Fence) {
        let deadline_ms = self.now_ms + request.ack_lease_ms;
        let Place { cell, slot, epoch } = place;
        let (key, phase) = (request.key, LeasePhase::Reserved);
        let view = LeaseRecord { key, slot, epoch, phase, fence, deadline_ms };
        self.leases.push(Lease { cell, view });
    }

    /// What a commit must answer.
    pub fn expect_commit(&mut self, cell: CellId, key: LeaseKey, run_lease_ms: u64) -> CommitReply {
        let now_ms = self.now_ms;
        let lease = self.leases.iter_mut().find(|l| l.cell == cell && l.view.key.job == key.job);
        match lease.map(|l| &mut l.view) {
            None => CommitReply::Gone,
            Some(lease) if lease.key != key => CommitReply::Stale,
            Some(lease) => {
                lease.phase = LeasePhase::Committed;
                lease.deadline_ms = lease.deadline_ms.max(now_ms + run_lease_ms);
                CommitReply::Committed(lease.fence)
            }
        }
    }

    /// What giving back a slot must answer.
    pub fn expect_finish(
        &mut self,
        cell: CellId,
        key: LeaseKey,
        outcome: AttemptOutcome,
    ) -> Option<Freed> {
        let at = self.leases.iter().position(|l| l.cell == cell && l.view.key == key)?;
        let slot = self.leases.remove(at).view.slot;
        let used = self.used(cell, slot);
        let node = &mut self.node_at(cell, slot)?.view;
        let max = node.profile.slots_max();
        node.limit = match outcome {
            AttemptOutcome::Succeeded => max.min(1.max(2 * node.limit)),
            AttemptOutcome::Failed => node.limit / 2,
            AttemptOutcome::Unknown => node.limit,
        };
        Some(Freed { slot, used, max })
    }

    /// What a clean-up must answer.
    pub fn expect_reap(&mut self, cell: CellId, limit: usize) -> ReapReply {
        let expired = self.reap_leases(cell, limit);
        let silent =
            |n: &&ModelNode| n.view.place.cell == cell && n.view.fresh_until_ms < self.now_ms;
        let mut lapsed: Vec<LapsedNode> = self
            .nodes
            .iter()
            .filter(silent)
            .map(|n| LapsedNode {
                node: n.view.node.clone(),
                place: n.view.place,
                state: n.state(),
                for_ms: self.now_ms - n.view.fresh_until_ms,
            })
            .collect();
        lapsed.sort_by_key(|l| l.place.slot);
        ReapReply { expired, lapsed }
    }
}
