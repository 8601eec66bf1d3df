//! The contract in its simplest form: lists and loops.
//!
//! Start at [`Model::check_reserve`]. Where the contract allows one reply, the model computes it.
//! Where a random number decides, the model checks that the reply is allowed, and then adopts it.
//! It shares the capability rule with the core ([`Capabilities::missing`]) and nothing
//! else: no index, no roster, no cached count.
//!
//! [`Capabilities::missing`]: lingua_core::Capabilities::missing

use std::sync::Arc;

use lingua_core::{
    CellId, Epoch, Fence, Health, JobId, NodeId, NodeState, Rules, Slot, Tenant, Term, TokenName,
};

use crate::contract::{
    BindingRecord, CellRecord, Change, Digest, ExpiredLease, Incarnation, InstanceRecord,
    JobRecord, KeyRecord, LeaseKey, LeaseRecord, NodeClass, NodeRecord, Place, PublishedTable,
    UsageRecord,
};

mod bindings;
mod cells;
mod choice;
mod cluster;
mod jobs;
mod keys;
mod usage;

/// The whole state of a store.
#[derive(Debug)]
pub struct Model {
    /// The rules of the fleet.
    pub rules: Rules,
    /// The clock of the model, in milliseconds.
    pub now_ms: u64,
    pub(super) tenants: Vec<ModelOccupant>,
    pub(super) nodes: Vec<ModelNode>,
    pub(super) leases: Vec<Lease>,
    /// The highest epoch seen in each place, gone nodes included.
    pub(super) epochs: Vec<(CellId, Slot, Epoch)>,
    /// The highest fence that each cell gave.
    pub(super) fences: Vec<(CellId, Fence)>,
    pub(super) leader: Option<Leader>,
    pub(super) last_term: Term,
    pub(super) table: Option<PublishedTable>,
    pub(super) jobs: Vec<(JobRecord, Option<u64>)>,
    /// Keys, what they stand for, and when they were claimed.
    pub(super) keys: Vec<(Digest, KeyRecord, u64)>,
    pub(super) instances: Vec<InstanceRecord>,
    /// Each with its owner, its key and its end.
    pub(super) bindings: Vec<(Tenant, Arc<str>, BindingRecord, u64)>,
    /// What was counted, and which batches were.
    pub(super) usage: Vec<UsageRecord>,
    pub(super) batches: Vec<(Incarnation, u64)>,
    /// Everything that must be on the feed, in order.
    pub feed: Vec<Change>,
}

#[derive(Debug, Clone)]
pub(super) struct ModelOccupant {
    pub(super) node: NodeId,
    pub(super) place: Place,
    pub(super) incarnation: Incarnation,
    pub(super) class: NodeClass,
    pub(super) owner: Option<TokenName>,
}

/// A node; `used` and `state` of its record are computed when they are read.
#[derive(Debug, Clone)]
pub(super) struct ModelNode {
    pub(super) view: NodeRecord,
    pub(super) health: Health,
    pub(super) offline: bool,
}

impl ModelNode {
    pub(super) fn state(&self) -> NodeState {
        if self.offline {
            return NodeState::Offline;
        }
        NodeState::of(self.health, self.view.drain_ordered)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Lease {
    pub(super) cell: CellId,
    pub(super) view: LeaseRecord,
}

#[derive(Debug, Clone)]
pub(super) struct Leader {
    pub(super) instance: lingua_core::InstanceId,
    pub(super) incarnation: Incarnation,
    pub(super) until_ms: u64,
}

impl Model {
    /// An empty store.
    pub fn new(rules: Rules, now_ms: u64) -> Self {
        Self {
            rules,
            now_ms,
            tenants: vec![],
            nodes: vec![],
            leases: vec![],
            epochs: vec![],
            fences: vec![],
            leader: None,
            last_term: Term(0),
            table: None,
            jobs: vec![],
            keys: vec![],
            instances: vec![],
            bindings: vec![],
            usage: vec![],
            batches: vec![],
            feed: vec![],
        }
    }

    /// Invariant 1: what a node uses is the number of its leases.
    pub(super) fn used(&self, cell: CellId, slot: Slot) -> u16 {
        self.leases.iter().filter(|l| l.cell == cell && l.view.slot == slot).count() as u16
    }

    pub(super) fn node_at(&mut self, cell: CellId, slot: Slot) -> Option<&mut ModelNode> {
        self.nodes.iter_mut().find(|n| n.view.place.cell == cell && n.view.place.slot == slot)
    }

    pub(super) fn lease_of(&self, cell: CellId, job: JobId) -> Option<&Lease> {
        self.leases.iter().find(|l| l.cell == cell && l.view.key.job == job)
    }

    pub(super) fn epoch_seen(&self, cell: CellId, slot: Slot) -> Epoch {
        let here = self.epochs.iter().filter(|(c, s, _)| *c == cell && *s == slot);
        here.map(|(_, _, epoch)| *epoch).max().unwrap_or(Epoch(0))
    }

    pub(super) fn push_node_change(&mut self, node: NodeId, place: Place) {
        let Place { cell, slot, epoch } = place;
        self.feed.push(Change::Node { cell, slot, epoch, node });
    }

    /// The reply of [`Store::view`](crate::Store::view).
    pub fn view(&self, cell: CellId) -> CellRecord {
        let mut nodes: Vec<NodeRecord> = self
            .nodes
            .iter()
            .filter(|n| n.view.place.cell == cell)
            .map(|n| NodeRecord {
                health: n.health,
                state: n.state(),
                used: self.used(cell, n.view.place.slot),
                ..n.view.clone()
            })
            .collect();
        nodes.sort_by_key(|n| n.place.slot);
        let mut leases: Vec<LeaseRecord> =
            self.leases.iter().filter(|l| l.cell == cell).map(|l| l.view).collect();
        leases.sort_by_key(|l| l.key);
        CellRecord { cell, now_ms: self.now_ms, nodes, leases }
    }

    /// Ends up to `limit` leases of a cell whose time is over, the oldest first.
    pub(super) fn reap_leases(&mut self, cell: CellId, limit: usize) -> Vec<ExpiredLease> {
        let over = |l: &&Lease| l.cell == cell && l.view.deadline_ms < self.now_ms;
        let mut due: Vec<LeaseRecord> = self.leases.iter().filter(over).map(|l| l.view).collect();
        due.sort_by_key(|l| (l.deadline_ms, l.key.job));
        due.truncate(limit);
        self.leases.retain(|l| l.cell != cell || !due.iter().any(|d| d.key == l.view.key));
        due.iter().map(|l| ExpiredLease { key: l.key, slot: l.slot, phase: l.phase }).collect()
    }

    /// Ends every lease on a slot.
    pub(super) fn end_leases_on(&mut self, cell: CellId, slot: Slot) -> Vec<LeaseKey> {
        let on_slot = |l: &Lease| l.cell == cell && l.view.slot == slot;
        let mut lost: Vec<LeaseKey> =
            self.leases.iter().filter(|l| on_slot(l)).map(|l| l.view.key).collect();
        lost.sort();
        self.leases.retain(|l| !on_slot(l));
        lost
    }
}
