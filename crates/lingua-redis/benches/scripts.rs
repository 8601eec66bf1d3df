//! What the scripts cost: microseconds inside the server, and jobs a second through one connection.
//!
//! `cargo bench -p lingua-redis` measures against the server of `LINGUA_BENCH_URL`
//! (`redis://127.0.0.1:6379/9` unless told otherwise) and removes what it wrote. The time inside
//! the server is the server's own count (`INFO commandstats`), so a busy machine does not blur it
//! much.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and may fail")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lingua_core::job::{JobState, Stage};
use lingua_core::{Attempt, CellId, InstanceId, JobId, Rules};
use lingua_redis::{RedisOptions, RedisStore};
use lingua_store::Store;
use lingua_store::conformance::fixture::{
    ACK_MS, COST_MS, RUN_MS, heartbeat, instance, key, node, profile, reserve,
};
use lingua_store::contract::{
    AdvanceRequest, AssignRequest, AttemptOutcome, Incarnation, NewJob, NodeClass, NodeCommand,
    NodeSpeed, Place, RegisterRequest, ReserveOutcome, ReserveRequest,
};
use tokio::time::Instant;

const NODES: [usize; 3] = [1, 30, 100];
const SLOTS: u64 = 4;
const LANGS: &str = "zh en ja fr de es it pt";
const JOBS: u64 = 40_000;
const CALLERS: u64 = 64;
const FRESH_MS: u64 = 3_600_000;

struct World {
    store: RedisStore,
    server: redis::aio::MultiplexedConnection,
    cell: CellId,
    places: Vec<Place>,
}

impl World {
    async fn new(url: &str, nodes: usize) -> Self {
        let mut options = RedisOptions::new(url.parse().unwrap(), Rules::default());
        options.key_prefix = format!("bench:{nodes}:");
        let store = RedisStore::connect(options).await.unwrap();
        let server = redis::Client::open(url).unwrap();
        let server = server.get_multiplexed_async_connection().await.unwrap();
        let mut places = vec![];
        for n in 0..nodes {
            // Small classes: they stay in one cell.
            let (incarnation, class) = (Incarnation(1), NodeClass((n % 5) as u32));
            let request = AssignRequest::new(node(n), incarnation, class);
            let place = store.assign(request).await.unwrap().placed().unwrap();
            let registration = RegisterRequest {
                place,
                node: node(n),
                profile: profile(LANGS, SLOTS),
                health: lingua_core::Health::Ready,
                speed: NodeSpeed::assumed(COST_MS + n as u32),
                fresh_ms: FRESH_MS,
                version: None,
                via: lingua_core::InstanceId::new("bench").unwrap(),
                keep: lingua_store::contract::KeptLeases::NONE,
            };
            store.register(registration).await.unwrap();
            places.push(place);
        }
        assert!(places.iter().all(|place| place.cell == places[0].cell));
        Self { store, server, cell: places[0].cell, places }
    }

    /// Runs `work` from many callers and prints what it took on both sides.
    async fn measure<F, Fut>(&mut self, what: &str, count: u64, work: F)
    where
        F: Fn(RedisStore, u64) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send,
    {
        let _: () =
            redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut self.server).await.unwrap();
        let (next, started) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..CALLERS {
            let (store, next, work) = (self.store.clone(), Arc::clone(&next), work.clone());
            callers.spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return;
                    }
                    work(store.clone(), n).await;
                }
            });
        }
        while let Some(done) = callers.join_next().await {
            done.unwrap();
        }
        let per_second = count as f64 / started.elapsed().as_secs_f64();
        let stats: String =
            redis::cmd("INFO").arg("commandstats").query_async(&mut self.server).await.unwrap();
        let (calls, usec) = evalsha(&stats);
        let (each, calls_each) = (usec / calls.max(1.0), calls / count as f64);
        println!(
            "{what:<34} {per_second:>9.0}/s   {each:>6.1} us a script   {calls_each:.2} scripts"
        );
    }
}

/// Calls of scripts and microseconds in them.
fn evalsha(stats: &str) -> (f64, f64) {
    let connection = stats
        .lines()
        .find(|connection| connection.starts_with("cmdstat_evalsha:"))
        .unwrap_or_default();
    let field = |name: &str| {
        let part = connection.split([':', ',']).find_map(|part| part.strip_prefix(name));
        part.and_then(|number| number.parse::<f64>().ok()).unwrap_or(0.0)
    };
    (field("calls="), field("usec="))
}

fn random(n: u64) -> u32 {
    (n as u32).wrapping_mul(0x9E37_79B9)
}

fn request(n: u64) -> ReserveRequest {
    ReserveRequest { random: random(n), ack_lease_ms: ACK_MS * 100, ..reserve(key(n.into())) }
}

async fn reserve_run_finish(store: RedisStore, cell: CellId, n: u64) {
    match store.reserve(cell, request(n)).await.unwrap().outcome {
        ReserveOutcome::Granted { .. } => {
            store.commit(cell, key(n.into()), RUN_MS).await.unwrap();
            store.finish(cell, key(n.into()), AttemptOutcome::Succeeded).await.unwrap();
        }
        ReserveOutcome::Full { .. } => {}
        other => panic!("{other:?}"),
    }
}

async fn whole_job(store: RedisStore, cell: CellId, owner: InstanceId, n: u64) {
    let id = JobId::new(u128::from(n) << 64 | u128::from(random(n)));
    let spec = vec![b'x'; 200].into();
    let job =
        NewJob { id, owner: owner.clone(), spec, deadline_ms: None, recoverable: true, label: 0 };
    store.create_job(job).await.unwrap();
    let request = ReserveRequest {
        key: lingua_store::contract::LeaseKey { job: id, attempt: Attempt(1) },
        ..request(n)
    };
    let lease = request.key;
    let ReserveOutcome::Granted { grant, .. } = store.reserve(cell, request).await.unwrap().outcome
    else {
        return;
    };
    let stage = |state| Stage { state, attempt: Attempt(1) };
    let (new, sent) = (stage(JobState::New), stage(JobState::Dispatched));
    let step =
        AdvanceRequest::new(id, owner.clone(), new, sent, n).unwrap().with_grant(Some(grant));
    store.advance_job(step).await.unwrap();
    store.commit(cell, lease, RUN_MS).await.unwrap();
    let done = AdvanceRequest::new(id, owner, sent, stage(JobState::Done), n + 1).unwrap();
    store.advance_job(done.with_outcome(vec![b'y'; 300])).await.unwrap();
    store.finish(cell, lease, AttemptOutcome::Succeeded).await.unwrap();
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let url = std::env::var("LINGUA_BENCH_URL");
    let url = url.unwrap_or_else(|_| "redis://127.0.0.1:6379/9".to_owned());
    for nodes in NODES {
        println!("a cell of {nodes} nodes with {SLOTS} slots, {CALLERS} callers on one connection");
        let mut world = World::new(&url, nodes).await;
        let (cell, places) = (world.cell, world.places.clone());
        // Half of the slots are taken, as in a busy fleet.
        let half = nodes as u64 * SLOTS / 2;
        for n in 0..half {
            world.store.reserve(cell, request(1 << 40 | n)).await.unwrap();
        }
        let rounds = nodes as u64 * SLOTS - half;
        world
            .measure("reserve", rounds, move |store, n| async move {
                store.reserve(cell, request(n)).await.unwrap();
            })
            .await;
        world
            .measure("reserve, full", 5_000, move |store, n| async move {
                store.reserve(cell, request(1 << 50 | n)).await.unwrap();
            })
            .await;
        world
            .measure("commit", rounds, move |store, n| async move {
                store.commit(cell, key(n.into()), RUN_MS * 100).await.unwrap();
            })
            .await;
        world
            .measure("finish", rounds, move |store, n| async move {
                store.finish(cell, key(n.into()), AttemptOutcome::Succeeded).await.unwrap();
            })
            .await;
        world
            .measure("reserve + commit + finish", JOBS, move |store, n| {
                reserve_run_finish(store, cell, 1 << 42 | n)
            })
            .await;
        world
            .measure("a whole job (create to done)", JOBS / 2, move |store, n| {
                whole_job(store, cell, instance(0), 1 << 43 | n)
            })
            .await;
        let beats = places.clone();
        world
            .measure("heartbeat", 20_000, move |store, n| {
                let mut heartbeat = heartbeat(beats[n as usize % beats.len()], vec![]);
                heartbeat.fresh_ms = FRESH_MS;
                async move {
                    store.heartbeat(heartbeat).await.unwrap();
                }
            })
            .await;
        world
            .measure("view", 1_000, move |store, _| async move {
                store.view(cell).await.unwrap();
            })
            .await;
        for (n, place) in places.into_iter().enumerate() {
            world.store.release(&node(n), place.epoch).await.unwrap();
            world.store.set_state(place, NodeCommand::Retire).await.unwrap();
        }
        let _: () = redis::cmd("FLUSHDB").query_async(&mut world.server).await.unwrap();
    }
}
