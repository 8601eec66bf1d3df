//! Runs many seeds on several threads.
//!
//! Start at [`WorldBatch::run`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::plan::WorldKind;
use super::planted::PlantedBug;
use super::tally::WorldTally;
use super::{WorldOutcome, run};

/// Shows the progress of a batch.
pub trait WorldProgress: Sync {
    /// Another seed is done.
    fn one_more(&self);
}

impl WorldProgress for () {
    fn one_more(&self) {}
}

/// The results of many seeds.
#[derive(Debug, Default)]
pub struct WorldBatch {
    /// The counts of all worlds.
    pub tally: WorldTally,
    /// The worlds that broke a rule, lowest seed first.
    pub failures: Vec<WorldOutcome>,
}

/// After this many failures the remaining seeds are skipped.
const FAILURES_MAX: usize = 20;

impl WorldBatch {
    /// Simulates these seeds.
    pub fn run(
        seeds: std::ops::Range<u64>,
        kind: WorldKind,
        threads: usize,
        bug: Option<PlantedBug>,
        progress: &dyn WorldProgress,
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
                        let mut outcome = run(seed, kind, bug);
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
