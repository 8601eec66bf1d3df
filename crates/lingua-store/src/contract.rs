//! The operations of every store, and their replies.
//!
//! Start at [`Store`]. Replies are plain data, so that two stores can be compared: **equal
//! histories get equal replies**. Time is the store's own, and randomness is an argument.
//!
//! | file | contents |
//! |---|---|
//! | `cell.rs` | places, registrations, leases: what is atomic within a cell |
//! | `job.rs` | job records, their steps, pages of jobs |
//! | `session.rs` | session records |
//! | `cluster.rs` | leader, pool table, instances, bus, change feed |
//!
//! Every operation may be repeated after a timeout; its doc line says what makes it idempotent.

mod cell;
mod cluster;
mod job;
mod session;

/// Opaque content: a store keeps it, returns it, and never reads it.
pub use bytes::Bytes;
pub use cell::*;
pub use cluster::*;
pub use job::*;
pub use session::*;

use std::future::Future;

use lingua_core::{Attempt, CellId, Epoch, InstanceId, JobId, NodeId, Term};

use crate::error::Result;

/// The shared state of a fleet.
///
/// Operations on one cell are atomic, from however many instances they come.
pub trait Store: Send + Sync + 'static {
    /// Which incarnation of the store replies. It changes whenever confirmed writes may have been
    /// lost (another primary, a restart without its data), and it changes before the first reply of
    /// the new incarnation is returned. Reading it costs nothing.
    fn identity(&self) -> StoreIdentity;

    /// Whether confirmed writes can be lost. If not, the identity never changes.
    fn may_forget(&self) -> bool {
        true
    }

    /// The store's clock: deadlines in its records are compared with it.
    fn now_ms(&self) -> impl Future<Output = Result<u64>> + Send;

    /// Gives a node its place: the one that it had, or a new one. A new incarnation of a known node
    /// gets a higher epoch. Idempotent by incarnation.
    fn assign(&self, request: AssignRequest) -> impl Future<Output = Result<Place>> + Send;

    /// The place of a node.
    fn locate(&self, node: &NodeId) -> impl Future<Output = Result<Option<Place>>> + Send;

    /// Frees the place of a node that is gone for good. False if this epoch does not hold it.
    fn release(&self, node: &NodeId, epoch: Epoch) -> impl Future<Output = Result<bool>> + Send;

    /// The cells that have nodes, in order.
    fn cells(&self) -> impl Future<Output = Result<Vec<CellId>>> + Send;

    /// Writes a node and its capabilities into its place. A higher epoch ends the leases of the
    /// lower one. Idempotent by epoch.
    fn register(
        &self,
        request: RegisterRequest,
    ) -> impl Future<Output = Result<RegisterReply>> + Send;

    /// Records that a node is alive and renews the leases of its running jobs.
    fn heartbeat(
        &self,
        request: HeartbeatRequest,
    ) -> impl Future<Output = Result<HeartbeatReply>> + Send;

    /// Drains, resumes, signs off or removes a node.
    fn set_state(
        &self,
        place: Place,
        command: NodeCommand,
    ) -> impl Future<Output = Result<NodeCommandReply>> + Send;

    /// Selects a node of the cell and takes a slot on it, in one step. Idempotent by job and
    /// attempt while the lease exists.
    fn reserve(
        &self,
        cell: CellId,
        request: ReserveRequest,
    ) -> impl Future<Output = Result<ReserveReply>> + Send;

    /// Extends a lease from the ACK deadline to the run deadline.
    fn commit(
        &self,
        cell: CellId,
        key: LeaseKey,
        run_lease_ms: u64,
    ) -> impl Future<Output = Result<CommitReply>> + Send;

    /// Gives a slot back. The second time it changes nothing.
    fn finish(
        &self,
        cell: CellId,
        key: LeaseKey,
    ) -> impl Future<Output = Result<Option<Freed>>> + Send;

    /// Ends up to `limit` expired leases and lists the nodes whose heartbeats have lapsed.
    fn reap(&self, cell: CellId, limit: usize) -> impl Future<Output = Result<ReapReply>> + Send;

    /// The whole state of a cell at one moment.
    fn view(&self, cell: CellId) -> impl Future<Output = Result<CellRecord>> + Send;

    /// Takes or renews the leadership. Idempotent by incarnation.
    fn elect(&self, request: ElectRequest) -> impl Future<Output = Result<ElectReply>> + Send;

    /// Gives up the leadership. False if it was not held.
    fn resign(
        &self,
        instance: &InstanceId,
        term: Term,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Publishes the next version of the pool table, if the term is still the leader's.
    fn publish(&self, request: PublishRequest)
    -> impl Future<Output = Result<PublishReply>> + Send;

    /// The pool table that was published last.
    fn table(&self) -> impl Future<Output = Result<Option<PublishedTable>>> + Send;

    /// Writes the record of a job that was accepted. Idempotent by the job's id.
    fn create_job(&self, job: NewJob) -> impl Future<Output = Result<CreateReply>> + Send;

    /// Moves a job, if its stage and owner are what the caller expects. Idempotent by token.
    fn advance_job(
        &self,
        request: AdvanceRequest,
    ) -> impl Future<Output = Result<AdvanceReply>> + Send;

    /// The record of a job.
    fn job(&self, job: JobId) -> impl Future<Output = Result<Option<JobRecord>>> + Send;

    /// A page of job records. The work of one call is bounded; see [`JobPage`].
    fn jobs(&self, filter: JobFilter) -> impl Future<Output = Result<JobPage>> + Send;

    /// Takes over up to `limit` open jobs whose instances are dead. If the reply is lost,
    /// [`jobs`](Self::jobs) finds them as open jobs of the heir.
    fn claim_orphans(
        &self,
        heir: &InstanceId,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<JobRecord>>> + Send;

    /// Writes the record of a session, if its version is what the caller expects. Idempotent by
    /// version and content.
    fn save_session(
        &self,
        request: SaveSessionRequest,
    ) -> impl Future<Output = Result<SaveSessionReply>> + Send;

    /// The record of a session.
    fn session(&self, id: &str) -> impl Future<Output = Result<Option<SessionRecord>>> + Send;

    /// Records that an instance is alive, for as long as its lease.
    fn announce(
        &self,
        request: AnnounceRequest,
    ) -> impl Future<Output = Result<AnnounceReply>> + Send;

    /// Removes an instance that stops. False if it was not known.
    fn withdraw(
        &self,
        instance: &InstanceId,
        incarnation: Incarnation,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// All known instances, alive or not, by name.
    fn instances(&self) -> impl Future<Output = Result<Vec<InstanceRecord>>> + Send;

    /// Puts a message into an instance's inbox: at least once, in order.
    fn send(
        &self,
        to: &InstanceId,
        message: Bytes,
    ) -> impl Future<Output = Result<BusDelivery>> + Send;

    /// Drops the messages up to `after` and returns the next ones; waits until there are any.
    fn receive(
        &self,
        me: &InstanceId,
        after: u64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Envelope>>> + Send;

    /// The number of the newest change.
    fn feed_head(&self) -> impl Future<Output = Result<u64>> + Send;

    /// The changes after this one; waits until there are any. A gap means: reload everything.
    fn changes(&self, after: u64, limit: usize) -> impl Future<Output = Result<Changes>> + Send;
}

/// Calls another macro with the list of the store's asynchronous operations, for stores that
/// forward each of them.
#[macro_export]
macro_rules! with_store_operations {
    ($then:ident) => {
        $then! {
            now_ms() -> u64;
            assign(request: $crate::contract::AssignRequest) -> $crate::contract::Place;
            locate(node: &lingua_core::NodeId) -> Option<$crate::contract::Place>;
            release(node: &lingua_core::NodeId, epoch: lingua_core::Epoch) -> bool;
            cells() -> Vec<lingua_core::CellId>;
            register(request: $crate::contract::RegisterRequest)
                -> $crate::contract::RegisterReply;
            heartbeat(request: $crate::contract::HeartbeatRequest)
                -> $crate::contract::HeartbeatReply;
            set_state(place: $crate::contract::Place, command: $crate::contract::NodeCommand)
                -> $crate::contract::NodeCommandReply;
            reserve(cell: lingua_core::CellId, request: $crate::contract::ReserveRequest)
                -> $crate::contract::ReserveReply;
            commit(cell: lingua_core::CellId, key: $crate::contract::LeaseKey, run_lease_ms: u64)
                -> $crate::contract::CommitReply;
            finish(cell: lingua_core::CellId, key: $crate::contract::LeaseKey)
                -> Option<$crate::contract::Freed>;
            reap(cell: lingua_core::CellId, limit: usize) -> $crate::contract::ReapReply;
            view(cell: lingua_core::CellId) -> $crate::contract::CellRecord;
            elect(request: $crate::contract::ElectRequest) -> $crate::contract::ElectReply;
            resign(instance: &lingua_core::InstanceId, term: lingua_core::Term) -> bool;
            publish(request: $crate::contract::PublishRequest) -> $crate::contract::PublishReply;
            table() -> Option<$crate::contract::PublishedTable>;
            create_job(job: $crate::contract::NewJob) -> $crate::contract::CreateReply;
            advance_job(request: $crate::contract::AdvanceRequest)
                -> $crate::contract::AdvanceReply;
            job(job: lingua_core::JobId) -> Option<$crate::contract::JobRecord>;
            jobs(filter: $crate::contract::JobFilter) -> $crate::contract::JobPage;
            claim_orphans(heir: &lingua_core::InstanceId, limit: usize)
                -> Vec<$crate::contract::JobRecord>;
            save_session(request: $crate::contract::SaveSessionRequest)
                -> $crate::contract::SaveSessionReply;
            session(id: &str) -> Option<$crate::contract::SessionRecord>;
            announce(request: $crate::contract::AnnounceRequest)
                -> $crate::contract::AnnounceReply;
            withdraw(instance: &lingua_core::InstanceId,
                incarnation: $crate::contract::Incarnation) -> bool;
            instances() -> Vec<$crate::contract::InstanceRecord>;
            send(to: &lingua_core::InstanceId, message: $crate::contract::Bytes)
                -> $crate::contract::BusDelivery;
            receive(me: &lingua_core::InstanceId, after: u64, limit: usize)
                -> Vec<$crate::contract::Envelope>;
            feed_head() -> u64;
            changes(after: u64, limit: usize) -> $crate::contract::Changes;
        }
    };
}

/// Names one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseKey {
    /// The job that holds the slot.
    pub job: JobId,
    /// Its attempt: a message about another attempt does not concern this lease.
    pub attempt: Attempt,
}

/// Identifies one incarnation of a store: see [`Store::identity`]. Compare for equality only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreIdentity(pub u64);

/// Identifies one incarnation of a process or connection: a random number drawn at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Incarnation(pub u64);
