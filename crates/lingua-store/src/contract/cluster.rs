//! Leader, pool table, instances, bus and change feed.

use lingua_core::{CellId, Epoch, InstanceId, NodeId, Slot, Term};

use super::{Bytes, Incarnation};

/// Most bytes of a pool table.
pub const TABLE_BYTES_MAX: usize = 4 << 20;

/// Most bytes of a message on the bus: the largest frame of a node, with its sound written as text.
pub const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// Longest address of an instance.
pub const ADDRESS_BYTES_MAX: usize = 256;

/// Wants to lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectRequest {
    /// Who.
    pub instance: InstanceId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// For how long.
    pub lease_ms: u64,
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElectReply {
    /// The caller.
    Leading {
        /// Its term.
        term: Term,
        /// Until when, unless renewed.
        until_ms: u64,
    },
    /// Somebody else, or an earlier life of the caller whose lease still runs.
    Following {
        /// Who.
        leader: InstanceId,
        /// Its term.
        term: Term,
        /// Until when, unless renewed.
        until_ms: u64,
    },
}

/// A pool table to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishRequest {
    /// Who publishes.
    pub instance: InstanceId,
    /// In which term.
    pub term: Term,
    /// The version that it replaces; 0 for the first.
    pub replaces: u64,
    /// The table.
    pub table: Bytes,
}

/// What publishing answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishReply {
    /// It is out, with this version.
    Published(u64),
    /// The term is over.
    NotLeader,
    /// The version is another one already.
    Conflict(u64),
}

/// The pool table published last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedTable {
    /// Rises by one with each publication.
    pub version: u64,
    /// The term it was published in.
    pub term: Term,
    /// When.
    pub published_ms: u64,
    /// The table.
    pub table: Bytes,
}

/// An instance that says it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnounceRequest {
    /// Who.
    pub instance: InstanceId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// Where people find it.
    pub address: String,
    /// For how long that may be believed.
    pub lease_ms: u64,
}

/// What an announcement answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnnounceReply {
    /// Taken.
    Present,
    /// Another process with the same name is alive: choose another name.
    NameTaken {
        /// Until when, unless renewed.
        until_ms: u64,
    },
}

/// An instance at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceRecord {
    /// Who.
    pub instance: InstanceId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// Where people find it.
    pub address: String,
    /// Until when it is believed to be alive.
    pub until_ms: u64,
    /// Whether that is now.
    pub alive: bool,
}

/// What sending answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusDelivery {
    /// In the inbox.
    Sent,
    /// No such instance is alive.
    NoInstance,
    /// Its inbox is full: it has stopped reading.
    InboxFull,
}

/// A message in an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Its number, rising in each inbox.
    pub seq: u64,
    /// What it says.
    pub message: Bytes,
}

/// Something that is different now. It names what to look at, not what it has become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A node came, went, or is in another state.
    Node {
        /// Its cell.
        cell: CellId,
        /// Its slot.
        slot: Slot,
        /// Its incarnation.
        epoch: Epoch,
        /// Who.
        node: NodeId,
    },
    /// Another instance leads.
    Leader(Term),
    /// A new pool table is out.
    Table(u64),
    /// An instance came or left.
    Instance(InstanceId),
}

/// A piece of the change feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// What changed, in order. Empty if there was a gap.
    pub changes: Vec<Change>,
    /// Where to go on.
    pub next: u64,
    /// Changes were missed: load everything anew, then go on from `next`.
    pub gap: bool,
}
