//! What is forgotten leaves the disk.

use std::fs;
use std::path::Path;

use lingua_core::Rules;
use lingua_core::job::JobState;
use lingua_store::conformance::START_MS;
use lingua_store::contract::{JOB_BYTES_MAX, NewJob};
use lingua_store::{Embedded, ManualClock, Store, StoreLimits};

use super::{FILE, all_jobs, new_job, open, quick_dir, step, write_job};

fn small(dir: &Path) -> Embedded<ManualClock> {
    let limits = StoreLimits { ended_jobs_max: 50, ..StoreLimits::default() };
    Embedded::open(Rules::default(), limits, ManualClock::at(START_MS), dir).expect("a store")
}

fn file_bytes(dir: &Path) -> u64 {
    fs::metadata(dir.join(FILE)).expect("the file").len()
}

#[tokio::test]
async fn forgotten_jobs_leave_the_disk() {
    let dir = quick_dir();
    let store = small(dir.path());
    for n in 0..200 {
        write_job(&store, n, 3).await;
    }
    let after_some = file_bytes(dir.path());
    for n in 200..2000 {
        write_job(&store, n, 3).await;
    }
    assert!(file_bytes(dir.path()) <= 2 * after_some, "space is used again");
    drop(store);
    // Opened by one that would remember more: there is no more to remember.
    let store = open(dir.path());
    let left: Vec<u128> = all_jobs(&store).await.iter().map(|job| job.id.number()).collect();
    assert_eq!(left, (1950..2000).collect::<Vec<_>>());
}

#[tokio::test]
async fn old_jobs_are_forgotten_after_a_restart_too() {
    let dir = quick_dir();
    let store = open(dir.path());
    write_job(&store, 1, 3).await;
    write_job(&store, 2, 0).await;
    drop(store);
    let later = ManualClock::at(START_MS + StoreLimits::default().job_record_ms + 1);
    let store =
        Embedded::open(Rules::default(), StoreLimits::default(), later, dir.path()).unwrap();
    assert_eq!(all_jobs(&store).await.len(), 1, "not listed");
    write_job(&store, 3, 0).await;
    drop(store);
    let left: Vec<u128> =
        all_jobs(&open(dir.path())).await.iter().map(|job| job.id.number()).collect();
    assert_eq!(left, [2, 3], "nor kept, even for a clock that has gone back");
}

#[tokio::test]
async fn a_job_that_is_accepted_anew_stays_on_disk() {
    let dir = quick_dir();
    let clock = ManualClock::at(START_MS);
    let (rules, limits) = (Rules::default(), StoreLimits::default());
    let store = Embedded::open(rules, limits, clock.clone(), dir.path()).unwrap();
    // More than one operation removes from disk at a time.
    for n in 0..300 {
        write_job(&store, n, 3).await;
    }
    clock.advance(limits.job_record_ms + 1);
    for n in (0..300).rev().step_by(10) {
        write_job(&store, n, 0).await;
    }
    drop(store);
    let left: Vec<u128> =
        all_jobs(&open(dir.path())).await.iter().map(|job| job.id.number()).collect();
    assert_eq!(left, (9..300).step_by(10).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_file_that_is_mostly_empty_is_made_smaller_when_it_is_opened() {
    let dir = quick_dir();
    let store = small(dir.path());
    let jobs = 100;
    for n in 0..jobs {
        let spec = vec![n as u8; JOB_BYTES_MAX].into();
        store.create_job(NewJob { spec, ..new_job(n) }).await.unwrap();
    }
    for n in 0..jobs {
        store.advance_job(step(n, JobState::New, JobState::Failed, 1)).await.unwrap();
    }
    for n in jobs..jobs + 50 {
        write_job(&store, n, 3).await;
    }
    let before = file_bytes(dir.path());
    assert!(before > jobs as u64 * JOB_BYTES_MAX as u64);
    drop(store);
    let store = open(dir.path());
    let after = file_bytes(dir.path());
    assert!(after < before / 4, "{before} bytes became {after}");
    assert_eq!(all_jobs(&store).await.len(), 50);
}
