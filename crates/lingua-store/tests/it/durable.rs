//! The embedded store on a real disk.
//!
//! | file | what |
//! |---|---|
//! | `durable/suite.rs` | it passes the conformance suite |
//! | `durable/restart.rs` | what is there again after a restart, and what rises |
//! | `durable/damage.rs` | damaged, foreign and occupied directories |
//! | `durable/kill.rs` | a process that is killed while it writes |
//! | `durable/size.rs` | what is forgotten leaves the disk |

use std::path::Path;

use lingua_core::job::{JobState, Stage};
use lingua_core::{Attempt, InstanceId, JobId, Rules};
use lingua_store::conformance::START_MS;
use lingua_store::conformance::fixture::instance;
use lingua_store::contract::{AdvanceReply, AdvanceRequest, Bytes, JobFilter, JobRecord, NewJob};
use lingua_store::embedded::OpenError;
use lingua_store::{Embedded, ManualClock, Store, StoreLimits};

mod damage;
mod kill;
mod restart;
mod size;
mod suite;

/// The database in a data directory.
const FILE: &str = "store.redb";

/// The steps of a job that comes to nothing.
const STATES: [JobState; 3] = [JobState::Selecting, JobState::Reserved, JobState::Failed];

fn try_open(dir: &Path) -> Result<Embedded<ManualClock>, OpenError> {
    let clock = ManualClock::at(START_MS);
    Embedded::open(Rules::default(), StoreLimits::default(), clock, dir)
}

fn open(dir: &Path) -> Embedded<ManualClock> {
    try_open(dir).expect("a store")
}

/// A directory whose disk is memory, where there is such: for tests that are not about the disk.
fn quick_dir() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    }
    .expect("a directory")
}

fn owner() -> InstanceId {
    instance(0)
}

fn spec(n: u128) -> Bytes {
    n.to_le_bytes().repeat(20).into()
}

fn new_job(n: u128) -> NewJob {
    let (id, spec) = (JobId::new(n), spec(n));
    NewJob {
        id,
        owner: owner(),
        spec,
        deadline_ms: Some(START_MS),
        recoverable: n.is_multiple_of(2),
        label: 0,
    }
}

fn stage(state: JobState) -> Stage {
    Stage { state, attempt: Attempt::FIRST }
}

fn step(n: u128, from: JobState, to: JobState, token: u64) -> AdvanceRequest {
    let step = AdvanceRequest::new(JobId::new(n), owner(), stage(from), stage(to), token);
    step.expect("a legal step")
}

/// Accepts a job and moves it on by this many steps.
async fn write_job(store: &impl Store, n: u128, steps: usize) {
    store.create_job(new_job(n)).await.expect("a job");
    let mut from = JobState::New;
    for &to in &STATES[..steps] {
        let reply = store.advance_job(step(n, from, to, 7)).await;
        assert_eq!(reply, Ok(AdvanceReply::Advanced));
        from = to;
    }
}

async fn all_jobs(store: &impl Store) -> Vec<JobRecord> {
    let filter = JobFilter { limit: 1000, ..JobFilter::default() };
    let page = store.jobs(filter).await.expect("a list");
    assert_eq!(page.next, None, "one page holds all jobs");
    page.jobs
}
