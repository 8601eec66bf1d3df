//! A process that is killed while it writes loses nothing that it has answered.
//!
//! The test starts its own binary again, as a child that writes jobs and prints each answer as it
//! gets it; kills it in the middle; and looks for every answer in what is left.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use lingua_core::JobId;
use lingua_core::job::JobState;
use lingua_store::Store;
use lingua_store::conformance::World;
use lingua_store::conformance::fixture::node;
use lingua_store::contract::{AdvanceReply, CreateReply};

use super::{STATES, all_jobs, new_job, open, owner, spec, step};

/// Set for the child: where it writes, and the number of its first job.
const CHILD_DIR: &str = "LINGUA_TEST_KILL_DIR";
const CHILD_FROM: &str = "LINGUA_TEST_KILL_FROM";
/// This test, as the binary knows it.
const THIS_TEST: &str = "durable::kill::a_killed_process_loses_nothing_that_it_answered";
/// Lines of the child begin with this; the test harness prints others.
const MARK: &str = "answered";

const LIVES: u128 = 3;
const CALLERS: u128 = 8;
const JOBS_PER_LIFE: u128 = 1_000_000;
const ANSWERS_BEFORE_THE_END: usize = 400;

#[test]
fn a_killed_process_loses_nothing_that_it_answered() {
    if let Ok(dir) = std::env::var(CHILD_DIR) {
        let from = std::env::var(CHILD_FROM).unwrap().parse().unwrap();
        return tokio::runtime::Runtime::new().unwrap().block_on(write_until_killed(dir, from));
    }
    let dir = tempfile::tempdir().unwrap();
    let mut answered = BTreeMap::new();
    let mut epoch_before = 0;
    for life in 0..LIVES {
        let child = start_child(dir.path(), life * JOBS_PER_LIFE);
        let epoch = kill_in_the_middle(child, &mut answered);
        assert!(epoch > epoch_before, "the node's epoch rises with each life");
        epoch_before = epoch;
        check(dir.path(), &answered, epoch);
    }
    assert!(answered.len() > ANSWERS_BEFORE_THE_END / 4);
}

fn start_child(dir: &Path, from: u128) -> Child {
    Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", THIS_TEST, "--nocapture"])
        .env(CHILD_DIR, dir)
        .env(CHILD_FROM, from.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child")
}

/// Reads answers, kills the child, and reads those that it had printed before; gives its node's
/// epoch.
fn kill_in_the_middle(mut child: Child, answered: &mut BTreeMap<u128, usize>) -> u64 {
    let mut epoch = 0;
    let mut count = 0;
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    for line in stdout.lines() {
        let line = line.expect("a line");
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            [MARK, "job", n, steps, "."] => {
                answered.insert(number(n) as u128, number(steps) as usize);
                count += 1;
            }
            [MARK, "epoch", n, "."] => epoch = number(n),
            _ => {}
        }
        if count == ANSWERS_BEFORE_THE_END {
            child.kill().expect("killed");
        }
    }
    child.wait().expect("an end");
    assert!(count >= ANSWERS_BEFORE_THE_END, "the child stopped by itself after {count} answers");
    epoch
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

fn check(dir: &Path, answered: &BTreeMap<u128, usize>, epoch: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let store = open(dir);
    for (&n, &steps) in answered {
        let record = runtime.block_on(store.job(JobId::new(n))).expect("a reply");
        let record = record.unwrap_or_else(|| panic!("job {n} was answered and is lost"));
        assert_eq!((&record.spec, &record.owner), (&spec(n), &owner()));
        assert!(steps_of(record.stage.state) >= steps, "job {n} fell back to {}", record.stage);
    }
    let jobs = runtime.block_on(all_jobs(&store));
    // Each caller may have had one job on its way when the end came.
    let most = answered.len() as u128 + LIVES * CALLERS;
    assert!(jobs.len() as u128 <= most, "{} jobs, {} answered", jobs.len(), answered.len());
    let place = runtime.block_on(store.locate(&node(0))).expect("a reply");
    assert_eq!(place.map(|place| place.epoch.0), Some(epoch));
}

fn steps_of(state: JobState) -> usize {
    STATES.iter().position(|&known| known == state).map_or(0, |i| i + 1)
}

/// The child: writes jobs and says so, for ever.
async fn write_until_killed(dir: String, from: u128) {
    let store = open(dir.as_ref());
    let w = World { store: store.clone(), clock: Default::default(), rules: Default::default() };
    let place = w.assign(0, from as u64, 0).await;
    say(&format!("epoch {}", place.epoch));
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let store = store.clone();
        callers.spawn(async move {
            for n in (from + caller..from + JOBS_PER_LIFE).step_by(CALLERS as usize) {
                assert_eq!(store.create_job(new_job(n)).await, Ok(CreateReply::Created));
                say(&format!("job {n} 0"));
                let mut before = JobState::New;
                for (i, &to) in STATES.iter().enumerate() {
                    let reply = store.advance_job(step(n, before, to, 1)).await;
                    assert_eq!(reply, Ok(AdvanceReply::Advanced));
                    say(&format!("job {n} {}", i + 1));
                    before = to;
                }
            }
        });
    }
    callers.join_all().await;
}

/// One line in one piece; the point at its end tells a whole line from a torn one.
fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK} {what} .").expect("a reader");
    out.flush().expect("a reader");
}
