//! What every store does: the operations, and what they answer.
//!
//! Start at [`Store`]. The replies are plain data, so that two stores can be compared: **equal
//! histories get equal replies** (time is the store's own, chance comes in as an argument).
//!
//! | file | what |
//! |---|---|
//! | `cell.rs` | places, registrations, leases: what is atomic within a cell |
//! | `job.rs` | job records, their steps, orphans |
//! | `session.rs` | records of sessions |
//! | `cluster.rs` | leader, pool table, instances, bus, change feed |
//!
//! Every operation may be repeated after a timeout without doing its work twice; each says by what.

mod cell;
mod cluster;
mod job;
mod session;

pub use cell::*;
pub use cluster::*;
pub use job::*;
pub use session::*;

use std::future::Future;

use lingua_core::{Attempt, CellId, Epoch, InstanceId, JobId, NodeId, Term};

use crate::error::Result;

/// The shared state of a fleet.
///
/// Operations on a cell are atomic: each one sees the cell as the one before left it, from however
/// many instances they come.
pub trait Store: Send + Sync + 'static {
    /// Which life of the store the answers come from. It changes whenever confirmed writes may have
    /// been lost (another primary, a restart without its data), and it has changed before the first
    /// answer from the new life is given. Reading it costs nothing.
    fn identity(&self) -> StoreIdentity;

    /// Whether it can lose writes that it confirmed. If not, its identity never changes, and nobody
    /// needs to remember what it was told.
    fn may_forget(&self) -> bool {
        true
    }

    /// The store's clock: what deadlines in its records are held against.
    fn now_ms(&self) -> impl Future<Output = Result<u64>> + Send;

    /// Gives a node its place: the one it had, or a new one. A new incarnation of a known node gets
    /// a higher epoch. Idempotent by incarnation.
    fn assign(&self, request: AssignRequest) -> impl Future<Output = Result<Place>> + Send;

    /// Where a node is.
    fn locate(&self, node: &NodeId) -> impl Future<Output = Result<Option<Place>>> + Send;

    /// Frees the place of a node that is gone for good; says whether it was still this one's.
    fn release(&self, node: &NodeId, epoch: Epoch) -> impl Future<Output = Result<bool>> + Send;

    /// The cells that have nodes, in order.
    fn cells(&self) -> impl Future<Output = Result<Vec<CellId>>> + Send;

    /// Puts a node and what it can do into its place. A higher epoch ends the leases of the lower
    /// one. Idempotent by epoch.
    fn register(
        &self,
        registration: RegisterRequest,
    ) -> impl Future<Output = Result<RegisterReply>> + Send;

    /// Takes a node's sign of life and renews the leases of what it runs.
    fn heartbeat(
        &self,
        beat: HeartbeatRequest,
    ) -> impl Future<Output = Result<HeartbeatReply>> + Send;

    /// Drains, resumes, signs off or removes a node.
    fn set_state(
        &self,
        place: Place,
        order: NodeCommand,
    ) -> impl Future<Output = Result<NodeCommandReply>> + Send;

    /// Chooses a node of the cell and takes a slot on it, in one step. Idempotent by job and
    /// attempt while the lease lives.
    fn reserve(
        &self,
        cell: CellId,
        request: ReserveRequest,
    ) -> impl Future<Output = Result<ReserveReply>> + Send;

    /// Turns an ACK lease into a run lease.
    fn commit(
        &self,
        cell: CellId,
        key: LeaseKey,
        run_lease_ms: u64,
    ) -> impl Future<Output = Result<CommitReply>> + Send;

    /// Gives a slot back. A second time it changes nothing.
    fn finish(
        &self,
        cell: CellId,
        key: LeaseKey,
    ) -> impl Future<Output = Result<Option<Freed>>> + Send;

    /// Ends up to `limit` leases whose time is over, and names the nodes that have fallen silent.
    fn reap(&self, cell: CellId, limit: usize) -> impl Future<Output = Result<ReapReply>> + Send;

    /// Everything about a cell at one moment.
    fn view(&self, cell: CellId) -> impl Future<Output = Result<CellRecord>> + Send;

    /// Takes or renews the leadership. Idempotent by incarnation.
    fn elect(&self, candidate: ElectRequest) -> impl Future<Output = Result<ElectReply>> + Send;

    /// Gives the leadership up; says whether it was still held.
    fn resign(
        &self,
        instance: &InstanceId,
        term: Term,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Publishes the next version of the pool table, if the term is still the leader's.
    fn publish(&self, table: PublishRequest) -> impl Future<Output = Result<PublishReply>> + Send;

    /// The pool table published last.
    fn table(&self) -> impl Future<Output = Result<Option<PublishedTable>>> + Send;

    /// Writes down a job that was accepted. Idempotent by its id.
    fn create_job(&self, job: NewJob) -> impl Future<Output = Result<CreateReply>> + Send;

    /// Moves a job one step, if it stands where the caller thinks. Idempotent by the step's token.
    fn advance_job(
        &self,
        step: AdvanceRequest,
    ) -> impl Future<Output = Result<AdvanceReply>> + Send;

    /// A job's record.
    fn job(&self, job: JobId) -> impl Future<Output = Result<Option<JobRecord>>> + Send;

    /// Job records in the order of their ids, rising or falling.
    fn jobs(&self, filter: JobFilter) -> impl Future<Output = Result<Vec<JobRecord>>> + Send;

    /// Takes over up to `limit` open jobs whose instances are dead. If the reply is lost, they are
    /// found again with [`jobs`](Self::jobs) by owner.
    fn claim_orphans(
        &self,
        heir: &InstanceId,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<JobRecord>>> + Send;

    /// Writes what is to be known of a session, if nobody else has since. Idempotent by version and content.
    fn save_session(
        &self,
        session: SaveSessionRequest,
    ) -> impl Future<Output = Result<SaveSessionReply>> + Send;

    /// A session's record.
    fn session(&self, id: &str) -> impl Future<Output = Result<Option<SessionRecord>>> + Send;

    /// Says that an instance is there, and for how long that may be believed.
    fn announce(
        &self,
        presence: AnnounceRequest,
    ) -> impl Future<Output = Result<AnnounceReply>> + Send;

    /// Says that an instance leaves; says whether it was known.
    fn withdraw(
        &self,
        instance: &InstanceId,
        incarnation: Incarnation,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// The instances that are or were there, by name.
    fn instances(&self) -> impl Future<Output = Result<Vec<InstanceRecord>>> + Send;

    /// Puts a message into an instance's inbox: at least once, in order.
    fn send(
        &self,
        to: &InstanceId,
        message: Bytes,
    ) -> impl Future<Output = Result<BusDelivery>> + Send;

    /// Drops what came up to `after` and gives what came since; waits until there is something.
    fn receive(
        &self,
        me: &InstanceId,
        after: u64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Envelope>>> + Send;

    /// The number of the newest change.
    fn feed_head(&self) -> impl Future<Output = Result<u64>> + Send;

    /// The changes after this one; waits until there is something. A gap means: load all anew.
    fn changes(&self, after: u64, limit: usize) -> impl Future<Output = Result<Changes>> + Send;
}

/// Names one lease: everything about a try names its attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseKey {
    /// The job.
    pub job: JobId,
    /// Which try of it.
    pub attempt: Attempt,
}

// Opaque content: a store keeps it, returns it, and never reads it.
pub use bytes::Bytes;

/// Tells one life of a store from the next: see [`Store::identity`]. Only equality means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreIdentity(pub u64);

/// Tells one life of a process or connection from the next: a random number drawn at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Incarnation(pub u64);
