//! A seeded world: several instances of the real engine over one store, with simulated nodes,
//! clients, network and faults.
//!
//! Start at [`run`]. One seed is one world. Time is virtual, there is one thread, and each actor
//! has random numbers of its own, so a seed always gives the same trace, byte for byte.
//!
//! | file | holds |
//! |---|---|
//! | `plan.rs`, `rng.rs` | what a seed decides in advance; random numbers of each actor |
//! | `fleet.rs` | tenants, and nodes that say little |
//! | `instance.rs`, `instance_faults.rs` | runs of instances; their faults |
//! | `store.rs`, `store_checker.rs` | the store with its faults; the rules of the store |
//! | `network.rs`, `connection.rs` | delays and losses of messages; connections of nodes |
//! | `node.rs`, `node/work.rs`, `job_audio.rs` | node processes; their jobs; the input of those |
//! | `client.rs`, `client_job.rs` | clients; the jobs that they submit |
//! | `speaker.rs`, `client_connection.rs` | clients of sessions; their connections |
//! | `marked_audio.rs`, `segment_echo.rs` | audio with numbered frames; what nodes return for it |
//! | `fault_injection.rs`, `recovery.rs` | the time of faults; the end without faults |
//! | `checker.rs`, `session_checker.rs` | the rules S1 to S8; the rules of sessions, S9 and S10 |
//! | `facts.rs`, `planted.rs` | what is known of each job; planted bugs |
//! | `batch.rs`, `run_file.rs` | many seeds; what a long run has done |
//! | `tally.rs`, `trace.rs` | counts; traces |
//!
//! Invariant: the world decides nothing for the engine, and sees only what nodes, clients and
//! stores see.

mod batch;
mod checker;
mod client;
mod client_connection;
mod client_job;
mod connection;
mod facts;
mod fault_injection;
mod fleet;
mod instance;
mod instance_faults;
mod job_audio;
mod marked_audio;
mod network;
mod node;
mod plan;
mod planted;
mod recovery;
mod rng;
mod run_file;
mod segment_echo;
mod session_checker;
mod speaker;
mod store;
mod store_checker;
mod tally;
mod trace;

pub use batch::{WorldBatch, WorldProgress};
pub use checker::{Checker, Violation};
pub use plan::{Fault, WorldKind};
pub use planted::{NodeBug, PLANTED_BUGS, PlantedBug, PlantedBugCase};
pub use run_file::RunFile;
pub use tally::WorldTally;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lingua_core::JobId;
use lingua_engine::TokioTimer;
use lingua_engine::session::Sessions;
use lingua_store::embedded::LostWrites;
use lingua_store::{Clock, StoreLimits};
use parking_lot::Mutex;

use checker::{JobFacts, Observer};
use client_job::ClientJob;
use instance::SimInstance;
use network::{Network, NetworkEnd};
use plan::{CHAOS_MS, WorldPlan};
use session_checker::SessionChecker;
use store::SimStore;
use store_checker::StoreChecker;
use trace::{Subject, Trace};

/// The time at which every world begins, in milliseconds since the epoch.
const START_MS: u64 = 1_800_000_000_000;

/// How often the world checks what it can only poll.
const LOOK_MS: u64 = 200;

/// How long the world runs before the first fault.
const WARM_UP_MS: u64 = 500;

/// The most lines of a timeline.
const TIMELINE_LINES: usize = 120;

/// The result of one world.
#[derive(Debug, Clone)]
pub struct WorldOutcome {
    /// The seed.
    pub seed: u64,
    /// What it had.
    pub kind: WorldKind,
    /// The first broken rule; `None` if all rules held.
    pub violation: Option<Violation>,
    /// The part of the trace that concerns the violation.
    pub timeline: String,
    /// The whole trace.
    pub trace: String,
    /// Counts of faults and jobs.
    pub tally: WorldTally,
}

impl WorldOutcome {
    /// The violation, its timeline, and the command that repeats it.
    pub fn report(&self) -> String {
        match &self.violation {
            None => format!("seed {} holds all rules\n", self.seed),
            Some(Violation { checker, at_ms, text, .. }) => format!(
                "seed {} broke {checker} at {}.{:03} s: {text}\n\n{}\n\
                 repeat it with: cargo xtask sim --seed {}{}\n",
                self.seed,
                at_ms / 1000,
                at_ms % 1000,
                self.timeline,
                self.seed,
                self.kind.as_option(),
            ),
        }
    }
}

/// Simulates a seed. If its clocks are skewed, simulates it with correct clocks too: the traces
/// must be equal.
pub fn run(seed: u64, kind: WorldKind, bug: Option<PlantedBug>) -> WorldOutcome {
    let plan = WorldPlan::of(seed, kind);
    let is_skewed = plan.is_skewed();
    let mut outcome = simulate(plan.clone(), bug);
    if is_skewed && outcome.violation.is_none() {
        let right = simulate(plan.without_skew(), bug);
        let differs = outcome.trace.lines().zip(right.trace.lines()).find(|(a, b)| a != b);
        let text = match differs {
            Some((a, b)) => {
                format!("with wrong clocks '{}', with right ones '{}'", a.trim(), b.trim())
            }
            None if outcome.trace.len() != right.trace.len() => "one run is longer".to_owned(),
            None => return outcome,
        };
        let about = Subject::default();
        outcome.violation = Some(Violation { checker: Checker::S8, at_ms: 0, text, about });
    }
    outcome
}

/// Plants a bug in the code under test, in this thread. Only a build with `--cfg planted_bugs` has
/// them.
#[cfg(planted_bugs)]
fn plant(bug: Option<PlantedBug>) {
    lingua_core::planted::plant(match bug {
        Some(PlantedBug::Code(bug)) => Some(bug),
        Some(PlantedBug::Node(_)) | None => None,
    });
}

#[cfg(not(planted_bugs))]
fn plant(bug: Option<PlantedBug>) {
    let is_in_code = matches!(bug, Some(PlantedBug::Code(_)));
    assert!(!is_in_code, "{bug:?} needs a build with RUSTFLAGS=\"--cfg planted_bugs\"");
}

fn simulate(plan: WorldPlan, bug: Option<PlantedBug>) -> WorldOutcome {
    plant(bug);
    let (seed, kind) = (plan.seed, plan.kind);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without threads or files");
    let world = runtime.block_on(async move {
        let world = World::new(plan, bug);
        world.simulate().await;
        world
    });
    // Tasks hold handles and handles hold the world; dropping both frees the world.
    drop(runtime);
    world.instances.lock().clear();
    for sessions in world.sessions.lock().drain(..) {
        sessions.drop_all();
    }
    plant(None);
    let trace = std::mem::take(&mut *world.trace.lock());
    let violation = world.violation.lock().take();
    let about = violation.as_ref().map(|violation| violation.about).unwrap_or_default();
    let timeline = match violation {
        Some(_) => trace.timeline(about, TIMELINE_LINES),
        None => String::new(),
    };
    let tally = world.tally.lock().clone();
    WorldOutcome { seed, kind, violation, timeline, trace: trace.into_text(), tally }
}

/// The processes of all nodes.
#[derive(Debug, Default)]
struct Processes {
    present: Vec<Option<node::ProcessHandle>>,
    count: u32,
}

/// The whole state of a world.
#[derive(Debug)]
struct World {
    plan: WorldPlan,
    bug: Option<PlantedBug>,
    clock: TokioTimer,
    store: SimStore,
    store_checker: Mutex<StoreChecker>,
    observer: Mutex<Observer>,
    trace: Mutex<Trace>,
    violation: Mutex<Option<Violation>>,
    tally: Mutex<WorldTally>,
    network: Mutex<Network>,
    instances: Mutex<Vec<SimInstance>>,
    /// The session registries of all runs of instances.
    sessions: Mutex<Vec<Sessions<store::FaultyStore, instance_faults::SkewedTimer>>>,
    /// What the clients of sessions know, by session number.
    session_checkers: Mutex<Vec<SessionChecker>>,
    processes: Mutex<Processes>,
    jobs: Mutex<Vec<JobFacts>>,
    begun: Mutex<Vec<bool>>,
    /// The number of the first job that is sent after the faults.
    last_from: AtomicUsize,
    quiet: AtomicBool,
    /// Until when faults may delay the ends of jobs.
    disturbed_until_ms: Mutex<u64>,
    /// Faults and when they were injected.
    injected: Mutex<Vec<(Fault, u64)>>,
    deaths: Mutex<Vec<(usize, u64)>>,
    /// The run of an instance that last dispatched each job.
    dispatchers: Mutex<BTreeMap<JobId, (usize, u32)>>,
    /// Lost writes: from when, until when, and which.
    rollbacks: Mutex<Vec<(u64, u64, LostWrites)>>,
}

impl World {
    fn new(plan: WorldPlan, bug: Option<PlantedBug>) -> Arc<Self> {
        let clock = TokioTimer::starting_at(START_MS);
        let store = SimStore::new(Default::default(), StoreLimits::default(), clock.clone());
        let store = match &plan.fleet {
            Some(fleet) => store.with_cells_of(fleet.cell_nodes),
            None => store,
        };
        let instances = (0..plan.instances).map(|_| SimInstance::default()).collect();
        let present = vec![None; plan.nodes.len()];
        Arc::new(Self {
            network: Mutex::new(Network::new(plan.seed)),
            bug,
            clock,
            store,
            store_checker: Mutex::default(),
            observer: Mutex::default(),
            trace: Mutex::default(),
            violation: Mutex::default(),
            tally: Mutex::default(),
            instances: Mutex::new(instances),
            sessions: Mutex::default(),
            session_checkers: Mutex::default(),
            processes: Mutex::new(Processes { present, count: 0 }),
            jobs: Mutex::default(),
            begun: Mutex::default(),
            last_from: AtomicUsize::new(usize::MAX),
            quiet: AtomicBool::new(false),
            disturbed_until_ms: Mutex::default(),
            injected: Mutex::default(),
            deaths: Mutex::default(),
            dispatchers: Mutex::default(),
            rollbacks: Mutex::default(),
            plan,
        })
    }

    /// Simulates the world from start to end.
    async fn simulate(self: &Arc<Self>) {
        self.note(Subject::default(), format_args!("{:?}", self.plan.clone().without_skew()));
        for index in 0..self.plan.instances {
            self.start_instance(index, true);
        }
        for node in 0..self.plan.nodes.len() {
            self.start_node(node);
        }
        tokio::time::sleep(Duration::from_millis(WARM_UP_MS)).await;
        let looking = tokio::spawn(Arc::clone(self).observe());
        let traffic = tokio::spawn(Arc::clone(self).traffic());
        for who in 0..self.plan.speech.as_ref().map_or(0, |speech| speech.speakers) {
            tokio::spawn(speaker::run_speaker(Arc::clone(self), who));
        }
        fault_injection::inject_faults(self).await;
        traffic.abort();
        if !self.has_failed() {
            recovery::check_recovery(self).await;
        }
        looking.abort();
        self.count_outcomes();
    }

    async fn traffic(self: Arc<Self>) {
        let mut rng = rng::SimRng::new(self.plan.seed, "traffic");
        let until_ms = self.now_ms() + CHAOS_MS;
        while self.now_ms() < until_ms && !self.has_failed() {
            let number = self.next_job();
            let turn = ClientJob::of(&self.plan, number);
            tokio::spawn(client::run_client(Arc::clone(&self), turn));
            let pause_ms = rng.between(1, 2 * self.plan.job_every_ms);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
    }

    /// Polls what nobody reports: pool tables, and jobs that are overdue.
    async fn observe(self: Arc<Self>) {
        loop {
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
            for run in self.runs() {
                let Some(table) = run.engine.pools() else { continue };
                let shown = (table.term, table.version);
                let found = self.observer.lock().shows((run.index, run.number), shown);
                if let Some((checker, text)) = found {
                    self.fail(checker, Subject::default(), text);
                }
            }
            self.check_overdue().await;
            self.check_session_delays();
        }
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    fn note(&self, about: Subject, what: std::fmt::Arguments<'_>) {
        self.trace.lock().note(self.now_ms() - START_MS, about, what);
    }

    /// Records a broken rule. Only the first counts, because later ones may be its consequences.
    fn fail(&self, checker: Checker, about: Subject, text: String) {
        let mut violation = self.violation.lock();
        if violation.is_none() {
            let at_ms = self.now_ms() - START_MS;
            self.note(about, format_args!("*** {checker}: {text}"));
            *violation = Some(Violation { checker, at_ms, text, about });
        }
    }

    fn has_failed(&self) -> bool {
        self.violation.lock().is_some()
    }

    fn has_bug(&self, bug: NodeBug) -> bool {
        self.bug == Some(PlantedBug::Node(bug))
    }

    fn about(&self, job: lingua_core::JobId) -> Subject {
        Subject::job(job.number() as usize)
    }

    fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    fn begin_quiet(&self) {
        self.quiet.store(true, Ordering::Relaxed);
        self.last_from.store(self.jobs.lock().len(), Ordering::Relaxed);
        let mut until_ms = self.disturbed_until_ms.lock();
        *until_ms = (*until_ms).min(self.now_ms());
    }

    fn delays(&self, from: NetworkEnd, to: NetworkEnd) -> Vec<u64> {
        self.network.lock().delays(from, to, self.now_ms())
    }

    /// The delay of the first copy of a message; `None` if it is lost.
    fn delay(&self, from: NetworkEnd, to: NetworkEnd) -> Option<u64> {
        self.delays(from, to).first().copied()
    }
}
