//! A seeded world: several instances of the real engine over one store, with nodes, clients and a network,
//! and everything that can go wrong.
//!
//! Start at [`run`]. One seed is one world; time is virtual, there is one thread, and chance is split by actor, so
//! that a seed gives the same trace to the byte.
//!
//! | file | what |
//! |---|---|
//! | `plan.rs` | what a seed decides beforehand |
//! | `instance.rs`, `gate.rs` | lives of instances; what holds one up |
//! | `store.rs`, `oracle.rs` | the store as it is reached; what its answers are held against |
//! | `network.rs`, `conn.rs` | what becomes of messages; connections of nodes |
//! | `node.rs`, `client.rs`, `client_job.rs` | processes of nodes; clients; what they ask for |
//! | `speaker.rs`, `client_connection.rs` | clients of sessions; their connections |
//! | `marked_audio.rs`, `ear.rs`, `segment_echo.rs` | audio with numbered frames; what nodes return for it |
//! | `chaos.rs`, `quiet.rs` | the time of faults; the quiet end |
//! | `checker.rs`, `session_checker.rs` | the rules S1 to S8; those of sessions, S9 and S10 |
//! | `planted.rs` | bugs on purpose |
//! | `batch.rs`, `tally.rs`, `trace.rs` | many seeds; numbers; timelines |
//!
//! Invariant: nothing here decides anything for the engine; it only sees what a node, a client or a store sees.

mod batch;
mod chaos;
mod checker;
mod client;
mod client_connection;
mod client_job;
mod conn;
mod ear;
mod facts;
mod gate;
mod instance;
mod luck;
mod marked_audio;
mod network;
mod node;
mod oracle;
mod plan;
mod planted;
mod quiet;
mod segment_echo;
mod session_checker;
mod speaker;
mod store;
mod tally;
mod trace;

pub use batch::{Batch, Progress};
pub use checker::{Checker, Violation};
pub use plan::{Cast, Fault};
pub use planted::{NodeBug, PLANTS, Plant, Where};
pub use tally::Tally;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lingua_engine::TokioTimer;
use lingua_engine::session::Sessions;
use lingua_store::embedded::LostWrites;
use lingua_store::{Clock, StoreLimits};
use parking_lot::Mutex;

use checker::{JobFacts, Watch};
use client_job::ClientJob;
use instance::Instance;
use network::{End, Network};
use oracle::Oracle;
use plan::{CHAOS_MS, Plan};
use session_checker::SessionChecker;
use store::Inner;
use trace::{About, Trace};

/// The time at which every world begins.
const START_MS: u64 = 1_800_000_000_000;

/// How often the world looks at what can only be looked at.
const LOOK_MS: u64 = 200;

/// How long the world runs without faults at first.
const WARM_UP_MS: u64 = 500;

/// Lines of a timeline.
const TIMELINE_LINES: usize = 120;

/// What came of a seed.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Who lived in it.
    pub cast: Cast,
    /// The first rule that was broken, if one was.
    pub violation: Option<Violation>,
    /// What led to it.
    pub timeline: String,
    /// Everything that happened.
    pub trace: String,
    /// In numbers.
    pub tally: Tally,
}

impl Outcome {
    /// For people: what is wrong, how it came to that, and how to see it again.
    pub fn report(&self) -> String {
        match &self.violation {
            None => format!("seed {} holds all rules\n", self.seed),
            Some(Violation { checker, at_ms, text, .. }) => format!(
                "seed {} broke {checker} at {}.{:03} s: {text}\n\n{}\nagain with: cargo xtask sim --seed {}{}\n",
                self.seed,
                at_ms / 1000,
                at_ms % 1000,
                self.timeline,
                self.seed,
                if self.cast == Cast::Speakers { " --speakers" } else { "" },
            ),
        }
    }
}

/// Lives through a seed. If it has wrong clocks, it is lived through with right ones too, and nothing may
/// differ.
pub fn run(seed: u64, cast: Cast, bug: Option<Where>) -> Outcome {
    let plan = Plan::of(seed, cast);
    let is_skewed = plan.is_skewed();
    let mut outcome = live(plan.clone(), bug);
    if is_skewed && outcome.violation.is_none() {
        let right = live(plan.without_skew(), bug);
        let differs = outcome.trace.lines().zip(right.trace.lines()).find(|(a, b)| a != b);
        let text = match differs {
            Some((a, b)) => {
                format!("with wrong clocks '{}', with right ones '{}'", a.trim(), b.trim())
            }
            None if outcome.trace.len() != right.trace.len() => "one run is longer".to_owned(),
            None => return outcome,
        };
        let about = About::default();
        outcome.violation = Some(Violation { checker: Checker::S8, at_ms: 0, text, about });
    }
    outcome
}

/// Plants a bug in the code under test, in this thread. Only a build with `--cfg planted_bugs` has them.
#[cfg(planted_bugs)]
fn plant(bug: Option<Where>) {
    lingua_core::planted::plant(match bug {
        Some(Where::Code(bug)) => Some(bug),
        Some(Where::Node(_)) | None => None,
    });
}

#[cfg(not(planted_bugs))]
fn plant(bug: Option<Where>) {
    let is_in_code = matches!(bug, Some(Where::Code(_)));
    assert!(!is_in_code, "{bug:?} needs a build with RUSTFLAGS=\"--cfg planted_bugs\"");
}

fn live(plan: Plan, bug: Option<Where>) -> Outcome {
    plant(bug);
    let seed = plan.seed;
    let cast = if plan.speech.is_some() { Cast::Speakers } else { Cast::Clients };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without threads or files");
    let world = runtime.block_on(async move {
        let world = World::new(plan, bug);
        world.pass_time().await;
        world
    });
    // Tasks hold handles and handles hold the world: both have to go, or no world would ever be freed.
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
    Outcome { seed, cast, violation, timeline, trace: trace.into_text(), tally }
}

/// All nodes' processes.
#[derive(Debug, Default)]
struct Processes {
    present: Vec<Option<node::Seen>>,
    count: u32,
}

/// Everything there is.
#[derive(Debug)]
struct World {
    plan: Plan,
    bug: Option<Where>,
    clock: TokioTimer,
    store: Inner,
    oracle: Mutex<Oracle>,
    watch: Mutex<Watch>,
    trace: Mutex<Trace>,
    violation: Mutex<Option<Violation>>,
    tally: Mutex<Tally>,
    network: Mutex<Network>,
    instances: Mutex<Vec<Instance>>,
    /// The sessions of all lives of instances.
    sessions: Mutex<Vec<Sessions<store::FaultyStore, gate::SkewedTimer>>>,
    /// What clients know of theirs, by number.
    session_checkers: Mutex<Vec<SessionChecker>>,
    processes: Mutex<Processes>,
    jobs: Mutex<Vec<JobFacts>>,
    begun: Mutex<Vec<bool>>,
    /// The first job of the quiet end.
    last_from: AtomicUsize,
    quiet: AtomicBool,
    /// Until when the ends of jobs may be delayed by what happened.
    disturbed_until_ms: Mutex<u64>,
    /// Faults and when they struck.
    strikes: Mutex<Vec<(Fault, u64)>>,
    deaths: Mutex<Vec<(usize, u64)>>,
    /// From when to when writes were lost, and which.
    rollbacks: Mutex<Vec<(u64, u64, LostWrites)>>,
}

impl World {
    fn new(plan: Plan, bug: Option<Where>) -> Arc<Self> {
        let clock = TokioTimer::starting_at(START_MS);
        let store = Inner::new(Default::default(), StoreLimits::default(), clock.clone());
        let instances = (0..plan.instances).map(|_| Instance::default()).collect();
        let present = vec![None; plan.nodes.len()];
        Arc::new(Self {
            network: Mutex::new(Network::new(plan.seed)),
            bug,
            clock,
            store,
            oracle: Mutex::default(),
            watch: Mutex::default(),
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
            strikes: Mutex::default(),
            deaths: Mutex::default(),
            rollbacks: Mutex::default(),
            plan,
        })
    }

    /// From the beginning to the end.
    async fn pass_time(self: &Arc<Self>) {
        self.note(About::default(), format_args!("{:?}", self.plan.clone().without_skew()));
        for index in 0..self.plan.instances {
            self.start_instance(index, true);
        }
        for node in 0..self.plan.nodes.len() {
            self.start_node(node);
        }
        tokio::time::sleep(Duration::from_millis(WARM_UP_MS)).await;
        let looking = tokio::spawn(Arc::clone(self).look_on());
        let traffic = tokio::spawn(Arc::clone(self).traffic());
        for who in 0..self.plan.speech.as_ref().map_or(0, |speech| speech.speakers) {
            tokio::spawn(speaker::run_speaker(Arc::clone(self), who));
        }
        chaos::rage(self).await;
        traffic.abort();
        if !self.has_failed() {
            quiet::settle(self).await;
        }
        looking.abort();
        self.count_outcomes();
    }

    async fn traffic(self: Arc<Self>) {
        let mut luck = luck::Luck::new(self.plan.seed, "traffic");
        let until_ms = self.now_ms() + CHAOS_MS;
        while self.now_ms() < until_ms && !self.has_failed() {
            let number = self.next_job();
            let turn = ClientJob::of(&self.plan, number);
            tokio::spawn(client::speak(Arc::clone(&self), turn));
            let pause_ms = luck.between(1, 2 * self.plan.job_every_ms);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
    }

    /// Looks at what nobody reports: tables, and jobs that should have ended.
    async fn look_on(self: Arc<Self>) {
        loop {
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
            for life in self.lives() {
                let Some(table) = life.engine.pools() else { continue };
                let shown = (table.term, table.version);
                let found = self.watch.lock().shows((life.index, life.number), shown);
                if let Some((checker, text)) = found {
                    self.fail(checker, About::default(), text);
                }
            }
            self.look_for_overdue().await;
            self.look_for_silence();
        }
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    fn note(&self, about: About, what: std::fmt::Arguments<'_>) {
        self.trace.lock().note(self.now_ms() - START_MS, about, what);
    }

    /// A rule was broken. Only the first one counts: what follows may follow from it.
    fn fail(&self, checker: Checker, about: About, text: String) {
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
        self.bug == Some(Where::Node(bug))
    }

    fn about(&self, job: lingua_core::JobId) -> About {
        About::job(job.number() as usize)
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

    fn fate(&self, from: End, to: End) -> Vec<u64> {
        self.network.lock().fate(from, to, self.now_ms())
    }

    /// When the first copy of a message arrives.
    fn first_fate(&self, from: End, to: End) -> Option<u64> {
        self.fate(from, to).first().copied()
    }
}
