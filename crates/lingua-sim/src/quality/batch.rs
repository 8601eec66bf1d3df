//! Many runs on all cores.
//!
//! Start at [`QualityBatch::run`].
//!
//! Invariant: a scenario is run once, however often it is asked for, and its outcome does not
//! depend on what else runs.

use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::scenario::Scenario;
use super::tally::QualityOutcome;
use super::world;

/// Scenarios and their outcomes.
#[derive(Debug, Clone)]
pub struct QualityBatch(HashMap<Scenario, QualityOutcome>);

impl QualityBatch {
    /// Runs all of these.
    pub fn run(mut scenarios: Vec<Scenario>) -> Self {
        let mut known = HashSet::new();
        scenarios.retain(|scenario| known.insert(*scenario));
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
                done.push((*scenario, world::run(scenario)));
            }
            done
        };
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        let done = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let join = |worker: thread::ScopedJoinHandle<'_, _>| {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            workers.into_iter().flat_map(join).collect()
        });
        Self(done)
    }

    /// The outcome of a scenario of this batch.
    pub fn outcome(&self, scenario: &Scenario) -> &QualityOutcome {
        &self.0[scenario]
    }

    /// How many runs it took.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was run.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
