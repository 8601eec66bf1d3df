//! The store in memory: the default, for one process with nothing else installed.
//!
//! Start at [`Embedded`]. Each cell has its own lock, as each cell of a shared store has its own
//! script; no operation holds two locks, and none holds one across an await. Opened on a directory, it
//! keeps there what must outlive the process: see [`Embedded::open`].
//!
//! | file | what |
//! |---|---|
//! | `cell.rs` | nodes, leases, reservations |
//! | `directory.rs` | which node is in which cell |
//! | `jobs.rs`, `archive.rs` | job records, and those of jobs that have ended |
//! | `sessions.rs` | records of sessions |
//! | `leader.rs` | leader and pool table |
//! | `instances.rs` | instances and inboxes |
//! | `feed.rs` | change feed |
//! | `open.rs` | opening a data directory |
//! | `journal.rs` | writing to it |
//! | `snapshot.rs` | going back to an earlier state, for simulations (a feature) |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lingua_core::{CELLS_MAX, CellId, Epoch, InstanceId, JobId, NodeId, Rules, Term};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::clock::{Clock, SystemClock};
use crate::contract::{
    AdvanceReply, AdvanceRequest, AnnounceReply, AnnounceRequest, AssignRequest, BusDelivery,
    Bytes, CellRecord, Change, Changes, CommitReply, CreateReply, ElectReply, ElectRequest,
    Envelope, Freed, HeartbeatReply, HeartbeatRequest, Incarnation, InstanceRecord, JobFilter,
    JobRecord, LeaseKey, NewJob, NodeCommand, NodeCommandReply, Place, PublishReply,
    PublishRequest, PublishedTable, ReapReply, RegisterReply, RegisterRequest, ReserveReply,
    ReserveRequest, SaveSessionReply, SaveSessionRequest, SessionRecord, Store, StoreIdentity,
};
use crate::error::Result;

mod archive;
mod cell;
mod directory;
mod feed;
mod instances;
mod jobs;
mod journal;
mod leader;
mod open;
mod sessions;
#[cfg(feature = "snapshot")]
mod snapshot;

pub use open::OpenError;
#[cfg(feature = "snapshot")]
pub use snapshot::{LostWrites, StoreSnapshot};

use cell::{Cell, Changed};
use directory::Directory;
use feed::Feed;
use instances::Instances;
use jobs::Jobs;
use journal::{Journal, Kept};
use leader::Leadership;
use sessions::Sessions;

/// How much the store keeps at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// Jobs that have not ended.
    pub open_jobs_max: usize,
    /// Jobs that have ended and are still remembered.
    pub ended_jobs_max: usize,
    /// How long an ended job is remembered.
    pub job_record_ms: u64,
    /// Messages in one inbox.
    pub inbox_max: usize,
    /// Instances.
    pub instances_max: usize,
    /// Changes in the feed.
    pub feed_max: usize,
    /// Sessions that can be resumed.
    pub sessions_max: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            open_jobs_max: 100_000,
            ended_jobs_max: 100_000,
            job_record_ms: 3_600_000,
            inbox_max: 10_000,
            instances_max: 1000,
            feed_max: 4096,
            sessions_max: 100_000,
        }
    }
}

/// The store in memory. Clones share it.
#[derive(Debug)]
pub struct Embedded<C = SystemClock> {
    inner: Arc<Inner<C>>,
}

#[derive(Debug)]
struct Inner<C> {
    clock: C,
    cells: Box<[Aligned<Mutex<Cell>>]>,
    directory: Mutex<Directory>,
    jobs: Mutex<Jobs>,
    leadership: Mutex<Leadership>,
    instances: Mutex<Instances>,
    sessions: Mutex<Sessions>,
    mail: Notify,
    feed: Mutex<Feed>,
    news: Notify,
    journal: Option<Journal>,
    /// Rises when writes are lost, which only a simulation does.
    identity: AtomicU64,
    /// Set once a snapshot was taken: the store may be rolled back to it.
    may_forget: AtomicBool,
}

/// Keeps neighbouring cells' locks out of each other's cache lines.
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
            leadership: Mutex::default(),
            instances: Mutex::new(Instances::new(limits)),
            sessions: Mutex::new(Sessions::new(limits)),
            mail: Notify::new(),
            feed: Mutex::new(Feed::new(limits.feed_max)),
            news: Notify::new(),
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

    /// Runs one operation on a cell. The clock is read under the lock, so that a cell never sees
    /// time go backwards.
    fn on_cell<T>(&self, cell: CellId, operation: impl FnOnce(&mut Cell, u64) -> T) -> T {
        let mut cell = self.cell(cell);
        let now_ms = self.now_ms();
        operation(&mut cell, now_ms)
    }

    /// Runs an operation on a part that is kept, and gives its reply once all that it did or saw is on
    /// disk.
    async fn durably<P: Kept, T>(
        &self,
        part: &Mutex<P>,
        operation: impl FnOnce(&mut P, u64) -> T,
    ) -> Result<T> {
        let Some(journal) = &self.inner.journal else {
            let mut part = part.lock();
            return Ok(operation(&mut part, self.now_ms()));
        };
        let room = journal.room().await?;
        let (reply, saved) = {
            let mut part = part.lock();
            let now_ms = self.now_ms();
            let reply = operation(&mut part, now_ms);
            (reply, room.append(&mut *part, now_ms))
        };
        if let Some(saved) = saved {
            saved.wait().await?;
        }
        Ok(reply)
    }

    /// Looks at a part that is kept, and gives what it saw once that is on disk.
    async fn settled<P, T>(&self, part: &Mutex<P>, look: impl FnOnce(&P, u64) -> T) -> Result<T> {
        let (seen, unsettled) = {
            let part = part.lock();
            let seen = look(&part, self.now_ms());
            (seen, self.inner.journal.as_ref().filter(|journal| !journal.is_settled()))
        };
        if let Some(journal) = unsettled {
            journal.settle().await?;
        }
        Ok(seen)
    }

    fn tell<T>(&self, changed: Changed<T>) -> T {
        if let Some((node, place)) = changed.node {
            let Place { cell, slot, epoch } = place;
            self.broadcast(Change::Node { cell, slot, epoch, node });
        }
        changed.reply
    }

    fn broadcast(&self, change: Change) {
        self.inner.feed.lock().push(change);
        self.inner.news.notify_waiters();
    }
}

impl<C: Clock> Store for Embedded<C> {
    fn identity(&self) -> StoreIdentity {
        StoreIdentity(self.inner.identity.load(Ordering::SeqCst))
    }

    fn may_forget(&self) -> bool {
        self.inner.may_forget.load(Ordering::Relaxed)
    }

    async fn now_ms(&self) -> Result<u64> {
        Ok(Embedded::now_ms(self))
    }

    async fn assign(&self, request: AssignRequest) -> Result<Place> {
        self.durably(&self.inner.directory, |nodes, now| nodes.assign(request, now)).await?
    }

    async fn locate(&self, node: &NodeId) -> Result<Option<Place>> {
        self.settled(&self.inner.directory, |nodes, _| nodes.locate(node)).await
    }

    async fn release(&self, node: &NodeId, epoch: Epoch) -> Result<bool> {
        self.durably(&self.inner.directory, |nodes, _| nodes.release(node, epoch)).await
    }

    async fn cells(&self) -> Result<Vec<CellId>> {
        Ok(self.inner.directory.lock().cells())
    }

    async fn register(&self, registration: RegisterRequest) -> Result<RegisterReply> {
        let place = registration.place;
        let changed = self.on_cell(place.cell, |cell, now| cell.register(registration, now));
        Ok(self.tell(changed))
    }

    async fn heartbeat(&self, beat: HeartbeatRequest) -> Result<HeartbeatReply> {
        let changed = self.on_cell(beat.place.cell, |cell, now| cell.heartbeat(beat, now));
        Ok(self.tell(changed))
    }

    async fn set_state(&self, place: Place, order: NodeCommand) -> Result<NodeCommandReply> {
        let (changed, ordered) = {
            let mut cell = self.cell(place.cell);
            let changed = cell.set_state(place, order);
            let is_order = matches!(order, NodeCommand::Drain | NodeCommand::Resume);
            let carried_out = is_order && changed.reply != NodeCommandReply::Stale;
            (changed, carried_out.then(|| cell.last_order(place.slot)).flatten())
        };
        if let (Some((node, number)), Some(_)) = (ordered, &self.inner.journal) {
            let drain = order == NodeCommand::Drain;
            let note = |nodes: &mut Directory, _| nodes.note_order(node, number, drain);
            self.durably(&self.inner.directory, note).await?;
        }
        Ok(self.tell(changed))
    }

    async fn reserve(&self, cell: CellId, request: ReserveRequest) -> Result<ReserveReply> {
        Ok(self.on_cell(cell, |cell, now| cell.reserve(&request, now)))
    }

    async fn commit(&self, cell: CellId, key: LeaseKey, run_lease_ms: u64) -> Result<CommitReply> {
        Ok(self.on_cell(cell, |cell, now| cell.commit(key, run_lease_ms, now)))
    }

    async fn finish(&self, cell: CellId, key: LeaseKey) -> Result<Option<Freed>> {
        Ok(self.cell(cell).finish(key))
    }

    async fn reap(&self, cell: CellId, limit: usize) -> Result<ReapReply> {
        Ok(self.on_cell(cell, |cell, now| cell.reap(limit, now)))
    }

    async fn view(&self, cell: CellId) -> Result<CellRecord> {
        Ok(self.on_cell(cell, |cell, now| cell.view(now)))
    }

    async fn elect(&self, candidate: ElectRequest) -> Result<ElectReply> {
        let leadership = &self.inner.leadership;
        let (election, is_news) =
            self.durably(leadership, |leader, now| leader.elect(candidate, now)).await?;
        if let (ElectReply::Leading { term, .. }, true) = (&election, is_news) {
            self.broadcast(Change::Leader(*term));
        }
        Ok(election)
    }

    async fn resign(&self, instance: &InstanceId, term: Term) -> Result<bool> {
        Ok(self.inner.leadership.lock().resign(instance, term, self.now_ms()))
    }

    async fn publish(&self, table: PublishRequest) -> Result<PublishReply> {
        let reply = self.inner.leadership.lock().publish(table, self.now_ms())?;
        if let PublishReply::Published(version) = reply {
            self.broadcast(Change::Table(version));
        }
        Ok(reply)
    }

    async fn table(&self) -> Result<Option<PublishedTable>> {
        Ok(self.inner.leadership.lock().table())
    }

    async fn create_job(&self, job: NewJob) -> Result<CreateReply> {
        self.durably(&self.inner.jobs, |jobs, now| jobs.create(job, now)).await?
    }

    async fn advance_job(&self, step: AdvanceRequest) -> Result<AdvanceReply> {
        self.durably(&self.inner.jobs, |jobs, now| jobs.advance(step, now)).await?
    }

    async fn job(&self, job: JobId) -> Result<Option<JobRecord>> {
        self.settled(&self.inner.jobs, |jobs, now| jobs.get(job, now)).await
    }

    async fn jobs(&self, filter: JobFilter) -> Result<Vec<JobRecord>> {
        self.settled(&self.inner.jobs, |jobs, now| jobs.list(&filter, now)).await
    }

    async fn claim_orphans(&self, heir: &InstanceId, limit: usize) -> Result<Vec<JobRecord>> {
        let now_ms = self.now_ms();
        let alive: Vec<InstanceId> = {
            let instances = self.inner.instances.lock();
            instances.list(now_ms).into_iter().filter(|i| i.alive).map(|i| i.instance).collect()
        };
        let is_alive = |owner: &InstanceId| alive.contains(owner);
        self.durably(&self.inner.jobs, |jobs, _| jobs.claim(heir, limit, is_alive, now_ms)).await
    }

    async fn announce(&self, presence: AnnounceRequest) -> Result<AnnounceReply> {
        let instance = presence.instance.clone();
        let (announced, is_news) = {
            let mut instances = self.inner.instances.lock();
            instances.announce(presence, self.now_ms())?
        };
        if is_news {
            self.broadcast(Change::Instance(instance));
        }
        Ok(announced)
    }

    async fn withdraw(&self, instance: &InstanceId, incarnation: Incarnation) -> Result<bool> {
        let known = self.inner.instances.lock().withdraw(instance, incarnation);
        if known {
            self.broadcast(Change::Instance(instance.clone()));
        }
        Ok(known)
    }

    async fn save_session(&self, session: SaveSessionRequest) -> Result<SaveSessionReply> {
        self.inner.sessions.lock().save(session, self.now_ms())
    }

    async fn session(&self, id: &str) -> Result<Option<SessionRecord>> {
        Ok(self.inner.sessions.lock().get(id, self.now_ms()))
    }

    async fn instances(&self) -> Result<Vec<InstanceRecord>> {
        Ok(self.inner.instances.lock().list(self.now_ms()))
    }

    async fn send(&self, to: &InstanceId, message: Bytes) -> Result<BusDelivery> {
        let delivery = self.inner.instances.lock().send(to, message, self.now_ms())?;
        if delivery == BusDelivery::Sent {
            self.inner.mail.notify_waiters();
        }
        Ok(delivery)
    }

    async fn receive(&self, me: &InstanceId, after: u64, limit: usize) -> Result<Vec<Envelope>> {
        loop {
            // Listen first, then look: a message between the two is not missed.
            let mail = self.inner.mail.notified();
            let messages = self.inner.instances.lock().receive(me, after, limit.max(1));
            if !messages.is_empty() {
                return Ok(messages);
            }
            mail.await;
        }
    }

    async fn feed_head(&self) -> Result<u64> {
        Ok(self.inner.feed.lock().head())
    }

    async fn changes(&self, after: u64, limit: usize) -> Result<Changes> {
        loop {
            let news = self.inner.news.notified();
            let changes = self.inner.feed.lock().after(after, limit.max(1));
            if let Some(changes) = changes {
                return Ok(changes);
            }
            news.await;
        }
    }
}
