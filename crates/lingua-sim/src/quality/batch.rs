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

use super::fleets::FleetGoal;
use super::goals::GoalVerdict;
use super::scenario::Scenario;
use super::tally::QualityOutcome;
use super::{QualityOptions, world};

/// Measures the goals for fleets with every seed, on all cores.
pub fn judge_fleets(goals: &[FleetGoal], options: QualityOptions) -> Vec<GoalVerdict> {
    let runs: Vec<(FleetGoal, u64)> =
        goals.iter().flat_map(|&goal| options.seeds().map(move |seed| (goal, seed))).collect();
    let measured = on_all_cores(&runs, |(goal, seed)| (goal.measure)(*seed));
    let per_goal = options.seeds().count();
    let judge = |(goal, measured): (&FleetGoal, &[f64])| {
        let (what, limit, unit) = (goal.what.to_owned(), goal.limit, goal.unit);
        let measured = limit.settle(measured.iter().copied());
        GoalVerdict { what, measured, limit, unit, passed: limit.holds(measured) }
    };
    goals.iter().zip(measured.chunks(per_goal)).map(judge).collect()
}

/// What `run` makes of each item, in order.
fn on_all_cores<T: Sync, R: Send>(items: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return done };
            done.push((at, run(item)));
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().flat_map(join).collect()
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Scenarios and their outcomes.
#[derive(Debug, Clone)]
pub struct QualityBatch(HashMap<Scenario, QualityOutcome>);

impl QualityBatch {
    /// Runs all of these.
    pub fn run(mut scenarios: Vec<Scenario>) -> Self {
        let mut known = HashSet::new();
        scenarios.retain(|scenario| known.insert(*scenario));
        let outcomes = on_all_cores(&scenarios, world::run);
        Self(scenarios.into_iter().zip(outcomes).collect())
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
