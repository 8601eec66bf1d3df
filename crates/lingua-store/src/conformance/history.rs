//! Random histories: every reply of a store is compared with the model, step by step.
//!
//! Start at [`run_part`]; [`run_full`] starts with full cells. A history follows from its seed: the
//! same seed makes the same requests to any store. After each step the cells, the table, the
//! instances and the feed are compared as well, so that no damage stays hidden.
//!
//! `LINGUA_HISTORIES` and `LINGUA_STEPS` change their number and length, `LINGUA_SEED` repeats one.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::future::Future;

use lingua_core::{CELL_NODES_MAX, CellId, Rules, SemanticRule};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Model, World};
use crate::clock::{Clock, ManualClock};
use crate::contract::{LeaseKey, Place, Store};

mod bindings;
mod cells;
mod cluster;
mod jobs;
mod keys;

/// How many histories a normal run has.
pub const HISTORIES: u64 = 200;

/// How many steps a history has.
pub const STEPS: u64 = 500;

/// How many steps a history with full cells has.
const FULL_STEPS: u64 = 150;

/// How many steps are shown when one fails.
const SHOWN: usize = 12;

/// Runs every `parts`-th history, from `part` on, each on a store of its own.
pub async fn run_part<S, F, Fut>(factory: F, part: u64, parts: u64)
where
    S: Store,
    F: Fn(Rules, ManualClock) -> Fut,
    Fut: Future<Output = S>,
{
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds: Vec<u64> = match number("LINGUA_SEED") {
        Some(seed) if part == 0 => vec![seed],
        Some(_) => vec![],
        None => (part..number("LINGUA_HISTORIES").unwrap_or(HISTORIES))
            .step_by(parts as usize)
            .collect(),
    };
    run_steps(factory, seeds, number("LINGUA_STEPS").unwrap_or(STEPS)).await;
}

/// Runs the histories with these seeds, each on a store of its own.
pub async fn run<S, F, Fut>(factory: F, seeds: impl IntoIterator<Item = u64>)
where
    S: Store,
    F: Fn(Rules, ManualClock) -> Fut,
    Fut: Future<Output = S>,
{
    run_steps(factory, seeds.into_iter().collect(), STEPS).await;
}

async fn run_steps<S, F, Fut>(factory: F, seeds: Vec<u64>, steps: u64)
where
    S: Store,
    F: Fn(Rules, ManualClock) -> Fut,
    Fut: Future<Output = S>,
{
    let enough = steps * seeds.len() as u64 >= ENOUGH_STEPS;
    let mut seen = Seen::new();
    for seed in seeds {
        for (kind, count) in History::new(&factory, seed).await.run(steps).await {
            *seen.entry(kind).or_default() += count;
        }
    }
    for kind in EVERY_KIND {
        assert!(!enough || seen.contains_key(kind), "no history had {kind:?}: {seen:#?}");
    }
}

/// Runs histories in which the cells are full of nodes from the start: 100 nodes and a second cell
/// for even seeds, several cells with 50 nodes or more for odd ones.
pub async fn run_full<S, F, Fut>(factory: F, seeds: impl IntoIterator<Item = u64>)
where
    S: Store,
    F: Fn(Rules, ManualClock) -> Fut,
    Fut: Future<Output = S>,
{
    for seed in seeds {
        let mut history = History::new(&factory, seed).await;
        history.fleet = 120;
        history.classes = if seed % 2 == 0 { Classes::Small } else { Classes::One };
        for n in 0..history.fleet {
            history.register_node(n).await;
        }
        let fill: Vec<usize> = history.nodes_in_cells();
        match seed % 2 {
            0 => assert_eq!(fill, [CELL_NODES_MAX, 120 - CELL_NODES_MAX]),
            _ => assert!(fill.len() > 1 && fill.iter().all(|&nodes| nodes >= 30), "{fill:?}"),
        }
        history.run(FULL_STEPS).await;
    }
}

/// From this many steps on, every kind of reply must have come.
const ENOUGH_STEPS: u64 = 20_000;

/// Every kind of reply that the histories must reach.
const EVERY_KIND: [&str; 53] = [
    "bind Bound",
    "bind Conflict",
    "assign Placed",
    "assign Taken",
    "assign TooMany",
    "register Registered",
    "register Stale",
    "register lost leases",
    "register kept leases",
    "heartbeat Accepted",
    "heartbeat Reregister",
    "heartbeat unknown leases",
    "order Set",
    "order Stale",
    "reserve Granted",
    "reserve Duplicate",
    "reserve Stale",
    "reserve Full",
    "reserve NoneCapable",
    "reserve PinLost",
    "reserve after expired leases",
    "commit Committed",
    "commit Stale",
    "commit Gone",
    "finish Some",
    "finish None",
    "reap ReapReply",
    "create Created",
    "create Exists",
    "advance Advanced",
    "advance Conflict",
    "advance NotFound",
    "claim Some",
    "claim None",
    "list Some",
    "erase Erased",
    "erase Open",
    "erase NotFound",
    "count true",
    "count false",
    "claim key Claimed",
    "claim key Taken",
    "announce Present",
    "announce NameTaken",
    "withdraw true",
    "withdraw false",
    "elect Leading",
    "elect Following",
    "publish Published",
    "publish NotLeader",
    "publish Conflict",
    "resign true",
    "resign false",
];

/// A store, its model, and the history so far.
pub(super) struct History<S> {
    world: World<S>,
    model: Model,
    rng: ChaCha8Rng,
    /// For keys and lists, so that they do not change what happens in cells.
    side_rng: ChaCha8Rng,
    /// How many nodes take part.
    fleet: usize,
    classes: Classes,
    /// Assigned places, the newest incarnation of each node last.
    places: Vec<(usize, Place)>,
    /// Requested leases, whether they still exist or not.
    asked: Vec<(CellId, LeaseKey)>,
    jobs_made: u128,
    tokens: u64,
    batches: u64,
    /// How often each id was used up: an id that was forgotten is not given again.
    created: BTreeMap<u128, u128>,
    seen: Seen,
    trace: Trace,
}

/// How nodes are divided into classes, which decides which cells they get.
#[derive(Debug, Clone, Copy)]
pub(super) enum Classes {
    /// Two at random, too small to be spread.
    Two,
    /// One that is spread over several cells when it is large.
    One,
    /// Five of 24, which begin in one cell and fill it before they go to the next.
    Small,
}

/// How often each kind of reply came.
type Seen = BTreeMap<String, u64>;

/// Prints the last steps before a failure.
struct Trace {
    seed: u64,
    step: u64,
    last: VecDeque<String>,
}

impl Drop for Trace {
    #[allow(clippy::print_stderr, reason = "a failed test says how to repeat it")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("history failed at step {}; its last steps:", self.step);
            for line in &self.last {
                eprintln!("  {line}");
            }
            eprintln!("repeat it with LINGUA_SEED={} LINGUA_STEPS={}", self.seed, self.step + 1);
        }
    }
}

impl<S: Store> History<S> {
    async fn new<F, Fut>(factory: F, seed: u64) -> Self
    where
        F: Fn(Rules, ManualClock) -> Fut,
        Fut: Future<Output = S>,
    {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let semantic = pick(
            &mut rng,
            &[
                SemanticRule::Declared,
                SemanticRule::Source,
                SemanticRule::Source,
                SemanticRule::Both,
            ],
        );
        let rules = Rules { semantic, ..Rules::default() };
        let world = World::new(factory, rules).await;
        let fleet = pick(&mut rng, &[3, 8, 12, 40]);
        Self {
            model: Model::new(rules, world.clock.now_ms()),
            world,
            fleet,
            classes: if fleet < 40 { Classes::Two } else { Classes::One },
            rng,
            side_rng: ChaCha8Rng::seed_from_u64(seed.wrapping_add(1 << 32)),
            places: vec![],
            asked: vec![],
            jobs_made: 0,
            tokens: 0,
            batches: 1,
            created: BTreeMap::new(),
            seen: Seen::new(),
            trace: Trace { seed, step: 0, last: VecDeque::new() },
        }
    }

    fn nodes_in_cells(&self) -> Vec<usize> {
        let cells = self.model.expect_cells();
        cells.into_iter().map(|cell| self.model.view(cell).nodes.len()).collect()
    }

    async fn run(mut self, steps: u64) -> Seen {
        for step in 0..steps {
            self.trace.step = step;
            self.step().await;
            self.compare().await;
        }
        self.after_quiet_nothing_is_used().await;
        self.the_feed_told_everything().await;
        self.seen
    }

    async fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..7 => self.register().await,
            7..18 => self.heartbeat().await,
            18..22 => self.order().await,
            22..46 => self.reserve().await,
            46..55 => self.commit().await,
            55..67 => self.finish().await,
            67..70 => self.reap().await,
            70..79 => self.pass_time(),
            79..89 => self.job_step().await,
            89..91 => self.binding_step().await,
            91..95 => self.instance_step().await,
            _ => self.leader_step().await,
        }
    }

    fn pass_time(&mut self) {
        let by_ms = pick(&mut self.rng, &[1, 1, 50, 50, 700, 700, 3_000, 6_000, 16_000, 4_000_000]);
        self.note(format_args!("{by_ms} ms pass"));
        self.world.clock.advance(by_ms);
        self.model.now_ms += by_ms;
    }

    /// Compares the whole state of the store with the model.
    async fn compare(&mut self) {
        let store = &self.world.store;
        let cells = store.cells().await.expect("a reply");
        assert_eq!(cells, self.model.expect_cells());
        let mut seen: Vec<CellId> = self.places.iter().map(|(_, place)| place.cell).collect();
        seen.sort();
        seen.dedup();
        for cell in seen {
            let view = store.view(cell).await.expect("a view");
            assert_eq!(view, self.model.view(cell), "cell {cell}");
            check_invariants(&view);
        }
        assert_eq!(store.table().await.expect("a reply"), self.model.expect_table());
        assert_eq!(store.instances().await.expect("a reply"), self.model.expect_instances());
        assert_eq!(store.feed_head().await.expect("a reply"), self.model.feed.len() as u64);
    }

    /// Invariant 7: when everybody is silent for long enough, nothing is leaked.
    async fn after_quiet_nothing_is_used(&mut self) {
        self.world.clock.advance(100_000_000);
        self.model.now_ms += 100_000_000;
        for cell in self.model.expect_cells() {
            let reaped = self.world.store.reap(cell, usize::MAX).await.expect("a reply");
            assert_eq!(reaped, self.model.expect_reap(cell, usize::MAX));
            let view = self.world.store.view(cell).await.expect("a view");
            assert!(view.leases.is_empty(), "leaked: {:?}", view.leases);
            assert!(view.nodes.iter().all(|node| node.used == 0), "leaked: {:?}", view.nodes);
        }
    }

    async fn the_feed_told_everything(&mut self) {
        let mut told = vec![];
        while told.len() < self.model.feed.len() {
            let piece = self.world.store.changes(told.len() as u64, 100).await.expect("a reply");
            assert!(!piece.gap, "a history is shorter than the feed");
            told.extend(piece.changes);
            assert_eq!(piece.next, told.len() as u64);
        }
        assert_eq!(told, self.model.feed);
    }

    fn note(&mut self, what: impl std::fmt::Display) {
        if self.trace.last.len() == SHOWN {
            self.trace.last.pop_front();
        }
        let line = format!("{:>4}  {what}", self.trace.step);
        self.trace.last.push_back(line);
    }

    fn note_reply(&mut self, operation: &'static str, what: &dyn Debug, reply: &dyn Debug) {
        let reply = format!("{reply:?}");
        self.note(format_args!("{operation} {what:?} -> {reply}"));
        let kind = reply.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        self.count(operation, kind);
    }

    fn count(&mut self, operation: &str, kind: &str) {
        *self.seen.entry(format!("{operation} {kind}")).or_default() += 1;
    }
}

/// Checks what must be true of any cell at any time.
fn check_invariants(view: &crate::contract::CellRecord) {
    for node in &view.nodes {
        let slot = node.place.slot;
        let leases = view.leases.iter().filter(|lease| lease.slot == slot);
        assert_eq!(usize::from(node.used), leases.clone().count(), "invariant 1: {node:?}");
        for lease in leases {
            assert_eq!(lease.epoch, node.place.epoch, "invariant 3: {lease:?} of an old epoch");
        }
    }
    let mut fences: Vec<_> = view.leases.iter().map(|lease| lease.fence).collect();
    fences.sort();
    fences.dedup();
    assert_eq!(fences.len(), view.leases.len(), "invariant 6: two leases with one fence");
    let homeless = view.leases.iter().find(|l| view.nodes.iter().all(|n| n.place.slot != l.slot));
    assert!(homeless.is_none(), "a lease without a node: {homeless:?}");
}

/// A random item.
pub(super) fn pick<T: Clone>(rng: &mut ChaCha8Rng, from: &[T]) -> T {
    from[rng.random_range(0..from.len())].clone()
}
