//! An instance, nodes with a will of their own, and short ways to ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use lingua_core::job::{AttemptReport, JobSpec, JobState, Payload};
use lingua_core::{
    Attempt, Capabilities, Epoch, InstanceId, JobId, Lang, LangSet, Nmt, NodeId, Profile, Service,
    ServiceSet,
};
use lingua_engine::handle::{NodeHeartbeat, NodeRegistration, Waited};
use lingua_engine::node::{Assignment, ToNode};
use lingua_engine::options::EngineOptions;
use lingua_engine::request::{JobRequest, JobStatus};
use lingua_engine::{EngineService, Handle, TokioTimer};
use lingua_store::{Embedded, StoreLimits};
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, oneshot};

use crate::flaky_store::FlakyStore;

pub(crate) type Store = FlakyStore;
pub(crate) type Engine = Handle<Store, TokioTimer>;

const START_MS: u64 = 1_800_000_000_000;

/// A running instance.
pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) store: Store,
    pub(crate) timer: TokioTimer,
    stop: Option<oneshot::Sender<()>>,
    running: tokio::task::JoinHandle<()>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut EngineOptions)) -> Self {
        let timer = TokioTimer::starting_at(START_MS);
        let store = FlakyStore::new(Embedded::new(
            Default::default(),
            StoreLimits::default(),
            timer.clone(),
        ));
        Self::over(store, timer, "instance-1", change)
    }

    /// An instance over a store that may have a past.
    pub(crate) fn over(
        store: Store,
        timer: TokioTimer,
        name: &str,
        change: impl FnOnce(&mut EngineOptions),
    ) -> Self {
        let mut options = EngineOptions::new(InstanceId::new(name).expect("a name"), 7);
        change(&mut options);
        let mut registry = Registry::default();
        let service = EngineService::new(options, store.clone(), timer.clone(), &mut registry);
        let engine = service.handle();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(service.run(async move { drop(stopped.await) }));
        Self { engine, store, timer, stop: Some(stop), running }
    }

    /// Stops it as a signal would.
    pub(crate) async fn stop(mut self) {
        self.stop.take();
        self.running.await.expect("the service ends");
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill(self) {
        self.running.abort();
    }

    pub(crate) async fn submit(&self, request: JobRequest) -> JobId {
        self.engine.submit(request).await.expect("accepted").id
    }

    pub(crate) async fn ended(&self, id: JobId) -> JobStatus {
        match self.engine.wait_ended(id, 600_000).await.expect("a reply") {
            Waited::Reached(view) => view,
            other => panic!("{id} did not end: {other:?}"),
        }
    }

    /// Submits and waits for the end.
    pub(crate) async fn translate(&self, request: JobRequest) -> JobStatus {
        let id = self.submit(request).await;
        self.ended(id).await
    }

    pub(crate) async fn used(&self) -> u32 {
        let nodes = &self.engine.nodes().await.expect("nodes").nodes;
        nodes.iter().map(|node| u32::from(node.used)).sum()
    }
}

/// A job without wishes, with an id made from the number.
pub(crate) fn job(n: u128, pair: &str) -> JobRequest {
    job_with(n, pair, |_| {})
}

/// A job with wishes.
pub(crate) fn job_with(n: u128, pair: &str, change: impl FnOnce(&mut JobSpec)) -> JobRequest {
    let payload = Payload::AudioRef(Arc::from("blob://1"));
    let mut spec = JobSpec {
        session: Arc::from("room-1"),
        trace: Arc::from("trace"),
        wait_ms: Some(2_000),
        ..JobSpec::new(pair.parse().expect("a pair"), payload)
    };
    change(&mut spec);
    JobRequest::new(JobId::new(n), spec)
}

/// What a node does with a job.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Habit {
    /// Confirms, works, and gives a result.
    Works { ms: u64 },
    /// Says nothing at all.
    Silent,
    /// Confirms and says nothing more.
    Hangs,
    /// Confirms and gives up.
    Fails { retryable: bool },
    /// Has no room, whatever the scheduler thinks.
    Busy,
}

/// A node with its own count of what it does.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) epoch: Epoch,
    pub(crate) most_at_once: Arc<AtomicU16>,
    pub(crate) jobs_done: Arc<AtomicU32>,
    pub(crate) told: mpsc::UnboundedReceiver<ToNode>,
    slots: u16,
    life: tokio::task::JoinHandle<()>,
}

impl Node {
    pub(crate) async fn join(
        world: &World,
        name: &str,
        langs: &str,
        slots: u16,
        habit: Habit,
    ) -> Self {
        Self::join_as(world, name, profile(langs, slots), habit).await
    }

    /// A node that waits until a speaker has finished.
    pub(crate) async fn join_patient(world: &World, name: &str, slots: u16, habit: Habit) -> Self {
        let services = ServiceSet::ALL.without(Service::Streaming);
        Self::join_as(world, name, profile_with("zh en", slots, services), habit).await
    }

    async fn join_as(world: &World, name: &str, profile: Arc<Profile>, habit: Habit) -> Self {
        let slots = profile.slots_max();
        let id = NodeId::new(name).expect("a name");
        let (outbox, inbox) = mpsc::channel(64);
        let version = Some(Arc::from("3.0"));
        let registration = NodeRegistration::new(id.clone(), profile, outbox);
        let registration = NodeRegistration { version, ..registration };
        let registered = world.engine.register(registration).await.expect("registered");
        let most_at_once = Arc::new(AtomicU16::new(0));
        let jobs_done = Arc::new(AtomicU32::new(0));
        let (tell, told) = mpsc::unbounded_channel();
        let life = Life {
            engine: world.engine.clone(),
            id: id.clone(),
            epoch: registered.place.epoch,
            habit,
            at_once: Arc::new(AtomicU16::new(0)),
            most_at_once: Arc::clone(&most_at_once),
            jobs_done: Arc::clone(&jobs_done),
            tell,
        };
        let life = tokio::spawn(life.live(inbox));
        let epoch = registered.place.epoch;
        Self { id, epoch, most_at_once, jobs_done, told, slots, life }
    }

    /// A node that works for `ms`.
    pub(crate) async fn works(world: &World, name: &str, slots: u16, ms: u64) -> Self {
        Self::join(world, name, "zh en", slots, Habit::Works { ms }).await
    }

    /// Its connection breaks.
    pub(crate) async fn dies(&self, world: &World) {
        self.life.abort();
        world.engine.disconnect(&self.id, self.epoch).await.ok();
    }

    /// Says nothing any more, and nobody notices a broken connection.
    pub(crate) fn falls_silent(&self) {
        self.life.abort();
    }

    pub(crate) fn report(&self, attempt: u32) -> AttemptReport {
        AttemptReport { attempt: Attempt(attempt), node: self.id.clone(), fence: None }
    }

    pub(crate) fn done(&self) -> u32 {
        self.jobs_done.load(Ordering::SeqCst)
    }

    /// Waits for the next job that it is given.
    pub(crate) async fn next_job(&mut self) -> Assignment {
        loop {
            match self.told.recv().await.expect("the node lives") {
                ToNode::Assign(assignment) => return assignment,
                _ => continue,
            }
        }
    }

    /// It never had more at once than its slots.
    pub(crate) fn check(&self) {
        let most = self.most_at_once.load(Ordering::SeqCst);
        assert!(most <= self.slots, "{} had {most} jobs in {} slots", self.id, self.slots);
    }
}

pub(crate) fn profile(langs: &str, slots: u16) -> Arc<Profile> {
    profile_with(langs, slots, ServiceSet::ALL)
}

fn profile_with(langs: &str, slots: u16, services: ServiceSet) -> Arc<Profile> {
    let set =
        || langs.split(' ').map(|tag| Lang::new(tag).expect("a language")).collect::<LangSet>();
    let caps = Capabilities::new(set(), set(), set(), Nmt::AnyToAny, services);
    Arc::new(Profile::new(caps.expect("languages"), slots.into(), true).expect("slots"))
}

/// A message for the test's log, which would keep all audio for ever.
fn without_audio(message: &ToNode) -> ToNode {
    match message.clone() {
        ToNode::Assign(mut assignment) => {
            let spec = JobSpec::clone(&assignment.request.spec);
            assignment.request = JobRequest::new(assignment.job, spec);
            ToNode::Assign(assignment)
        }
        other => other,
    }
}

struct Life {
    engine: Engine,
    id: NodeId,
    epoch: Epoch,
    habit: Habit,
    at_once: Arc<AtomicU16>,
    most_at_once: Arc<AtomicU16>,
    jobs_done: Arc<AtomicU32>,
    tell: mpsc::UnboundedSender<ToNode>,
}

impl Life {
    async fn live(self, mut inbox: mpsc::Receiver<ToNode>) {
        let life = Arc::new(self);
        let mut jobs = tokio::task::JoinSet::new();
        let mut beats = tokio::time::interval(std::time::Duration::from_secs(5));
        let mut running: Vec<lingua_store::contract::LeaseKey> = vec![];
        loop {
            tokio::select! {
                message = inbox.recv() => {
                    let Some(message) = message else { return };
                    life.tell.send(without_audio(&message)).ok();
                    if let ToNode::Assign(assignment) = message {
                        let key = lingua_store::contract::LeaseKey {
                            job: assignment.job, attempt: assignment.attempt,
                        };
                        running.push(key);
                        let life = Arc::clone(&life);
                        jobs.spawn(async move { life.work(assignment).await; key });
                    }
                }
                Some(done) = jobs.join_next() => {
                    if let Ok(key) = done {
                        running.retain(|running| *running != key);
                    }
                }
                _ = beats.tick() => {
                    let (node, epoch) = (life.id.clone(), Some(life.epoch));
                    let running = Some(running.clone());
                    let beat = NodeHeartbeat { epoch, running, ..NodeHeartbeat::of(node) };
                    life.engine.heartbeat(beat).await.ok();
                }
            }
        }
    }

    async fn work(&self, assignment: Assignment) {
        let Assignment { job, attempt, .. } = assignment;
        let report =
            || AttemptReport { attempt, node: self.id.clone(), fence: Some(assignment.fence) };
        if matches!(self.habit, Habit::Silent) {
            return std::future::pending().await;
        }
        if matches!(self.habit, Habit::Busy) {
            self.engine.failed(job, report(), "BUSY".to_owned(), true, false).await.ok();
            return;
        }
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        self.engine.acked(job, report(), false).await.ok();
        match self.habit {
            Habit::Works { ms } => {
                tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
                self.at_once.fetch_sub(1, Ordering::SeqCst);
                let result = format!("{{\"by\":\"{}\"}}", self.id);
                self.jobs_done.fetch_add(1, Ordering::SeqCst);
                self.engine.done(job, report(), result, false).await.ok();
            }
            Habit::Fails { retryable } => {
                self.at_once.fetch_sub(1, Ordering::SeqCst);
                let reason = "MODEL_LOAD_FAILED".to_owned();
                self.engine.failed(job, report(), reason, retryable, false).await.ok();
            }
            _ => std::future::pending().await,
        }
    }
}

/// The node that gave the result.
pub(crate) fn done_by(view: &JobStatus) -> String {
    assert_eq!(view.progress.state, JobState::Done, "{view:?}");
    let ended = view.progress.ended.as_ref().expect("it ended");
    ended.attempts.last().expect("an attempt").node.to_string()
}

/// The code of its failure.
pub(crate) fn error_of(view: &JobStatus) -> String {
    assert_eq!(view.progress.state, JobState::Failed, "{view:?}");
    view.progress.ended.as_ref().and_then(|ended| ended.error.clone()).expect("a code")
}
