//! How well jobs are placed: rejections, waits, response times, spread.
//!
//! Start at [`measure`] for the whole, at [`world::run`] for one run. A run plays one [`Scenario`]:
//! jobs arrive at random at a fleet of unequal nodes that slow down as they fill, and the core's
//! [`Roster`](lingua_core::Roster), or a simpler way for comparison, says where each goes.
//!
//! | file | what |
//! |---|---|
//! | `scenario.rs` | what a run is about, as data |
//! | `fleet.rs` | the nodes: speeds, slots, languages |
//! | `workload.rs` | the jobs: when, which pair, how much work |
//! | `machine.rs` | a node at work: processor sharing with contention |
//! | `next_ends.rs` | which node finishes next |
//! | `cells.rs` | the core's rosters, the engine's routes and costs |
//! | `baseline.rs` | simpler ways to choose, and one that knows everything |
//! | `queue.rs` | jobs that wait, first come first served |
//! | `world.rs` | the events of a run |
//! | `tally.rs` | what is counted |
//! | `theory.rs` | what queueing theory says |
//! | `batch.rs` | many runs on all cores |
//! | `sections.rs` | the questions that the report answers |
//! | `goals.rs` | what must hold |
//! | `fleets.rs` | what must hold in fleets that change, with costs that are learned |
//! | `newcomers.rs` | what must hold for nodes that join or come back |
//! | `tenants.rs` | what must hold among tenants that share a fleet |
//! | `report.rs` | tables and JSON |
//!
//! Invariant: equal options give equal reports; neither the clock nor the number of cores matters.

pub mod baseline;
pub mod batch;
pub mod cells;
pub mod fleet;
pub mod fleets;
pub mod goals;
pub mod machine;
mod newcomers;
mod next_ends;
pub mod queue;
pub mod report;
pub mod scenario;
pub mod sections;
pub mod tally;
pub mod tenants;
pub mod theory;
pub mod workload;
pub mod world;

pub use goals::GoalVerdict;
pub use report::QualityReport;
pub use scenario::Scenario;
pub use tally::QualityOutcome;

use batch::QualityBatch;
use sections::Section;

/// Jobs in each run unless told otherwise.
pub const JOBS_DEFAULT: u32 = 400_000;
/// With fewer jobs a session has too few to tell how it spreads over a hundred nodes.
pub const JOBS_MIN: i64 = 20_000;
/// More would take hours and gigabytes.
pub const JOBS_MAX: i64 = 100_000_000;
/// How many seeds a goal is checked with.
pub const GOAL_SEEDS: u64 = 3;

/// How much to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QualityOptions {
    /// Jobs in each run.
    pub jobs: u32,
    /// The first seed. The tables show it; the goals use those that follow, too.
    pub seed: u64,
}

impl QualityOptions {
    /// Every seed that the goals are checked with.
    pub fn seeds(self) -> impl Iterator<Item = u64> + Clone {
        (0..GOAL_SEEDS).map(move |i| self.seed.wrapping_add(i))
    }
}

/// Runs everything that the report needs, each run once.
pub fn measure(options: QualityOptions) -> QualityReport {
    let (sections, goals) = (sections::all(), goals::all(options.jobs));
    let shown = sections.iter().flat_map(Section::scenarios);
    let shown = shown.map(|s| s.seeded(options.seed).with_jobs(options.jobs));
    let judged = goals.iter().flat_map(|goal| goal.runs(options));
    let batch = QualityBatch::run(shown.chain(judged).collect());
    let mut verdicts: Vec<GoalVerdict> =
        goals.iter().map(|goal| goal.judge(options, &batch)).collect();
    verdicts.extend(batch::judge_fleets(&fleets::all(), options));
    QualityReport::new(options, sections, batch, verdicts)
}

/// Runs the goals for fleets and nothing else.
pub fn measure_fleets(options: QualityOptions) -> QualityReport {
    let verdicts = batch::judge_fleets(&fleets::all(), options);
    QualityReport::new(options, vec![], QualityBatch::run(vec![]), verdicts)
}

/// Runs what the goals need and nothing else, without the long goals for fleets.
pub fn check_goals(options: QualityOptions) -> Vec<GoalVerdict> {
    let goals = goals::all(options.jobs);
    let batch = QualityBatch::run(goals.iter().flat_map(|goal| goal.runs(options)).collect());
    let mut verdicts: Vec<GoalVerdict> =
        goals.iter().map(|goal| goal.judge(options, &batch)).collect();
    let short: Vec<_> = fleets::all().into_iter().filter(|goal| goal.is_short).collect();
    verdicts.extend(batch::judge_fleets(&short, options));
    verdicts
}
