//! Many seeds on all cores.
//!
//! Start at [`Batch::run`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::plan::Cast;
use super::planted::Where;
use super::tally::Tally;
use super::{Outcome, run};

/// Somebody who is told how far a batch is.
pub trait Progress: Sync {
    /// One more seed is done.
    fn one_more(&self);
}

impl Progress for () {
    fn one_more(&self) {}
}

/// What came of many seeds.
#[derive(Debug, Default)]
pub struct Batch {
    /// All of them in numbers.
    pub tally: Tally,
    /// Those that broke a rule, lowest seed first.
    pub failures: Vec<Outcome>,
}

/// After so many failures the rest is not run: there is enough to look at.
const FAILURES_MAX: usize = 20;

impl Batch {
    /// Lives through these seeds on so many threads.
    pub fn run(
        seeds: std::ops::Range<u64>,
        cast: Cast,
        threads: usize,
        bug: Option<Where>,
        progress: &dyn Progress,
    ) -> Self {
        let next = AtomicU64::new(seeds.start);
        let enough = AtomicBool::new(false);
        let batch = Mutex::new(Self::default());
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    while !enough.load(Ordering::Relaxed) {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds.end {
                            return;
                        }
                        let mut outcome = run(seed, cast, bug);
                        outcome.trace = String::new();
                        let mut batch = batch.lock();
                        batch.tally.add(&outcome.tally);
                        if outcome.violation.is_some() {
                            batch.failures.push(outcome);
                            enough.store(batch.failures.len() >= FAILURES_MAX, Ordering::Relaxed);
                        }
                        drop(batch);
                        progress.one_more();
                    }
                });
            }
        });
        let mut batch = batch.into_inner();
        batch.failures.sort_by_key(|outcome| outcome.seed);
        batch
    }
}
