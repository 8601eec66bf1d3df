//! The store in memory: the default, for one process with nothing else installed.
//!
//! Start at [`Embedded`]; a lease is taken in `Cell::reserve`. Each cell has its own lock, as
//! each cell of a shared store has its own script. No operation holds two locks, and none holds a
//! lock across an await. Opened on a directory, the store writes there what must survive a restart:
//! see [`Embedded::open`].
//!
//! | file | contents |
//! |---|---|
//! | `cell.rs` | nodes, leases, reservations |
//! | `directory.rs` | which node is in which cell |
//! | `jobs.rs` | job records |
//! | `keys.rs` | idempotency keys |
//! | `sessions.rs` | session records |
//! | `bindings.rs` | which node the jobs of a bind key go to |
//! | `usage.rs` | what tenants have used |
//! | `leader.rs` | leader and pool table |
//! | `instances.rs` | instances and inboxes |
//! | `feed.rs` | change feed |
//! | `open.rs` | opening a data directory |
//! | `journal.rs` | writing to it |
//! | `snapshot.rs` | going back to an earlier state, for simulations (a feature) |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lingua_core::job::AttemptOutcome;
use lingua_core::{
    CELLS_MAX, CellId, Epoch, InstanceId, JobId, NodeId, Rules, Tenant, Term, with_defaults,
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::contract::*;
use crate::error::{Result, StoreError};

mod bindings;
mod cell;
mod directory;
mod feed;
mod instances;
mod jobs;
mod journal;
mod keys;
mod leader;
mod open;
mod sessions;
#[cfg(feature = "snapshot")]
mod snapshot;
mod usage;

#[cfg(feature = "decoders")]
pub use journal::decoders::read_journal_rows;
pub use open::OpenError;
#[cfg(feature = "snapshot")]
pub use snapshot::{LostWrites, StoreSnapshot};

use bindings::BindingTable;
use cell::{Cell, CellReply};
use directory::Directory;
use feed::Feed;
use instances::Instances;
use jobs::Jobs;
use journal::{ChangeLog, Journal};
use keys::KeyTable;
use leader::Leadership;
use sessions::SessionTable;
use usage::UsageTable;

with_defaults! {
    /// How much a store keeps at most.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct StoreLimits {
        /// Jobs that have not ended; further ones are refused.
        pub open_jobs_max: usize = 100_000,
        /// Jobs that have ended; the oldest are dropped first.
        pub ended_jobs_max: usize = 100_000,
        /// Bytes of ended jobs, specification and outcome; the oldest are dropped first.
        pub ended_bytes_max: usize = 256 << 20,
        /// How long an ended job is kept, and an idempotency key after its claim.
        pub job_record_ms: u64 = 3_600_000,
        /// Idempotency keys; the oldest are dropped first.
        pub keys_max: usize = 100_000,
        /// Messages in one inbox; further ones are refused.
        pub inbox_max: usize = 10_000,
        /// Instances that are alive; further ones are refused.
        pub instances_max: usize = 1000,
        /// Changes in the feed; a reader that is further behind must reload.
        pub feed_max: usize = 4096,
        /// Sessions that can be resumed; further ones are refused.
        pub sessions_max: usize = 100_000,
        /// Bindings of keys to nodes in the embedded store; the oldest are dropped first. In a
        /// shared store they expire.
        pub bindings_max: usize = 100_000,
    }
}

/// The store in memory. Clones share it.
#[derive(Debug)]
pub struct Embedded<C> {
    inner: Arc<Inner<C>>,
}

#[derive(Debug)]
struct Inner<C> {
    clock: C,
    cells: Box<[Aligned<Mutex<Cell>>]>,
    directory: Mutex<Directory>,
    jobs: Mutex<Jobs>,
    keys: Mutex<KeyTable>,
    leadership: Mutex<Leadership>,
    instances: Mutex<Instances>,
    sessions: Mutex<SessionTable>,
    bindings: Mutex<BindingTable>,
    usage: Mutex<UsageTable>,
    message_sent: Notify,
    feed: Mutex<Feed>,
    change_pushed: Notify,
    journal: Option<Journal>,
    /// Rises when writes are lost, which happens in simulations only.
    identity: AtomicU64,
    /// Set once a snapshot was taken: the store may be rolled back to it.
    may_forget: AtomicBool,
}

/// Puts the locks of neighbouring cells into different cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Aligned<T>(T);

impl<C> Inner<C> {
    fn new(rules: Rules, limits: StoreLimits, clock: C) -> Self {
        let cell = |i| CellId::new(i).map(|id| Aligned(Mutex::new(Cell::new(id, rules))));
        Self {
            clock,
            cells: (0..CELLS_MAX).filter_map(cell).collect(),
            directory: Mutex::default(),
            jobs: Mutex::new(Jobs::new(limits)),
            keys: Mutex::new(KeyTable::new(limits)),
            leadership: Mutex::default(),
            instances: Mutex::new(Instances::new(limits)),
            sessions: Mutex::new(SessionTable::new(limits)),
            bindings: Mutex::new(BindingTable::new(limits)),
            usage: Mutex::default(),
            message_sent: Notify::new(),
            feed: Mutex::new(Feed::new(limits.feed_max)),
            change_pushed: Notify::new(),
            journal: None,
            identity: AtomicU64::new(0),
            may_forget: AtomicBool::new(false),
        }
    }
}

impl<C> Clone for Embedded<C> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<C: Clock> Embedded<C> {
    /// An empty store.
    pub fn new(rules: Rules, limits: StoreLimits, clock: C) -> Self {
        Self { inner: Inner::new(rules, limits, clock).into() }
    }

    fn now_ms(&self) -> u64 {
        self.inner.clock.now_ms()
    }

    fn cell(&self, cell: CellId) -> MutexGuard<'_, Cell> {
        self.inner.cells[cell.index()].0.lock()
    }

    /// Runs one operation on a cell. Reads the clock under the lock, so that time never goes
    /// backwards within a cell.
    fn on_cell<T>(&self, cell: CellId, operation: impl FnOnce(&mut Cell, u64) -> T) -> T {
        let mut cell = self.cell(cell);
        let now_ms = self.now_ms();
        operation(&mut cell, now_ms)
    }

    /// Runs an operation on a durable part, and replies once what it wrote or read is on disk.
    async fn write_durably<P: AsMut<ChangeLog>, T>(
        &self,
        part: &Mutex<P>,
        operation: impl FnOnce(&mut P, u64) -> T,
    ) -> Result<T> {
        let Some(journal) = &self.inner.journal else {
            let mut part = part.lock();
            return Ok(operation(&mut part, self.now_ms()));
        };
        let slot = journal.queue_slot().await?;
        let (reply, commit) = {
            let mut part = part.lock();
            let now_ms = self.now_ms();
            let reply = operation(&mut part, now_ms);
            (reply, journal.append(slot, part.as_mut(), now_ms))
        };
        if let Some(commit) = commit {
            journal.wait(commit).await?;
        }
        Ok(reply)
    }

    /// Reads a durable part, and replies once what it read is on disk.
    async fn read_durably<P, T>(
        &self,
        part: &Mutex<P>,
        read: impl FnOnce(&P, u64) -> T,
    ) -> Result<T> {
        let (reply, unflushed) = {
            let part = part.lock();
            let reply = read(&part, self.now_ms());
            (reply, self.inner.journal.as_ref().filter(|journal| !journal.is_flushed()))
        };
        if let Some(journal) = unflushed {
            journal.flush().await?;
        }
        Ok(reply)
    }

    fn publish_node<T>(&self, (reply, change): CellReply<T>) -> T {
        change.into_iter().for_each(|change| self.push_change(change));
        reply
    }

    fn push_change(&self, change: Change) {
        self.inner.feed.lock().push(change);
        self.inner.change_pushed.notify_waiters();
    }
}

impl<C: Clock> Store for Embedded<C> {
    fn identity(&self) -> StoreIdentity {
        StoreIdentity(self.inner.identity.load(Ordering::SeqCst))
    }

    fn ended_bytes(&self) -> usize {
        self.inner.jobs.lock().ended_bytes()
    }

    fn may_forget(&self) -> bool {
        self.inner.may_forget.load(Ordering::Relaxed)
    }

    async fn now_ms(&self) -> Result<u64> {
        Ok(Embedded::now_ms(self))
    }

    async fn assign(&self, request: AssignRequest) -> Result<AssignReply> {
        self.write_durably(&self.inner.directory, |nodes, now| nodes.assign(request, now)).await?
    }

    async fn locate(&self, node: &NodeId) -> Result<Option<Place>> {
        self.read_durably(&self.inner.directory, |nodes, _| nodes.locate(node)).await
    }

    async fn release(&self, node: &NodeId, epoch: Epoch) -> Result<bool> {
        self.write_durably(&self.inner.directory, |nodes, _| nodes.release(node, epoch)).await
    }

    async fn cells(&self) -> Result<Vec<CellId>> {
        Ok(self.inner.directory.lock().cells())
    }

    async fn register(&self, request: RegisterRequest) -> Result<RegisterReply> {
        let changed = self.on_cell(request.place.cell, |cell, now| cell.register(request, now));
        Ok(self.publish_node(changed))
    }

    async fn heartbeat(&self, request: HeartbeatRequest) -> Result<HeartbeatReply> {
        let changed = self.on_cell(request.place.cell, |cell, now| cell.heartbeat(request, now));
        Ok(self.publish_node(changed))
    }

    async fn set_state(&self, place: Place, command: NodeCommand) -> Result<NodeCommandReply> {
        let (changed, drain) = {
            let mut cell = self.cell(place.cell);
            let changed = cell.set_state(place, command, self.now_ms());
            (changed, cell.last_drain_command(place, command))
        };
        if let (Some((node, number)), Some(_)) = (drain, &self.inner.journal) {
            let drain = command == NodeCommand::Drain;
            let record = |nodes: &mut Directory, _| nodes.record_drain(node, number, drain);
            self.write_durably(&self.inner.directory, record).await?;
        }
        Ok(self.publish_node(changed))
    }

    async fn reserve(&self, cell: CellId, request: ReserveRequest) -> Result<ReserveReply> {
        Ok(self.on_cell(cell, |cell, now| cell.reserve(&request, now)))
    }

    async fn commit(&self, cell: CellId, key: LeaseKey, run_lease_ms: u64) -> Result<CommitReply> {
        Ok(self.on_cell(cell, |cell, now| cell.commit(key, run_lease_ms, now)))
    }

    async fn finish(
        &self,
        cell: CellId,
        key: LeaseKey,
        ended: AttemptOutcome,
    ) -> Result<Option<Freed>> {
        Ok(self.cell(cell).finish(key, ended))
    }

    async fn reap(&self, cell: CellId, limit: usize) -> Result<ReapReply> {
        Ok(self.on_cell(cell, |cell, now| cell.reap(limit, now)))
    }

    async fn view(&self, cell: CellId) -> Result<CellRecord> {
        Ok(self.on_cell(cell, |cell, now| cell.view(now)))
    }

    async fn elect(&self, request: ElectRequest) -> Result<ElectReply> {
        let leadership = &self.inner.leadership;
        let (reply, is_new) =
            self.write_durably(leadership, |leader, now| leader.elect(request, now)).await?;
        if let (ElectReply::Leading { term, .. }, true) = (&reply, is_new) {
            self.push_change(Change::Leader(*term));
        }
        Ok(reply)
    }

    async fn resign(&self, instance: &InstanceId, term: Term) -> Result<bool> {
        Ok(self.inner.leadership.lock().resign(instance, term, self.now_ms()))
    }

    async fn publish(&self, request: PublishRequest) -> Result<PublishReply> {
        let reply = self.inner.leadership.lock().publish(request, self.now_ms())?;
        if let PublishReply::Published(version) = reply {
            self.push_change(Change::Table(version));
        }
        Ok(reply)
    }

    async fn table(&self) -> Result<Option<PublishedTable>> {
        Ok(self.inner.leadership.lock().table())
    }

    async fn create_job(&self, job: NewJob) -> Result<CreateReply> {
        self.write_durably(&self.inner.jobs, |jobs, now| jobs.create(job, now)).await?
    }

    async fn advance_job(&self, request: AdvanceRequest) -> Result<AdvanceReply> {
        self.write_durably(&self.inner.jobs, |jobs, now| jobs.advance(request, now)).await?
    }

    async fn job(&self, job: JobId) -> Result<Option<JobRecord>> {
        self.read_durably(&self.inner.jobs, |jobs, now| jobs.get(job, now)).await
    }

    async fn jobs(&self, filter: JobFilter) -> Result<JobPage> {
        self.read_durably(&self.inner.jobs, |jobs, now| jobs.list(&filter, now)).await
    }

    async fn claim_orphans(&self, heir: &InstanceId, limit: usize) -> Result<Vec<JobRecord>> {
        let now_ms = self.now_ms();
        let alive: Vec<InstanceId> = {
            let instances = self.inner.instances.lock();
            instances.list(now_ms).into_iter().filter(|i| i.alive).map(|i| i.instance).collect()
        };
        let is_alive = |owner: &InstanceId| alive.contains(owner);
        self.write_durably(&self.inner.jobs, |jobs, _| jobs.claim(heir, limit, is_alive, now_ms))
            .await
    }

    async fn erase_job(&self, job: JobId) -> Result<EraseReply> {
        self.write_durably(&self.inner.jobs, |jobs, now| jobs.erase(job, now)).await
    }

    async fn add_usage(&self, batch: UsageBatch) -> Result<bool> {
        StoreError::check_limit("tenants of a batch", batch.counts.len(), USAGE_TENANTS_MAX)?;
        self.write_durably(&self.inner.usage, |usage, now| usage.add(&batch, now)).await
    }

    async fn usage(&self, tenant: Option<Tenant>) -> Result<Vec<UsageRecord>> {
        self.read_durably(&self.inner.usage, |usage, now| usage.list(tenant, now)).await
    }

    async fn claim_key(&self, request: ClaimKeyRequest) -> Result<ClaimKeyReply> {
        self.write_durably(&self.inner.keys, |keys, now| keys.claim(&request, now)).await
    }

    async fn announce(&self, request: AnnounceRequest) -> Result<AnnounceReply> {
        let instance = request.instance.clone();
        let (reply, is_new) = {
            let mut instances = self.inner.instances.lock();
            instances.announce(request, self.now_ms())?
        };
        if is_new {
            self.push_change(Change::Instance(instance));
        }
        Ok(reply)
    }

    async fn withdraw(&self, instance: &InstanceId, incarnation: Incarnation) -> Result<bool> {
        let known = self.inner.instances.lock().withdraw(instance, incarnation);
        if known {
            self.push_change(Change::Instance(instance.clone()));
        }
        Ok(known)
    }

    async fn save_session(&self, request: SaveSessionRequest) -> Result<SaveSessionReply> {
        self.inner.sessions.lock().save(request, self.now_ms())
    }

    async fn session(&self, id: &str) -> Result<Option<SessionRecord>> {
        Ok(self.inner.sessions.lock().get(id, self.now_ms()))
    }

    async fn bind(&self, request: BindRequest) -> Result<BindReply> {
        self.write_durably(&self.inner.bindings, |bound, now| bound.bind(request, now)).await?
    }

    async fn binding(&self, tenant: Tenant, key: &str) -> Result<Option<BindingRecord>> {
        self.read_durably(&self.inner.bindings, |bound, now| bound.get(tenant, key, now)).await
    }

    async fn instances(&self) -> Result<Vec<InstanceRecord>> {
        Ok(self.inner.instances.lock().list(self.now_ms()))
    }

    async fn send(&self, to: &InstanceId, message: Bytes) -> Result<BusDelivery> {
        let delivery = self.inner.instances.lock().send(to, message, self.now_ms())?;
        if delivery == BusDelivery::Sent {
            self.inner.message_sent.notify_waiters();
        }
        Ok(delivery)
    }

    async fn receive(&self, me: &InstanceId, after: u64, limit: usize) -> Result<Vec<Envelope>> {
        loop {
            // Subscribe before reading, so that no message between the two is missed.
            let message_sent = self.inner.message_sent.notified();
            let messages = self.inner.instances.lock().receive(me, after, limit.max(1));
            if !messages.is_empty() {
                return Ok(messages);
            }
            message_sent.await;
        }
    }

    async fn feed_head(&self) -> Result<u64> {
        Ok(self.inner.feed.lock().head())
    }

    async fn changes(&self, after: u64, limit: usize) -> Result<Changes> {
        loop {
            let change_pushed = self.inner.change_pushed.notified();
            let changes = self.inner.feed.lock().after(after, limit.max(1));
            if let Some(changes) = changes {
                return Ok(changes);
            }
            change_pushed.await;
        }
    }
}
