//! The settings of a run, as data.
//!
//! Start at [`Scenario`]: the default is a single pool of 100 unequal nodes at load 0.9 with the
//! default policy and a queue; a section or a goal says in what its runs differ from it.
//!
//! Invariant: a scenario holds everything that a run depends on, so equal scenarios have equal
//! outcomes and need to be run only once.

use lingua_core::{CELL_NODES_MAX, Policy};
use lingua_store::contract::cells_for;

use super::baseline::Baseline;

/// Longest wait that counts as no limit: more than any run lasts.
pub const WAIT_MS_UNLIMITED: u64 = 1 << 50;

/// How long a job waits by default when nothing is free.
pub const WAIT_MS_DEFAULT: u64 = 2000;

/// The settings of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scenario {
    /// How many nodes there are.
    pub nodes: u32,
    /// How they are divided into cells.
    pub cells: CellSizes,
    /// Their speeds and slots.
    pub shape: Shape,
    /// Which pairs they serve.
    pub languages: Languages,
    /// Mean work of a job: milliseconds alone on a node of speed 1.
    pub work_ms: u32,
    /// Spread of the logarithm of a job's work, in hundredths.
    pub sigma_percent: u16,
    /// Work that arrives, in hundredths of what the nodes can do.
    pub load_percent: u16,
    /// How nodes are chosen.
    pub dispatch: DispatchRule,
    /// What the rosters know of the nodes' speeds.
    pub costs: Costs,
    /// What happens to a job for which nothing is free.
    pub waiting: Waiting,
    /// How many jobs arrive.
    pub jobs: u32,
    /// The seed of the random numbers.
    pub seed: u64,
}

/// Speeds and slots of the nodes, and the distribution of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Slow, normal and fast nodes with 2, 4 and 8 slots; lognormal work.
    Unequal,
    /// All the same, 4 slots; lognormal work.
    Equal,
    /// All the same, one slot; exponential work: what queueing theory has formulas for.
    Theory,
}

/// Which pairs the nodes serve and the jobs ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Languages {
    /// One pair, served by all.
    One,
    /// Three pairs, from one that all nodes serve to one that a fifth of them serves.
    Overlapping,
}

/// How a node is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DispatchRule {
    /// The core, in cells of at most 100 nodes, asked by some number of instances.
    Core {
        /// How it chooses within a cell.
        policy: Policy,
        /// How many instances share the sessions; each has a cache of its own.
        instances: u8,
    },
    /// Something else, for comparison.
    Baseline(Baseline),
}

impl DispatchRule {
    /// The core with this policy and one instance.
    pub fn core(policy: Policy) -> Self {
        Self::Core { policy, instances: 1 }
    }
}

/// How nodes are divided into cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CellSizes {
    /// As the stores place them: cells are alike, and each has a share of every kind.
    Alike,
    /// Cells of these sizes, filled in order.
    Filled(&'static [u16]),
    /// Cells of a hundred, filled in order; the last one gets the rest.
    Hundreds,
}

impl CellSizes {
    /// The nodes of each cell.
    pub fn members(self, nodes: usize) -> Vec<Vec<usize>> {
        let in_order = |sizes: &mut dyn Iterator<Item = usize>| {
            let mut next = 0;
            let members = sizes.map(|size| {
                let members: Vec<usize> = (next..nodes.min(next + size)).collect();
                next += size;
                members
            });
            members.filter(|members| !members.is_empty()).collect()
        };
        match self {
            Self::Alike => {
                let cells = cells_for(nodes);
                let of = |cell| (0..nodes).filter(|node| node / 10 % cells == cell).collect();
                (0..cells).map(of).collect()
            }
            Self::Filled(sizes) => in_order(&mut sizes.iter().map(|&size| size.into())),
            Self::Hundreds => {
                let hundreds = nodes.div_ceil(CELL_NODES_MAX);
                in_order(&mut std::iter::repeat_n(CELL_NODES_MAX, hundreds))
            }
        }
    }
}

/// What the rosters know of the nodes' speeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Costs {
    /// The truth.
    Known,
    /// What the nodes' finished jobs suggest.
    Learned,
}

/// What happens to a job for which nothing is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// It is rejected.
    No {
        /// Whether it leaves the last free slots of flexible nodes alone.
        keep_last: bool,
    },
    /// It waits, and leaves the last free slots of flexible nodes alone until then.
    UpTo {
        /// How long, in milliseconds.
        wait_ms: u64,
    },
}

impl Waiting {
    /// Rejected, but only if every slot is taken.
    pub const NO: Self = Self::No { keep_last: false };
    /// Rejected rather than given the last slot of a more flexible node.
    pub const NO_LAST_KEPT: Self = Self::No { keep_last: true };
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            nodes: 100,
            cells: CellSizes::Hundreds,
            shape: Shape::Unequal,
            languages: Languages::One,
            work_ms: 1000,
            sigma_percent: 60,
            load_percent: 90,
            dispatch: DispatchRule::core(Policy::Balanced),
            costs: Costs::Known,
            waiting: Waiting::UpTo { wait_ms: WAIT_MS_DEFAULT },
            jobs: super::JOBS_DEFAULT,
            seed: 1,
        }
    }
}

impl Scenario {
    /// The same with another load.
    #[must_use]
    pub fn at(self, load_percent: u16) -> Self {
        Self { load_percent, ..self }
    }

    /// The same with another seed.
    #[must_use]
    pub fn seeded(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The same with another number of jobs.
    #[must_use]
    pub fn with_jobs(self, jobs: u32) -> Self {
        Self { jobs, ..self }
    }

    /// The load as a fraction of one.
    pub fn load(self) -> f64 {
        f64::from(self.load_percent) / 100.0
    }
}
