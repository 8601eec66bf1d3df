//! How fast the embedded store is, through the contract that everybody uses.
//!
//! `cargo bench -p lingua-store`; the table is in docs/benchmarks.md.

#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures_util::FutureExt;
use lingua_core::{
    Capabilities, CellId, Health, JobId, Lang, LangPair, LangSet, Load, Nmt, Policy, Profile,
    Query, Rules, ServiceSet,
};
use lingua_store::conformance::fixture::{
    ACK_MS, FRESH_MS, RUN_MS, instance, key, node, pair, profile,
};
use lingua_store::contract::{
    AssignRequest, AttemptOutcome, HeartbeatRequest, Incarnation, KeptLeases, LeaseKey, NodeClass,
    NodeCommand, NodeSpeed, Place, RegisterRequest, ReserveOutcome, ReserveRequest, Store,
};
use lingua_store::{Embedded, StoreLimits};

mod clock;

use clock::SinceStart;

/// Long enough that nothing goes stale while a benchmark runs.
const FOREVER_MS: u64 = 86_400_000;

/// The embedded store never waits in these operations.
fn now<T>(future: impl Future<Output = lingua_store::Result<T>>) -> T {
    future.now_or_never().expect("the embedded store answers at once").expect("a reply")
}

fn place_of(store: &Embedded<SinceStart>, n: usize, class: u32) -> Place {
    let (incarnation, class) = (Incarnation(1), NodeClass(class));
    now(store.assign(AssignRequest::new(node(n), incarnation, class))).placed().expect("a place")
}

fn registration(n: usize, place: Place, profile: Arc<Profile>) -> RegisterRequest {
    let speed = NodeSpeed::assumed(800 + (n % 7) as u32 * 100);
    let health = Health::Ready;
    let (fresh_ms, version, via) = (FOREVER_MS, None, instance(1));
    let (node, keep) = (node(n), KeptLeases::NONE);
    RegisterRequest { place, node, profile, health, speed, fresh_ms, version, via, keep }
}

/// A store with this many cells of 100 nodes with 4 slots each.
fn fleet(cells: usize) -> Embedded<SinceStart> {
    let store = Embedded::new(Rules::default(), StoreLimits::default(), SinceStart::new());
    let profiles = [profile("zh en", 4), profile("zh en ja fr", 4), profile("zh en de", 4)];
    for n in 0..cells * 100 {
        // Small classes: one cell is filled before the next is opened, a thousand in the end.
        let place = place_of(&store, n, (n / 100 * 5 + n % 5) as u32);
        now(store.register(registration(n, place, Arc::clone(&profiles[n % 3]))));
    }
    assert_eq!(now(store.cells()).len(), cells);
    store
}

/// A cheap stream of numbers; what it is worth does not matter here.
struct Lcg(u64);

impl Lcg {
    fn next(&mut self) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }
}

fn zh_en(policy: Policy) -> Query {
    Query { policy, ..Query::new(pair("zh:en")) }
}

fn request(key: LeaseKey, random: u32, query: Query) -> ReserveRequest {
    ReserveRequest { key, query, pin: None, ack_lease_ms: ACK_MS, random }
}

/// Reserve, commit, finish; how it is for a job that nothing goes wrong with.
fn cycle(store: &Embedded<SinceStart>, cell: CellId, job: u128, random: u32, query: Query) {
    let key = LeaseKey { job: JobId::new(job), ..key(0) };
    let reply = now(store.reserve(cell, request(key, random, query)));
    assert!(matches!(reply.outcome, ReserveOutcome::Granted { .. }));
    black_box(now(store.commit(cell, key, RUN_MS)));
    assert!(now(store.finish(cell, key, AttemptOutcome::Succeeded)).is_some());
}

/// Runs cycles on this many threads and gives the time that one of them took.
fn cycles_on(
    threads: u64,
    store: &Embedded<SinceStart>,
    cells: usize,
    count: u64,
    policy: Policy,
) -> Duration {
    let query = zh_en(policy);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut lots = Lcg(thread + 1);
                for n in 0..count {
                    let cell = CellId::new(lots.next() as usize % cells).expect("a cell");
                    // Job ids are spread over the key space, as UUIDs are.
                    let job =
                        u128::from(n) << 64 | u128::from(lots.next()) << 8 | u128::from(thread);
                    cycle(store, cell, job, lots.next(), query);
                }
            });
        }
    });
    started.elapsed()
}

/// Takes 200 of each cell's 400 slots, so that a choice has something to weigh.
fn half_full(store: &Embedded<SinceStart>, cells: usize) {
    let (mut lots, zh_en) = (Lcg(7), zh_en(Policy::Balanced));
    for cell in 0..cells {
        for n in 0..200 {
            let key = LeaseKey { job: JobId::new(u128::MAX - n), ..key(0) };
            let cell = CellId::new(cell).expect("a cell");
            let mut long = request(key, lots.next(), zh_en);
            long.ack_lease_ms = FOREVER_MS;
            now(store.reserve(cell, long));
        }
    }
}

fn bench_cycles(c: &mut Criterion) {
    let mut group = c.benchmark_group("reserve_commit_finish");
    for cells in [1, 1000] {
        let store = fleet(cells);
        half_full(&store, cells);
        for threads in [1, 2] {
            let name = format!("{cells}_cells_of_100_{threads}_threads");
            group.throughput(Throughput::Elements(threads));
            group.bench_function(name, |b| {
                b.iter_custom(|n| cycles_on(threads, &store, cells, n, Policy::Balanced));
            });
        }
    }
    let store = fleet(1);
    half_full(&store, 1);
    group.throughput(Throughput::Elements(1));
    for policy in [Policy::Sample { k: 20 }, Policy::LeastLoaded, Policy::Random] {
        group.bench_function(BenchmarkId::new("policy", format!("{policy:?}")), |b| {
            b.iter_custom(|n| cycles_on(1, &store, 1, n, policy));
        });
    }
    group.finish();
}

/// `count` invented languages.
fn langs(count: usize) -> Vec<Lang> {
    let letter = |n: usize| char::from(b'a' + (n % 26) as u8);
    let tag = |n: usize| [letter(n / 26), letter(n), 'x'].iter().collect::<String>();
    (0..count).map(|n| Lang::new(&tag(n)).expect("three letters")).collect()
}

fn profile_with(langs: &[Lang]) -> Arc<Profile> {
    let set = || langs.iter().copied().collect::<LangSet>();
    let caps = Capabilities::new(set(), set(), set(), Nmt::AnyToAny, ServiceSet::ALL);
    Arc::new(Profile::new(caps.expect("languages"), 4, true).expect("slots"))
}

/// A node joins a cell of 99 others and leaves it, from the list of its languages on.
fn bench_register(c: &mut Criterion) {
    let mut group = c.benchmark_group("join_and_leave");
    for count in [2, 4, 100] {
        let store = fleet(1);
        let langs = langs(count);
        let left = place_of(&store, 0, 0);
        now(store.set_state(left, NodeCommand::Retire));
        now(store.release(&node(0), left.epoch));
        group.bench_function(format!("{count}x{count}_languages"), |b| {
            b.iter(|| {
                let place = place_of(&store, 100, 0);
                now(store.register(registration(100, place, profile_with(&langs))));
                now(store.set_state(place, NodeCommand::Retire));
                now(store.release(&node(100), place.epoch));
            });
        });
    }
    group.finish();
}

fn bench_heartbeat(c: &mut Criterion) {
    let mut group = c.benchmark_group("heartbeat");
    for count in [2, 100] {
        let store = fleet(1);
        let place = place_of(&store, 0, 0);
        now(store.register(registration(0, place, profile_with(&langs(count)))));
        let load = Load::new(0.3, 0.5, 0.4).expect("a load");
        group.bench_function(format!("{count}x{count}_languages"), |b| {
            b.iter(|| {
                now(store.heartbeat(HeartbeatRequest {
                    place,
                    health: None,
                    load: Some(load),
                    speed: Some(NodeSpeed::assumed(900)),
                    running: vec![],
                    fresh_ms: FRESH_MS,
                    lease_ms: RUN_MS,
                }))
            });
        });
    }
    group.finish();
}

/// Looking for a pair that nobody serves, against looking for one that everybody does.
fn bench_lookup(c: &mut Criterion) {
    let mut group = c.benchmark_group("lookup");
    let store = fleet(1);
    half_full(&store, 1);
    let cell = CellId::new(0).expect("a cell");
    let jobs = AtomicU32::new(0);
    let (mut lots, zh_en) = (Lcg(3), zh_en(Policy::Balanced));
    group.bench_function("served_pair_reserve_and_finish", |b| {
        b.iter(|| {
            let key = key(jobs.fetch_add(1, Ordering::Relaxed).into());
            now(store.reserve(cell, request(key, lots.next(), zh_en)));
            now(store.finish(cell, key, AttemptOutcome::Succeeded))
        });
    });
    for (name, text) in [("unserved_pair", "ko:vi"), ("unserved_target", "auto:vi")] {
        let pair: LangPair = pair(text);
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut request = request(key(u128::MAX >> 1), lots.next(), zh_en);
                request.query.pair = pair;
                request.query.needs.tts = true;
                now(store.reserve(cell, request))
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = bench_cycles, bench_register, bench_heartbeat, bench_lookup
}
criterion_main!(benches);
