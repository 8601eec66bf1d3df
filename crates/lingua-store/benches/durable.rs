//! What durability costs: jobs a second when each is written down four times (accepted and three
//! steps), and how long a store with 100,000 jobs takes to open.
//!
//! `cargo bench -p lingua-store --bench durable`; the table is in
//! docs/adr/007-durable-embedded-store.md.
//! The figures are those of the disk below the temporary directory (`TMPDIR`).

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lingua_core::job::{Grant, JobState, Stage};
use lingua_core::{Attempt, CellId, Epoch, Fence, JobId, Rules, Slot};
use lingua_store::conformance::fixture::{instance, node};
use lingua_store::contract::{AdvanceReply, AdvanceRequest, Bytes, CreateReply, NewJob};
use lingua_store::{Embedded, Store, StoreLimits};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

mod clock;

use clock::SinceStart;

/// How long each number of callers is measured.
const FOR: Duration = Duration::from_secs(5);
const SPEC_BYTES: usize = 300;
const OUTCOME_BYTES: usize = 200;
const RECORDS: u64 = 100_000;

fn main() {
    let runtime = Runtime::new().expect("a runtime");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let ids = Arc::new(AtomicU64::new(0));
    println!("{:>8} {:>10} {:>12} {:>10} {:>10}", "callers", "jobs/s", "writes/s", "p50", "p99");
    for callers in [1, 16, 64, 256] {
        let store = open(dir.path());
        let started = Instant::now();
        let mut waits = runtime.block_on(run(&store, &ids, callers, started));
        let seconds = started.elapsed().as_secs_f64();
        waits.sort_unstable();
        let at = |percent: usize| format!("{:.2?}", waits[(waits.len() - 1) * percent / 100]);
        let per_second = waits.len() as f64 / seconds;
        let jobs = per_second / 4.0;
        println!("{callers:>8} {jobs:>10.0} {per_second:>12.0} {:>10} {:>10}", at(50), at(99));
    }
    recover(&runtime, dir.path(), &ids);
}

fn open(dir: &Path) -> Embedded<SinceStart> {
    let limits = StoreLimits { ended_jobs_max: RECORDS as usize, ..StoreLimits::default() };
    Embedded::open(Rules::default(), limits, SinceStart::new(), dir).expect("a store")
}

/// Lets this many callers do one job after the other; gives how long each write took.
async fn run(
    store: &Embedded<SinceStart>,
    ids: &Arc<AtomicU64>,
    callers: u32,
    started: Instant,
) -> Vec<Duration> {
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let (store, ids) = (store.clone(), Arc::clone(ids));
        tasks.spawn(async move {
            let mut waits = Vec::new();
            while started.elapsed() < FOR {
                do_job(&store, ids.fetch_add(1, Ordering::Relaxed), &mut waits).await;
            }
            waits
        });
    }
    tasks.join_all().await.concat()
}

/// One job without trouble, timing each write.
async fn do_job(store: &Embedded<SinceStart>, n: u64, waits: &mut Vec<Duration>) {
    let id = job_id(n);
    let owner = instance(0);
    let spec = noise(n, SPEC_BYTES);
    let asked = Instant::now();
    let job = NewJob {
        id,
        owner: owner.clone(),
        spec,
        deadline_ms: Some(1),
        recoverable: true,
        label: 0,
    };
    assert_eq!(store.create_job(job).await, Ok(CreateReply::Created));
    waits.push(asked.elapsed());
    let stage = |state| Stage { state, attempt: Attempt::FIRST };
    let (cell, slot) = (CellId::new(7).expect("a cell"), Slot::new(3).expect("a slot"));
    let grant =
        Grant { node: node(1), cell, slot, epoch: Epoch(n), fence: Fence(n), via: instance(1) };
    let mut from = stage(JobState::New);
    for to in [JobState::Selecting, JobState::Reserved, JobState::Failed].map(stage) {
        let step = AdvanceRequest::new(id, owner.clone(), from, to, n).expect("a legal step");
        let step = match to.state {
            JobState::Reserved => step.with_grant(Some(grant.clone())),
            JobState::Failed => step.with_outcome(noise(n, OUTCOME_BYTES)),
            _ => step,
        };
        let asked = Instant::now();
        assert_eq!(store.advance_job(step).await, Ok(AdvanceReply::Advanced));
        waits.push(asked.elapsed());
        from = to;
    }
}

/// Fills up to 100,000 records and opens the store again.
fn recover(runtime: &Runtime, dir: &Path, ids: &Arc<AtomicU64>) {
    let store = open(dir);
    runtime.block_on(async {
        while ids.load(Ordering::Relaxed) < RECORDS {
            let batch = (0..500).map(|_| ids.fetch_add(1, Ordering::Relaxed));
            let tasks: JoinSet<()> = batch
                .map(|n| {
                    let store = store.clone();
                    async move { do_job(&store, n, &mut Vec::new()).await }
                })
                .collect();
            tasks.join_all().await;
        }
    });
    drop(store);
    let bytes = std::fs::read_dir(dir).expect("the directory");
    let bytes: u64 = bytes.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum();
    println!("{RECORDS} records: {:.0} MB on disk", bytes as f64 / 1e6);
    for _ in 0..3 {
        let started = Instant::now();
        let store = open(dir);
        let took = started.elapsed();
        let last = job_id(ids.load(Ordering::Relaxed) - 1);
        assert!(runtime.block_on(store.job(last)).expect("a reply").is_some());
        println!("opened in {took:.0?}");
    }
}

/// Rising with time and spread within it, as UUIDs of version 7 are.
fn job_id(n: u64) -> JobId {
    JobId::new(u128::from(n / 8) << 80 | u128::from(mix(n)))
}

/// Bytes that no compression makes smaller.
fn noise(n: u64, len: usize) -> Bytes {
    (0..).flat_map(|i| mix(n << 8 | i).to_le_bytes()).take(len).collect()
}

fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}
