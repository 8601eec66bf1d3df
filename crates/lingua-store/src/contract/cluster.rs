//! Leader, pool table, instances, bus and change feed.

use lingua_core::{CellId, Epoch, InstanceId, NodeId, Slot, Term};

use super::{Bytes, Incarnation};

/// Most bytes of a pool table.
pub const TABLE_BYTES_MAX: usize = 4 << 20;

/// Most bytes of a message on the bus: the largest frame of a node, with its audio as base64.
pub const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// Most bytes of an instance's address.
pub const ADDRESS_BYTES_MAX: usize = 256;

/// An instance wants to lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectRequest {
    /// The instance that wants to lead, or to go on leading.
    pub instance: InstanceId,
    /// An earlier incarnation of the candidate counts as another instance.
    pub incarnation: Incarnation,
    /// How long the leadership lasts unless it is renewed.
    pub lease_ms: u64,
}

/// Who leads after the election. The term rises with each change of the leader, and the lease ends
/// at `until_ms` unless it is renewed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum ElectReply {
    /// The caller leads until its term expires.
    Leading { term: Term, until_ms: u64 },
    /// Another instance, or an earlier incarnation of the caller.
    Following { leader: InstanceId, term: Term, until_ms: u64 },
}

/// The leader publishes a pool table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishRequest {
    /// The instance that leads now.
    pub instance: InstanceId,
    /// Must be the present term.
    pub term: Term,
    /// The version that this one replaces; 0 for the first.
    pub replaces: u64,
    /// The content, at most [`TABLE_BYTES_MAX`].
    pub table: Bytes,
}

/// The reply to a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishReply {
    /// Published with this version.
    Published(u64),
    /// The term has ended.
    NotLeader,
    /// The present version, which is not the one to be replaced.
    Conflict(u64),
}

/// The pool table that was published last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedTable {
    /// Rises by one with each publication.
    pub version: u64,
    /// The term in which it was published.
    pub term: Term,
    /// By the store's clock.
    pub published_ms: u64,
    /// The encoded table; the store does not look inside.
    pub table: Bytes,
}

/// An instance reports that it is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnounceRequest {
    /// The instance that announces itself.
    pub instance: InstanceId,
    /// Drawn when the process started.
    pub incarnation: Incarnation,
    /// Its host and port, for people; at most [`ADDRESS_BYTES_MAX`].
    pub address: String,
    /// It counts as alive this long.
    pub lease_ms: u64,
}

/// The reply to an announcement.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum AnnounceReply {
    /// The presence is recorded under this incarnation.
    Present,
    /// Another process has this name and counts as alive until then: choose another name.
    NameTaken { until_ms: u64 },
}

/// An instance at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceRecord {
    /// The name that the instance announced.
    pub instance: InstanceId,
    /// Drawn when the process started.
    pub incarnation: Incarnation,
    /// Its host and port, for people.
    pub address: String,
    /// It counts as alive until then.
    pub until_ms: u64,
    /// Whether `until_ms` has not passed.
    pub alive: bool,
}

/// The reply to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusDelivery {
    /// It is in the inbox.
    Sent,
    /// No such instance is alive.
    NoInstance,
    /// The inbox is full: its reader has stopped.
    InboxFull,
}

/// A message in an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Rises within one inbox.
    pub seq: u64,
    /// The content, at most [`MESSAGE_BYTES_MAX`].
    pub message: Bytes,
}

/// Names what has changed; the reader loads it again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the types say it")]
pub enum Change {
    /// A node came, went, or changed its state or capabilities.
    Node { cell: CellId, slot: Slot, epoch: Epoch, node: NodeId },
    /// Another instance leads.
    Leader(Term),
    /// A new version of the pool table was published.
    Table(u64),
    /// An instance came or left.
    Instance(InstanceId),
}

/// A part of the change feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// In order. Empty after a gap.
    pub changes: Vec<Change>,
    /// The next call's `after`.
    pub next: u64,
    /// Changes were missed: reload everything, then continue from `next`.
    pub gap: bool,
}
