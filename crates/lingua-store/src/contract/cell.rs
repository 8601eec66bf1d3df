//! Places, registrations and leases.

use std::sync::Arc;

use lingua_core::job::Grant;
use lingua_core::roster::NodeStatus;
use lingua_core::{
    CellId, Epoch, Fence, Health, InstanceId, Load, NodeId, NodeState, Profile, Query,
    RejectReason, Roster, Rules, Slot,
};

use super::{Incarnation, LeaseKey};

/// How many expired leases a reservation ends at a time before it chooses.
pub const REAP_BATCH: usize = 16;

/// From this many nodes of one class on, the class spans at least two cells.
pub const SPREAD_FROM: usize = 32;

/// Nodes of one class can do the same. Any hash of the capabilities will do; it only guides where
/// nodes are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeClass(pub u32);

/// A node that asks for its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssignRequest {
    /// Who.
    pub node: NodeId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// What kind.
    pub class: NodeClass,
}

/// Where a node is, and which incarnation of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// Its cell.
    pub cell: CellId,
    /// Its slot there.
    pub slot: Slot,
    /// Epochs rise over all nodes of a fleet, so that a slot's next tenant has a higher one too.
    pub epoch: Epoch,
}

/// A node's registration, or its change of capabilities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterRequest {
    /// Where.
    pub place: Place,
    /// Who.
    pub node: NodeId,
    /// What it can do.
    pub profile: Arc<Profile>,
    /// How it feels.
    pub health: Health,
    /// How long a job takes on it when it does nothing else.
    pub cost_ms: u32,
    /// For how long this counts as a sign of life.
    pub fresh_ms: u64,
    /// Version of its software, for people. Another version alone is no news for the feed.
    pub version: Option<Arc<str>>,
    /// The instance that it is connected to. Another one alone is no news for the feed.
    pub via: InstanceId,
}

impl RegisterRequest {
    /// The registration of a node that is registered already, with everything as it is. A caller
    /// that changes one thing cannot forget the others.
    pub fn repeat(record: &NodeRecord, fresh_ms: u64) -> Self {
        Self {
            place: record.place,
            node: record.node.clone(),
            profile: Arc::clone(&record.profile),
            health: record.health,
            cost_ms: record.cost_ms,
            fresh_ms,
            version: record.version.clone(),
            via: record.via.clone(),
        }
    }
}

/// What a registration answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegisterReply {
    /// It is in.
    Registered {
        /// Leases of the previous incarnation, which are gone; in order.
        lost: Vec<LeaseKey>,
    },
    /// A newer incarnation is in this place, or this one has signed off: ask for a place again.
    Stale {
        /// The epoch that is known here.
        current: Epoch,
    },
}

/// A node's sign of life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatRequest {
    /// Where.
    pub place: Place,
    /// How it feels, if it says so.
    pub health: Option<Health>,
    /// How busy it is.
    pub load: Load,
    /// How long a job takes on it when it does nothing else, if that is known better now.
    pub cost_ms: Option<u32>,
    /// What it runs.
    pub running: Vec<LeaseKey>,
    /// For how long this counts as a sign of life.
    pub fresh_ms: u64,
    /// For how long the leases of what it runs are renewed.
    pub lease_ms: u64,
}

/// What a heartbeat answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeartbeatReply {
    /// Taken.
    Accepted {
        /// An operator wants it to finish what it has and take nothing new.
        drain: bool,
        /// What it runs without a lease: its owner has to adopt it or call it off.
        unknown: Vec<LeaseKey>,
    },
    /// This incarnation is not known here (any more): register again.
    Reregister,
}

/// What an operator, the node itself, or the clean-up wants of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeCommand {
    /// Finish what you have. Outlives reconnects.
    Drain,
    /// Take jobs again.
    Resume,
    /// Gone; its leases are lost. It has to ask for a place again.
    Offline,
    /// Gone for good; its record is removed.
    Retire,
}

/// What an order answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeCommandReply {
    /// Done.
    Set {
        /// Leases that are gone with the node; in order.
        lost: Vec<LeaseKey>,
    },
    /// Another incarnation is in this place, or none.
    Stale,
}

/// Wants a certain node: a turn's later segments, or a client's wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin {
    /// Its slot.
    pub slot: Slot,
    /// Its incarnation.
    pub epoch: Epoch,
    /// Rather none than another.
    pub strict: bool,
}

/// Wants a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReserveRequest {
    /// For whom.
    pub key: LeaseKey,
    /// What is needed and how to choose.
    pub query: Query,
    /// A certain node, if it can be had.
    pub pin: Option<Pin>,
    /// How long the node has to confirm.
    pub ack_lease_ms: u64,
    /// The luck of this choice.
    pub random: u32,
}

/// What a reservation answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReserveReply {
    /// What came of it.
    pub outcome: ReserveOutcome,
    /// Leases whose time was over and that were ended on the way: their owners want to know.
    pub expired: Vec<ExpiredLease>,
}

/// What came of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReserveOutcome {
    /// A slot was taken.
    Granted {
        /// Which.
        grant: Grant,
        /// Leases of that node now.
        used: u16,
        /// Its slots.
        max: u16,
        /// Free slots left in this cell for this job's like.
        free: u32,
    },
    /// This very attempt has its slot already.
    Duplicate(Grant),
    /// A later attempt of the job has a slot here.
    Stale {
        /// Which.
        held: lingua_core::Attempt,
    },
    /// There are nodes for it, and none has room.
    Full {
        /// How many nodes there are.
        capable: u16,
        /// Free slots that are kept for rarer pairs.
        free: u32,
    },
    /// No node here can do it.
    NoneCapable,
    /// The pinned node cannot be had, and no other is wanted.
    PinLost(RejectReason),
}

/// How far a lease is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeasePhase {
    /// Waits for the node's ACK.
    Reserved,
    /// The node runs it.
    Committed,
}

/// A lease whose time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpiredLease {
    /// Whose.
    pub key: LeaseKey,
    /// On which slot of the cell.
    pub slot: Slot,
    /// How far it was.
    pub phase: LeasePhase,
}

/// What a commit answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitReply {
    /// The run lease has begun.
    Committed(Fence),
    /// Another attempt of the job holds a slot here.
    Stale,
    /// There is no such lease (any more). The node runs it uncounted: call it off.
    Gone,
}

/// A slot that was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freed {
    /// Of which node.
    pub slot: Slot,
    /// Its leases now.
    pub used: u16,
    /// Its slots.
    pub max: u16,
}

/// What a clean-up found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReapReply {
    /// Leases that were ended, oldest first.
    pub expired: Vec<ExpiredLease>,
    /// Nodes without a recent sign of life, signed off or not, by slot.
    pub lapsed: Vec<LapsedNode>,
}

/// A node that has fallen silent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LapsedNode {
    /// Who.
    pub node: NodeId,
    /// Where.
    pub place: Place,
    /// In which state it was left.
    pub state: NodeState,
    /// How long ago its last sign of life stopped to count.
    pub for_ms: u64,
}

/// A cell at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellRecord {
    /// Which.
    pub cell: CellId,
    /// When, by the store's clock.
    pub now_ms: u64,
    /// Its nodes, by slot.
    pub nodes: Vec<NodeRecord>,
    /// Its leases, by job.
    pub leases: Vec<LeaseRecord>,
}

/// A node at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRecord {
    /// Who.
    pub node: NodeId,
    /// Where.
    pub place: Place,
    /// What it can do.
    pub profile: Arc<Profile>,
    /// The health that the node last reported.
    pub health: Health,
    /// What its health and the orders to it come to.
    pub state: NodeState,
    /// Whether an operator has ordered it to drain.
    pub drain_ordered: bool,
    /// How busy it says it is.
    pub load: Load,
    /// How long a job takes on it when it does nothing else.
    pub cost_ms: u32,
    /// How many leases it has.
    pub used: u16,
    /// When it last gave a sign of life.
    pub heartbeat_ms: u64,
    /// Until when that counts.
    pub fresh_until_ms: u64,
    /// Version of its software, as it last said.
    pub version: Option<Arc<str>>,
    /// The instance that it is connected to, as it last said.
    pub via: InstanceId,
}

/// A lease at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Whose.
    pub key: LeaseKey,
    /// On which slot.
    pub slot: Slot,
    /// Of which incarnation.
    pub epoch: Epoch,
    /// How far it is.
    pub phase: LeasePhase,
    /// Its fence.
    pub fence: Fence,
    /// When it ends unless renewed.
    pub deadline_ms: u64,
}

impl CellRecord {
    /// The cell as selection sees it, for explanations: the same code that chose decides what is
    /// told.
    pub fn roster(&self, rules: Rules) -> Roster {
        let mut roster = Roster::new(rules);
        for node in &self.nodes {
            let standing = NodeStatus {
                state: node.state,
                fresh_until_ms: node.fresh_until_ms,
                load: node.load,
                cost_ms: node.cost_ms,
                used: node.used,
            };
            roster.enroll(node.place.slot, node.profile.clone(), standing);
        }
        roster
    }
}
