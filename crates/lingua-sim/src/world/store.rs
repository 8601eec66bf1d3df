//! The store as an instance reaches it, with delays, losses and outages.
//!
//! Start at [`FaultyStore::call`]. All instances share one embedded store. The
//! [`StoreChecker`](super::store_checker::StoreChecker) checks every operation that is carried out.
//!
//! Invariant: no reply arrives during an outage, or after the identity of the store changed.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lingua_core::job::JobState;
use lingua_core::{CellId, Epoch, InstanceId, JobId, NodeId, Tenant, Term};
use lingua_engine::TokioTimer;
use lingua_store::contract::{
    AdvanceReply, AdvanceRequest, AnnounceReply, AnnounceRequest, AssignReply, AssignRequest,
    AttemptOutcome, BindReply, BindRequest, BindingRecord, BusDelivery, Bytes, CellRecord, Changes,
    ClaimKeyReply, ClaimKeyRequest, CommitReply, CreateReply, ElectReply, ElectRequest, Envelope,
    EraseReply, Freed, HeartbeatReply, HeartbeatRequest, Incarnation, InstanceRecord, JobFilter,
    JobPage, JobRecord, LeaseKey, NewJob, NodeCommand, NodeCommandReply, Place, PublishReply,
    PublishRequest, PublishedTable, ReapReply, RegisterReply, RegisterRequest, ReserveOutcome,
    ReserveReply, ReserveRequest, SaveSessionReply, SaveSessionRequest, SessionRecord,
    StoreIdentity, UsageBatch, UsageRecord,
};
use lingua_store::{Embedded, Result, Store, StoreError};
use parking_lot::Mutex;

use super::World;
use super::fleet::intruder;
use super::instance_faults::InstanceFaults;
use super::rng::SimRng;
use super::store_checker::CellOp;
use super::trace::Subject;

/// The store that all instances share.
pub(super) type SimStore = Embedded<TokioTimer>;

/// How long an instance waits for a reply.
const REPLY_MS: u64 = 1_500;

/// The largest usual delay of a call, in each direction.
const USUAL_MS: u64 = 2;

/// The largest delay of a repeated request.
const REPEAT_MS: u64 = 3_000;

/// The largest delay of a bus message.
const LATE_MESSAGE_MS: u64 = 7_000;

/// How often a blocking read checks its connection.
const CHECK_MS: u64 = 1_000;

/// The store as one run of an instance reaches it.
#[derive(Debug)]
pub(super) struct FaultyStore {
    pub(super) world: Arc<World>,
    pub(super) instance: usize,
    /// The number of the instance's run.
    pub(super) run: u32,
    pub(super) faults: Arc<InstanceFaults>,
    pub(super) rng: Mutex<SimRng>,
    /// The identity of the store when this run started.
    pub(super) born: StoreIdentity,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallOutcome {
    Replied,
    LostBefore,
    LostAfter,
}

impl FaultyStore {
    fn draw(&self) -> (u64, u64, CallOutcome) {
        let link = self.faults.store_link();
        let now_ms = self.world.now_ms();
        let mut rng = self.rng.lock();
        let (mut there_ms, mut back_ms) = (rng.between(0, USUAL_MS), rng.between(0, USUAL_MS));
        let (is_lost, is_before) = (rng.permille(link.lossy_ms.1), rng.permille(400));
        if now_ms < link.slow_ms.0 {
            there_ms += rng.between(0, link.slow_ms.1);
            back_ms += rng.between(0, link.slow_ms.1);
        }
        let outcome = match (is_lost && now_ms < link.lossy_ms.0, is_before) {
            (false, _) => CallOutcome::Replied,
            (true, true) => CallOutcome::LostBefore,
            (true, false) => CallOutcome::LostAfter,
        };
        (there_ms, back_ms, outcome)
    }

    /// Whether a connection that was made when the store had this identity is broken.
    fn is_broken(&self, identity: StoreIdentity) -> bool {
        self.faults.store_link().is_cut(self.world.now_ms())
            || self.world.store.identity() != identity
    }

    async fn wait(&self, ms: u64) {
        if ms > 0 {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        self.faults.wait_while_paused_or_dead().await;
    }

    async fn call<R, F, Fut>(&self, operation: F) -> Result<R>
    where
        F: FnOnce(SimStore) -> Fut + Send,
        Fut: Future<Output = Result<R>> + Send,
        R: Send,
    {
        // A request belongs to the connection of its start, even if the instance is paused before
        // it sends.
        let identity = self.world.store.identity();
        self.wait(0).await;
        let (there_ms, back_ms, outcome) = self.draw();
        self.wait(there_ms).await;
        if self.is_broken(identity) {
            self.wait(USUAL_MS).await;
            return Err(StoreError::Unavailable { detail: "the store is unreachable".to_owned() });
        }
        if outcome == CallOutcome::LostBefore {
            self.wait(REPLY_MS).await;
            return Err(StoreError::TimedOut { waited_ms: REPLY_MS });
        }
        self.world.tally.lock().operations += 1;
        let reply = operation(self.world.store.clone()).await;
        if outcome == CallOutcome::LostAfter {
            self.wait(REPLY_MS).await;
            return Err(StoreError::TimedOut { waited_ms: REPLY_MS });
        }
        self.wait(back_ms).await;
        if self.is_broken(identity) {
            return Err(StoreError::TimedOut { waited_ms: back_ms });
        }
        reply
    }

    /// A call whose effect on a cell is checked.
    async fn on_cell<R, F, Fut>(&self, cell: CellId, op: CellOp, operation: F) -> Result<R>
    where
        F: FnOnce(SimStore) -> Fut + Send,
        Fut: Future<Output = Result<R>> + Send,
        R: Send,
    {
        let (world, born) = (Arc::clone(&self.world), self.born);
        self.call(|store| async move { world.checked(store, born, cell, op, operation).await })
            .await
    }

    /// While replies are lost, a request may be carried out a second time, much later.
    fn repeat_finish(&self, cell: CellId, key: LeaseKey, outcome: AttemptOutcome) {
        let ms = {
            let mut rng = self.rng.lock();
            let (ms, is_repeated) = (rng.between(10, REPEAT_MS), rng.permille(300));
            let is_bad = self.world.now_ms() < self.faults.store_link().lossy_ms.0;
            if !is_bad || !is_repeated {
                return;
            }
            ms
        };
        let (world, born) = (Arc::clone(&self.world), self.born);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            let (store, op) = (world.store.clone(), CellOp::Finish(key));
            let repeated = world.checked(store, born, cell, op, |s| async move {
                s.finish(cell, key, outcome).await
            });
            repeated.await.ok();
        });
    }

    /// The delays of the copies of a bus message: the store may lose it, or deliver it a second
    /// time.
    fn bus_delays(&self) -> Vec<u64> {
        let (until_ms, share) = self.faults.store_link().bad_bus_ms;
        if self.world.now_ms() >= until_ms {
            return vec![0];
        }
        let mut rng = self.rng.lock();
        let (is_bad, late_ms) = (rng.permille(share), rng.between(1, LATE_MESSAGE_MS));
        match (is_bad, rng.between(0, 2)) {
            (false, _) => vec![0],
            (true, 0) => vec![],
            (true, 1) => vec![0, late_ms],
            (true, _) => vec![late_ms],
        }
    }

    /// A blocking read, which lasts as long as its connection.
    async fn read_blocking<R, F, Fut>(&self, operation: F) -> Result<R>
    where
        F: Fn(SimStore) -> Fut + Send + Sync,
        Fut: Future<Output = Result<R>> + Send,
        R: Send,
    {
        self.wait(0).await;
        let identity = self.world.store.identity();
        loop {
            if self.is_broken(identity) {
                self.wait(USUAL_MS).await;
                return Err(StoreError::Unavailable {
                    detail: "the store is unreachable".to_owned(),
                });
            }
            let limit = Duration::from_millis(CHECK_MS);
            let reply = tokio::time::timeout(limit, operation(self.world.store.clone())).await;
            self.wait(0).await;
            match reply {
                Ok(_) if self.is_broken(identity) => {}
                Ok(reply) => return reply,
                Err(_) => {}
            }
        }
    }

    fn note(&self, about: Subject, what: std::fmt::Arguments<'_>) {
        self.world.note(about, format_args!("i{} {what}", self.instance));
    }
}

impl World {
    /// Carries out an operation on a cell and checks its effect.
    async fn checked<R, F, Fut>(
        &self,
        store: SimStore,
        born: StoreIdentity,
        cell: CellId,
        op: CellOp,
        operation: F,
    ) -> Result<R>
    where
        F: FnOnce(SimStore) -> Fut + Send,
        Fut: Future<Output = Result<R>> + Send,
        R: Send,
    {
        // No other operation runs between these, because the embedded store never waits.
        let before = store.view(cell).await?;
        let reply = operation(store.clone()).await;
        let after = store.view(cell).await?;
        let found = self.store_checker.lock().cell(&op, (born, store.identity()), &before, &after);
        if let Err((checker, text)) = found {
            self.fail(checker, Subject::default(), text);
        }
        reply
    }
}

impl Store for FaultyStore {
    fn identity(&self) -> StoreIdentity {
        self.world.store.identity()
    }

    async fn now_ms(&self) -> Result<u64> {
        self.call(|s| async move { Store::now_ms(&s).await }).await
    }

    async fn assign(&self, request: AssignRequest) -> Result<AssignReply> {
        self.call(|s| async move {
            // An id that the store has forgotten is anybody's; then its node would be locked out.
            let is_free = s.locate(&request.node).await?.is_none();
            match is_free && request.owner == Some(intruder()) {
                true => Ok(AssignReply::Taken),
                false => s.assign(request).await,
            }
        })
        .await
    }

    async fn locate(&self, node: &NodeId) -> Result<Option<Place>> {
        let node = node.clone();
        self.call(|s| async move { s.locate(&node).await }).await
    }

    async fn release(&self, node: &NodeId, epoch: Epoch) -> Result<bool> {
        let node = node.clone();
        self.call(|s| async move { s.release(&node, epoch).await }).await
    }

    async fn cells(&self) -> Result<Vec<CellId>> {
        self.call(|s| async move { s.cells().await }).await
    }

    async fn register(&self, registration: RegisterRequest) -> Result<RegisterReply> {
        let place = registration.place;
        let op = CellOp::Register(place);
        self.on_cell(place.cell, op, |s| async move { s.register(registration).await }).await
    }

    async fn heartbeat(&self, beat: HeartbeatRequest) -> Result<HeartbeatReply> {
        let op = CellOp::Heartbeat(beat.place, beat.running.clone());
        self.on_cell(beat.place.cell, op, |s| async move { s.heartbeat(beat).await }).await
    }

    async fn set_state(&self, place: Place, order: NodeCommand) -> Result<NodeCommandReply> {
        let op = CellOp::SetState(place);
        self.on_cell(place.cell, op, |s| async move { s.set_state(place, order).await }).await
    }

    async fn reserve(&self, cell: CellId, request: ReserveRequest) -> Result<ReserveReply> {
        let key = request.key;
        let (world, i) = (Arc::clone(&self.world), self.instance);
        self.on_cell(cell, CellOp::Reserve(key), |s| async move {
            let reply = s.reserve(cell, request).await;
            if let Ok(ReserveReply { outcome: ReserveOutcome::Granted { grant, .. }, .. }) = &reply
            {
                let about = world.about(key.job);
                let (node, fence) = (&grant.node, grant.fence);
                world.note(
                    about,
                    format_args!("i{i} granted {about} a{} {node} {fence}", key.attempt),
                );
            }
            reply
        })
        .await
    }

    async fn commit(&self, cell: CellId, key: LeaseKey, run_lease_ms: u64) -> Result<CommitReply> {
        let op = CellOp::Commit(key);
        self.on_cell(cell, op, |s| async move { s.commit(cell, key, run_lease_ms).await }).await
    }

    async fn finish(
        &self,
        cell: CellId,
        key: LeaseKey,
        outcome: AttemptOutcome,
    ) -> Result<Option<Freed>> {
        let op = CellOp::Finish(key);
        let freed =
            self.on_cell(cell, op, |s| async move { s.finish(cell, key, outcome).await }).await;
        self.repeat_finish(cell, key, outcome);
        let about = self.world.about(key.job);
        let what = match &freed {
            Ok(Some(_)) => "freed",
            Ok(None) => "found no lease of",
            Err(_) => "could not free",
        };
        self.note(about, format_args!("{what} {about} a{}", key.attempt));
        freed
    }

    async fn reap(&self, cell: CellId, limit: usize) -> Result<ReapReply> {
        let (world, i) = (Arc::clone(&self.world), self.instance);
        self.on_cell(cell, CellOp::Reap, |s| async move {
            let reaped = s.reap(cell, limit).await;
            for expired in reaped.iter().flat_map(|reaped| &reaped.expired) {
                let about = world.about(expired.key.job);
                let attempt = expired.key.attempt;
                world.note(about, format_args!("i{i} reaped the lease of {about} a{attempt}"));
            }
            reaped
        })
        .await
    }

    async fn view(&self, cell: CellId) -> Result<CellRecord> {
        self.call(|s| async move { s.view(cell).await }).await
    }

    async fn elect(&self, candidate: ElectRequest) -> Result<ElectReply> {
        let world = Arc::clone(&self.world);
        self.call(|s| async move {
            let me = candidate.instance.clone();
            let election = s.elect(candidate).await?;
            world.store_checker.lock().elected(&me, &election);
            Ok(election)
        })
        .await
    }

    async fn resign(&self, instance: &InstanceId, term: Term) -> Result<bool> {
        let instance = instance.clone();
        self.call(|s| async move { s.resign(&instance, term).await }).await
    }

    async fn publish(&self, table: PublishRequest) -> Result<PublishReply> {
        let world = Arc::clone(&self.world);
        self.call(|s| async move {
            let (me, term) = (table.instance.clone(), table.term);
            let reply = s.publish(table).await?;
            let found = world.store_checker.lock().published(&me, term, reply);
            if let Err((checker, text)) = found {
                world.fail(checker, Subject::default(), text);
            }
            Ok(reply)
        })
        .await
    }

    async fn table(&self) -> Result<Option<PublishedTable>> {
        self.call(|s| async move { s.table().await }).await
    }

    async fn create_job(&self, job: NewJob) -> Result<CreateReply> {
        let world = Arc::clone(&self.world);
        let id = job.id;
        let reply = self
            .call(|s| async move {
                let reply = s.create_job(job).await?;
                let found = match reply {
                    CreateReply::Created => world.store_checker.lock().created(id, s.identity()),
                    CreateReply::Exists(_) => Ok(()),
                };
                if let Err((checker, text)) = found {
                    world.fail(checker, world.about(id), text);
                }
                Ok(reply)
            })
            .await;
        let about = self.world.about(id);
        let what = match &reply {
            Ok(CreateReply::Created) => "wrote",
            Ok(CreateReply::Exists(_)) => "found",
            Err(_) => "could not write",
        };
        self.note(about, format_args!("{what} {about}"));
        reply
    }

    async fn advance_job(&self, step: AdvanceRequest) -> Result<AdvanceReply> {
        let world = Arc::clone(&self.world);
        let (id, from, to) = (step.job, step.from, step.to);
        let outcome = step.outcome.clone();
        let me = (self.instance, self.run);
        let reply = self
            .call(|s| async move {
                let reply = s.advance_job(step).await?;
                if reply == AdvanceReply::Advanced {
                    // Not before: an instance that has lost the job may go on trying.
                    if to.state == JobState::Dispatched {
                        world.dispatchers.lock().insert(id, me);
                    }
                    let found = world.store_checker.lock().advanced(id, to, outcome);
                    if let Err((checker, text)) = found
                        && !world.may_have_lost(id)
                    {
                        world.fail(checker, world.about(id), text);
                    }
                }
                Ok(reply)
            })
            .await;
        let about = self.world.about(id);
        match &reply {
            Ok(AdvanceReply::Advanced) => self.note(about, format_args!("moved {about}: {to}")),
            other => {
                self.note(
                    about,
                    format_args!("could not move {about} from {from} to {to}: {other:?}"),
                );
            }
        }
        reply
    }

    async fn job(&self, job: JobId) -> Result<Option<JobRecord>> {
        self.call(|s| async move { s.job(job).await }).await
    }

    async fn jobs(&self, filter: JobFilter) -> Result<JobPage> {
        self.call(|s| async move { s.jobs(filter).await }).await
    }

    async fn claim_orphans(&self, heir: &InstanceId, limit: usize) -> Result<Vec<JobRecord>> {
        let (heir, world, i) = (heir.clone(), Arc::clone(&self.world), self.instance);
        self.call(|s| async move {
            let claimed = s.claim_orphans(&heir, limit).await;
            for record in claimed.iter().flatten() {
                let about = world.about(record.id);
                world.note(about, format_args!("i{i} claimed {about}: {}", record.stage));
                // As far as the store knows, the owner is dead.
                world.deaths.lock().push((i, world.now_ms()));
            }
            claimed
        })
        .await
    }

    async fn announce(&self, presence: AnnounceRequest) -> Result<AnnounceReply> {
        self.call(|s| async move { s.announce(presence).await }).await
    }

    async fn withdraw(&self, instance: &InstanceId, incarnation: Incarnation) -> Result<bool> {
        let instance = instance.clone();
        self.call(|s| async move { s.withdraw(&instance, incarnation).await }).await
    }

    async fn erase_job(&self, job: JobId) -> Result<EraseReply> {
        self.call(|s| async move { s.erase_job(job).await }).await
    }

    async fn add_usage(&self, batch: UsageBatch) -> Result<bool> {
        self.call(|s| async move { s.add_usage(batch).await }).await
    }

    async fn usage(&self, tenant: Option<Tenant>) -> Result<Vec<UsageRecord>> {
        self.call(|s| async move { s.usage(tenant).await }).await
    }

    async fn claim_key(&self, request: ClaimKeyRequest) -> Result<ClaimKeyReply> {
        self.call(|s| async move { s.claim_key(request).await }).await
    }

    async fn save_session(&self, session: SaveSessionRequest) -> Result<SaveSessionReply> {
        let (id, replaces) = (session.id.clone(), session.replaces);
        let over = if session.keep_ms == 0 { ", which is over" } else { "" };
        let (world, saves) = (Arc::clone(&self.world), session.keep_ms > 0);
        let reply = self
            .call(|s| async move {
                let id = session.id.clone();
                let reply = s.save_session(session).await?;
                if saves && reply == SaveSessionReply::Saved {
                    world.saved_session(&id);
                }
                Ok(reply)
            })
            .await;
        self.note(Subject::default(), format_args!("wrote {id} over {replaces}{over}: {reply:?}"));
        reply
    }

    async fn session(&self, id: &str) -> Result<Option<SessionRecord>> {
        let id = id.to_owned();
        self.call(|s| async move { s.session(&id).await }).await
    }

    async fn bind(&self, request: BindRequest) -> Result<BindReply> {
        let (world, i) = (Arc::clone(&self.world), self.instance);
        self.call(|s| async move {
            let reply = s.bind(request.clone()).await?;
            if reply == BindReply::Bound {
                let BindRequest { key, replaces, to, .. } = &request;
                let before = replaces.as_ref().map_or("nobody", |node| node.as_str());
                let node = &to.node;
                world.note(
                    Subject::default(),
                    format_args!("i{i} bound {key} to {node}, before to {before}"),
                );
                world.observer.lock().binds(i, &request, world.now_ms());
            }
            Ok(reply)
        })
        .await
    }

    async fn binding(&self, tenant: Tenant, key: &str) -> Result<Option<BindingRecord>> {
        let key = key.to_owned();
        self.call(|s| async move { s.binding(tenant, &key).await }).await
    }

    async fn instances(&self) -> Result<Vec<InstanceRecord>> {
        self.call(|s| async move { s.instances().await }).await
    }

    async fn send(&self, to: &InstanceId, message: Bytes) -> Result<BusDelivery> {
        let to = to.clone();
        let copies_ms = self.bus_delays();
        self.call(|s| async move {
            let mut delivery = BusDelivery::Sent;
            for ms in copies_ms {
                let (s, to, message) = (s.clone(), to.clone(), message.clone());
                if ms == 0 {
                    delivery = s.send(&to, message).await?;
                } else {
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(ms)).await;
                        s.send(&to, message).await.ok();
                    });
                }
            }
            Ok(delivery)
        })
        .await
    }

    async fn receive(&self, me: &InstanceId, after: u64, limit: usize) -> Result<Vec<Envelope>> {
        let me = me.clone();
        self.read_blocking(|s| {
            let me = me.clone();
            async move { s.receive(&me, after, limit).await }
        })
        .await
    }

    async fn feed_head(&self) -> Result<u64> {
        self.call(|s| async move { s.feed_head().await }).await
    }

    async fn changes(&self, after: u64, limit: usize) -> Result<Changes> {
        self.read_blocking(|s| async move { s.changes(after, limit).await }).await
    }
}
