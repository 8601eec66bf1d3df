//! The operations of every store, and their replies.
//!
//! Start at [`Store`]; its operations are listed in [`with_store_operations!`]. Replies are plain
//! data, so that two stores can be compared: **equal histories get equal replies**. Time is the
//! store's own, and randomness is an argument.
//!
//! | file | contents |
//! |---|---|
//! | `cell.rs` | places, registrations, leases: what is atomic within a cell |
//! | `job.rs` | job records, their steps, pages of jobs |
//! | `key.rs` | idempotency keys |
//! | `session.rs` | session records |
//! | `binding.rs` | which node the jobs of a bind key go to |
//! | `usage.rs` | what tenants have used |
//! | `cluster.rs` | leader, pool table, instances, bus, change feed |
//!
//! Every operation may be repeated after a timeout; its doc line says what makes it idempotent.
//!
//! [`with_store_operations!`]: crate::with_store_operations

mod binding;
mod cell;
mod cluster;
mod job;
mod key;
mod session;
mod usage;

pub use binding::*;
/// Opaque content: a store keeps it, returns it, and never reads it.
pub use bytes::Bytes;
pub use cell::*;
pub use cluster::*;
pub use job::*;
pub use key::*;
pub use session::*;
pub use usage::*;

use std::future::Future;

pub use lingua_core::job::AttemptOutcome;
use lingua_core::{Attempt, CellId, Epoch, InstanceId, JobId, NodeId, Tenant, Term};

use crate::error::Result;

/// Calls another macro with the list of the store's asynchronous operations: for the trait itself,
/// and for stores that forward each of them. The caller imports `lingua_store::contract::*` and the
/// ids of `lingua_core`.
#[macro_export]
macro_rules! with_store_operations {
    ($then:ident) => {
        $then! {
            /// The store's clock: deadlines in its records are compared with it.
            now_ms() -> u64;

            /// Gives a node its place: the one that it had, or a new one. A new incarnation of a
            /// known node gets a higher epoch. Refused if the node belongs to another token.
            /// Idempotent by incarnation.
            assign(request: AssignRequest) -> AssignReply;
            /// The place of a node.
            locate(node: &NodeId) -> Option<Place>;
            /// Frees the place of a node that is gone for good. False if this epoch does not hold
            /// it.
            release(node: &NodeId, epoch: Epoch) -> bool;
            /// The cells that have nodes, in order.
            cells() -> Vec<CellId>;

            /// Writes a node and its capabilities into its place. A higher epoch ends the leases of
            /// the lower one. Idempotent by epoch.
            register(request: RegisterRequest) -> RegisterReply;
            /// Records that a node is alive and renews the leases of its running jobs.
            heartbeat(request: HeartbeatRequest) -> HeartbeatReply;
            /// Drains, resumes, signs off or removes a node.
            set_state(place: Place, command: NodeCommand) -> NodeCommandReply;
            /// Selects a node of the cell and takes a slot on it, in one step. Idempotent by job
            /// and attempt while the lease exists.
            reserve(cell: CellId, request: ReserveRequest) -> ReserveReply;
            /// Extends a lease from the ACK deadline to the run deadline.
            commit(cell: CellId, key: LeaseKey, run_lease_ms: u64) -> CommitReply;
            /// Gives a slot back; the outcome changes the node's limit. The second time it changes
            /// nothing.
            finish(cell: CellId, key: LeaseKey, outcome: AttemptOutcome) -> Option<Freed>;
            /// Ends up to `limit` expired leases and lists the nodes whose heartbeats have lapsed.
            reap(cell: CellId, limit: usize) -> ReapReply;
            /// The whole state of a cell at one moment.
            view(cell: CellId) -> CellRecord;

            /// Takes or renews the leadership. Idempotent by incarnation.
            elect(request: ElectRequest) -> ElectReply;
            /// Gives up the leadership. False if it was not held.
            resign(instance: &InstanceId, term: Term) -> bool;
            /// Publishes the next version of the pool table, if the term is still the leader's.
            publish(request: PublishRequest) -> PublishReply;
            /// The pool table that was published last.
            table() -> Option<PublishedTable>;

            /// Writes the record of a job that was accepted. Idempotent by the job's id.
            create_job(job: NewJob) -> CreateReply;
            /// Moves a job, if its stage and owner are what the caller expects. Idempotent by
            /// token.
            advance_job(request: AdvanceRequest) -> AdvanceReply;
            /// The record of a job.
            job(job: JobId) -> Option<JobRecord>;
            /// A page of job records. The work of one call is bounded; see [`JobPage`].
            jobs(filter: JobFilter) -> JobPage;
            /// Takes over up to `limit` open jobs whose instances are dead. If the reply is lost,
            /// [`jobs`](Self::jobs) finds them as open jobs of the heir.
            claim_orphans(heir: &InstanceId, limit: usize) -> Vec<JobRecord>;

            /// Removes the record of a job that has ended. The second time there is none.
            erase_job(job: JobId) -> EraseReply;

            /// Adds what an instance has counted, unless a batch of this incarnation with this
            /// number or a later one was added before. Batches are numbered from 1.
            add_usage(batch: UsageBatch) -> bool;
            /// What was counted, by day, then by tenant: days of [`USAGE_DAYS`] at most.
            usage(tenant: Option<Tenant>) -> Vec<UsageRecord>;

            /// Lets an idempotency key stand for a job, unless it stands for another one that it is
            /// not taken from. A key is kept for as long as an ended job, from its claim on.
            /// Idempotent by the job.
            claim_key(request: ClaimKeyRequest) -> ClaimKeyReply;

            /// Writes the record of a session, if its version is what the caller expects.
            /// Idempotent by version and content.
            save_session(request: SaveSessionRequest) -> SaveSessionReply;
            /// The record of a session.
            session(id: &str) -> Option<SessionRecord>;

            /// Binds a key to a node, if it is bound to the node that the caller expects.
            /// Idempotent by key and node.
            bind(request: BindRequest) -> BindReply;
            /// Which node a key of this tenant is bound to.
            binding(tenant: Tenant, key: &str) -> Option<BindingRecord>;

            /// Records that an instance is alive, for as long as its lease.
            announce(request: AnnounceRequest) -> AnnounceReply;
            /// Removes an instance that stops. False if it was not known.
            withdraw(instance: &InstanceId, incarnation: Incarnation) -> bool;
            /// All known instances, alive or not, by name.
            instances() -> Vec<InstanceRecord>;
            /// Puts a message into an instance's inbox: at least once, in order.
            send(to: &InstanceId, message: Bytes) -> BusDelivery;
            /// Drops the messages up to `after` and returns the next ones; waits until there are
            /// any.
            receive(me: &InstanceId, after: u64, limit: usize) -> Vec<Envelope>;

            /// The number of the newest change.
            feed_head() -> u64;
            /// The changes after this one; waits until there are any. A gap means: reload
            /// everything.
            changes(after: u64, limit: usize) -> Changes;
        }
    };
}

macro_rules! define_store {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $Type:ty),*) -> $Reply:ty;)*) => {
        /// The shared state of a fleet.
        ///
        /// Operations on one cell are atomic, from however many instances they come.
        pub trait Store: Send + Sync + 'static {
            /// Which incarnation of the store replies. It changes whenever confirmed writes may
            /// have been lost (another primary, a restart without its data), and it changes before
            /// the first reply of the new incarnation is returned. Reading it costs nothing.
            fn identity(&self) -> StoreIdentity;

            /// Bytes of ended jobs that the store holds in the memory of this process.
            fn ended_bytes(&self) -> usize {
                0
            }

            /// How many records could not be read and were left out of lists.
            fn unreadable_records(&self) -> u64 {
                0
            }

            /// Whether confirmed writes can be lost. If not, the identity never changes.
            fn may_forget(&self) -> bool {
                true
            }

            $(
                $(#[$doc])*
                fn $name(&self, $($arg: $Type),*) -> impl Future<Output = Result<$Reply>> + Send;
            )*
        }
    };
}

with_store_operations!(define_store);

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
