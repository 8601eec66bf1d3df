//! Places, registrations and leases: what is atomic within a cell.

use std::sync::Arc;

use lingua_core::job::Grant;
use lingua_core::roster::{Capacity, NodeStatus};
use lingua_core::{
    Attempt, CELLS_MAX, CellId, Epoch, Fence, Health, InstanceId, Load, NodeId, NodeState, Profile,
    Query, RejectReason, Roster, Rules, Slot, TokenName, named_enum,
};

use super::{Incarnation, LeaseKey};

/// Expired leases that a reservation ends at a time before it selects.
pub const REAP_BATCH: usize = 16;

/// A class with at least this many nodes spans two cells or more, and so does a fleet.
pub const SPREAD_FROM: usize = 32;

/// A fleet opens another cell when its cells have so many nodes on average. Cells have room left
/// for classes that grow, and they stay alike in size, because new nodes go where there are least.
pub const CELL_NODES_USUAL: usize = 66;

/// How many cells a fleet of so many nodes needs. Nodes never move, so a fleet that has shrunk may
/// have more.
pub fn cells_for(nodes: usize) -> usize {
    let least = if nodes > SPREAD_FROM { 2 } else { 1 };
    nodes.div_ceil(CELL_NODES_USUAL).clamp(least, CELLS_MAX)
}

/// Nodes of one class have equal capabilities. Any hash of them will do: it only guides placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeClass(pub u32);

/// A node asks for its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssignRequest {
    /// The name that the node registers with.
    pub node: NodeId,
    /// This registration of it.
    pub incarnation: Incarnation,
    /// Nodes of one class are placed together.
    pub class: NodeClass,
    /// The token that the node belongs to from now on; `None` if there are no tokens.
    pub owner: Option<TokenName>,
    /// Most nodes that belong to this token.
    pub owned_max: Option<usize>,
}

impl AssignRequest {
    /// A node that belongs to no token.
    pub fn new(node: NodeId, incarnation: Incarnation, class: NodeClass) -> Self {
        Self { node, incarnation, class, owner: None, owned_max: None }
    }

    /// Whether a node that belongs to this token may not be taken. Without tokens nothing is
    /// refused, and a node that was registered without one belongs to none.
    pub fn is_refused_by(&self, owner: Option<&TokenName>) -> bool {
        self.owner.is_some() && owner.is_some() && self.owner.as_ref() != owner
    }
}

/// The reply to [`AssignRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssignReply {
    /// The place of the node.
    Placed(Place),
    /// The node belongs to another token; nothing was changed.
    Taken,
    /// The token has as many nodes as it may; nothing was changed.
    TooMany,
}

impl AssignReply {
    /// The place, if there is one.
    pub fn placed(self) -> Option<Place> {
        match self {
            Self::Placed(place) => Some(place),
            Self::Taken | Self::TooMany => None,
        }
    }
}

/// How fast a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeSpeed {
    /// How long a job is expected to take on it when it does nothing else: what a choice compares.
    pub cost_ms: u32,
    /// How long jobs took on it, by the instance that learned it. It is kept for the next one.
    pub learned_ms: u32,
    /// How many jobs that was learned from; 0 if none.
    pub jobs: u16,
}

impl NodeSpeed {
    /// The speed of a node of which nothing is known.
    pub fn assumed(cost_ms: u32) -> Self {
        Self { cost_ms, learned_ms: cost_ms, jobs: 0 }
    }
}

/// Where a node is, and which incarnation of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// One of at most `CELLS_MAX`, numbered from 0.
    pub cell: CellId,
    /// The slot within the cell.
    pub slot: Slot,
    /// Rises over all nodes of a fleet, so that the next tenant of a slot has a higher one too.
    pub epoch: Epoch,
}

/// A node registers, or changes its capabilities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterRequest {
    /// What [`Store::assign`](super::Store::assign) replied.
    pub place: Place,
    /// The node in that place.
    pub node: NodeId,
    /// Its languages, services and slots.
    pub profile: Arc<Profile>,
    /// As the node reports it.
    pub health: Health,
    /// How fast it is. If nothing has been learned, what is stored of this node stays.
    pub speed: NodeSpeed,
    /// How long it counts as alive without a heartbeat.
    pub fresh_ms: u64,
    /// Version of its software, for people. A change of it is not announced on the feed.
    pub version: Option<Arc<str>>,
    /// The instance that it is connected to. A change of it is not announced on the feed.
    pub via: InstanceId,
    /// What it goes on with if it was registered before.
    pub keep: KeptLeases,
}

/// The leases that a new incarnation of a node takes over from the one before, with attempt, fence
/// and deadline as they are. The others end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptLeases {
    /// All: the node is the same process on the same connection.
    All,
    /// Those of these attempts that the node has.
    Only(Vec<LeaseKey>),
}

impl KeptLeases {
    /// A node that has just started runs nothing.
    pub const NONE: Self = Self::Only(vec![]);
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
            speed: record.speed,
            fresh_ms,
            version: record.version.clone(),
            via: record.via.clone(),
            keep: KeptLeases::All,
        }
    }
}

/// The reply to a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum RegisterReply {
    /// The node is registered.
    Registered {
        /// Leases of the previous incarnation that were not kept, in order.
        lost: Vec<LeaseKey>,
        /// How fast it is, as far as the store knows now.
        speed: NodeSpeed,
    },
    /// A newer incarnation holds the place, or this one has signed off: ask for a place again.
    /// `current` is the highest epoch that this place has seen.
    Stale { current: Epoch },
}

/// A node's heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatRequest {
    /// The node's place.
    pub place: Place,
    /// `None` leaves it unchanged.
    pub health: Option<Health>,
    /// `None` leaves it unchanged.
    pub load: Option<Load>,
    /// How fast it is. Absent: unchanged.
    pub speed: Option<NodeSpeed>,
    /// The attempts that the node runs.
    pub running: Vec<LeaseKey>,
    /// How long it counts as alive without another heartbeat.
    pub fresh_ms: u64,
    /// The leases of `running` last at least this long from now.
    pub lease_ms: u64,
}

/// The reply to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeartbeatReply {
    /// The heartbeat was recorded.
    Accepted {
        /// An operator has ordered the node to drain.
        drain: bool,
        /// Attempts that it runs without a lease: their owners must adopt or cancel them.
        unknown: Vec<LeaseKey>,
    },
    /// This incarnation is not registered (any more): register again.
    Reregister,
}

named_enum! {
    /// A command to a node from an operator, from the node itself, or from the clean-up.
    pub enum NodeCommand {
        /// Finish the running jobs and take no new ones. Survives reconnects.
        Drain = "drain",
        /// Take jobs again.
        Resume = "resume",
        /// Sign off: the leases are lost, and the node must ask for a place again.
        Offline = "offline",
        /// Remove the node's record.
        Retire = "retire",
    }
}

/// The reply to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum NodeCommandReply {
    /// The command was carried out; these leases ended with the node, in order.
    Set { lost: Vec<LeaseKey> },
    /// Another incarnation is in this place, or none.
    Stale,
}

/// Asks for a certain node: for the later segments of a turn, or because the client wishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin {
    /// The slot of that node.
    pub slot: Slot,
    /// The epoch of that node.
    pub epoch: Epoch,
    /// Take no other node instead.
    pub strict: bool,
}

/// An attempt asks for a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReserveRequest {
    /// The job and its attempt that take the slot.
    pub key: LeaseKey,
    /// What the node must be able to do, and how to select among several.
    pub query: Query,
    /// A certain node.
    pub pin: Option<Pin>,
    /// How long the node has to send its ACK.
    pub ack_lease_ms: u64,
    /// Selects among equals.
    pub random: u32,
}

/// The reply to a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReserveReply {
    /// What the request got.
    pub outcome: ReserveOutcome,
    /// Expired leases that were ended first: their owners must be told.
    pub expired: Vec<ExpiredLease>,
}

/// What a reservation got.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum ReserveOutcome {
    /// A slot was taken.
    Granted {
        /// The node that was chosen, its place and the fence.
        grant: Grant,
        /// Leases of that node, this one included.
        used: u16,
        /// Slots of that node.
        max: u16,
        /// Free slots left in this cell for jobs with the same needs.
        free: u32,
        /// What is left by weight.
        capacity: Capacity,
        /// What the slot counted: `capacity.free` grows by it when the job ends.
        weight: u32,
    },
    /// This attempt holds a slot already.
    Duplicate(Grant),
    /// A later attempt of the job holds a slot here.
    Stale { held: Attempt },
    /// Nodes could do it, and none has room.
    Full {
        /// The number of such nodes.
        capable: u16,
        /// Free slots that are kept for rarer pairs.
        free: u32,
        /// What the cell has by weight.
        capacity: Capacity,
    },
    /// No node here can do it.
    NoneCapable,
    /// The pinned node cannot be used, and the pin is strict.
    PinLost(RejectReason),
}

/// How far a lease is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeasePhase {
    /// Waits for the node's ACK.
    Reserved,
    /// The node runs the job.
    Committed,
}

/// A lease that expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the types say it")]
pub struct ExpiredLease {
    pub key: LeaseKey,
    pub slot: Slot,
    pub phase: LeasePhase,
}

/// The reply to a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitReply {
    /// The run lease has begun.
    Committed(Fence),
    /// Another attempt of the job holds a slot here.
    Stale,
    /// There is no such lease (any more): the node must be told to stop.
    Gone,
}

/// A slot that was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freed {
    /// The node's slot.
    pub slot: Slot,
    /// Leases that the node still has.
    pub used: u16,
    /// Slots of the node.
    pub max: u16,
}

/// The reply to a clean-up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReapReply {
    /// Leases that were ended, oldest first.
    pub expired: Vec<ExpiredLease>,
    /// Nodes without a recent heartbeat, signed off or not, by slot.
    pub lapsed: Vec<LapsedNode>,
}

/// A node whose heartbeats have stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LapsedNode {
    /// The name that the node registered with.
    pub node: NodeId,
    /// Cell, slot and epoch of the incarnation that has gone.
    pub place: Place,
    /// Its state when the heartbeats stopped.
    pub state: NodeState,
    /// For how long it has not counted as alive.
    pub for_ms: u64,
}

/// A cell at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellRecord {
    /// The number of the cell that was read.
    pub cell: CellId,
    /// That moment, by the store's clock.
    pub now_ms: u64,
    /// The registered nodes, sorted by slot.
    pub nodes: Vec<NodeRecord>,
    /// The leases on these nodes, sorted by job and attempt.
    pub leases: Vec<LeaseRecord>,
}

/// A node at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRecord {
    /// The name that the node registered with.
    pub node: NodeId,
    /// Cell, slot and epoch of its present incarnation.
    pub place: Place,
    /// Its languages, services and slots.
    pub profile: Arc<Profile>,
    /// The health that the node last reported.
    pub health: Health,
    /// From its health and the commands to it.
    pub state: NodeState,
    /// An operator has ordered it to drain.
    pub drain_ordered: bool,
    /// As of the last heartbeat.
    pub load: Load,
    /// How fast it is.
    pub speed: NodeSpeed,
    /// The number of its leases.
    pub used: u16,
    /// With so many leases it gets more only if no other node is left.
    pub limit: u16,
    /// When the last heartbeat came.
    pub heartbeat_ms: u64,
    /// It counts as alive until then.
    pub fresh_until_ms: u64,
    /// Version of its software.
    pub version: Option<Arc<str>>,
    /// The instance that it is connected to.
    pub via: InstanceId,
}

/// A lease at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The attempt that holds it.
    pub key: LeaseKey,
    /// The node's slot.
    pub slot: Slot,
    /// The node's epoch.
    pub epoch: Epoch,
    /// Reserved or committed.
    pub phase: LeasePhase,
    /// The node refuses messages with a lower one.
    pub fence: Fence,
    /// It ends then unless it is renewed.
    pub deadline_ms: u64,
}

impl CellRecord {
    /// The cell as selection sees it, so that an explanation comes from the code that selects.
    pub fn roster(&self, rules: Rules) -> Roster {
        let mut roster = Roster::new(rules);
        self.nodes.iter().for_each(|node| node.enroll(&mut roster));
        roster
    }
}

impl NodeRecord {
    /// Puts the node into its slot of the roster.
    pub fn enroll(&self, roster: &mut Roster) {
        let status = NodeStatus {
            state: self.state,
            fresh_until_ms: self.fresh_until_ms,
            load: self.load,
            cost_ms: self.speed.cost_ms,
            used: self.used,
            limit: self.limit,
        };
        roster.enroll(self.place.slot, Arc::clone(&self.profile), status);
    }
}
