//! Rosters of at most 100 nodes each, and the order in which an instance tries them.
//!
//! Start at [`Cells::reserve`]. Within a cell the core chooses. Between cells an instance goes by
//! what it remembers of each cell's free slots: the better of two random cells first, then the
//! others, the freest first. What it remembers comes from the replies to its own calls and may be
//! old: that costs tries, never a slot.
//!
//! Invariant: the rosters count exactly the jobs on the machines.

use std::cmp::Reverse;
use std::sync::Arc;

use lingua_core::node::COST_MS_UNKNOWN;
use lingua_core::roster::NodeStatus;
use lingua_core::{
    CELL_NODES_MAX, LangPair, Load, Needs, NodeState, Policy, Query, Roster, Rules, Slot,
};
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;

use super::fleet::{PAIRS, SimFleet, lang_pairs, profile, slowdown};
use super::machine::RunningJob;
use super::scenario::{Costs, Memory};

/// How much of what it knew a node's cost keeps with each finished job. One job says little: its
/// own length varies by two thirds of the mean.
const COST_KEPT: f64 = 63.0 / 64.0;

/// The result of a search for a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QualityCellReply {
    /// The node with the slot, if one was found.
    pub node: Option<usize>,
    /// How many nodes or cells were asked.
    pub tries: u32,
}

/// A search for a slot by an instance.
#[derive(Debug, Clone, Copy)]
pub struct CellRequest {
    /// The pair.
    pub pair: usize,
    /// The instance.
    pub instance: usize,
    /// Whether to leave the last slots of flexible nodes alone.
    pub keep_last: bool,
    /// Ask only the cell of this node, where a slot came free.
    pub beside: Option<usize>,
    /// Virtual time.
    pub now_ms: u64,
}

/// All cells, and what each instance remembers of them.
#[derive(Debug, Clone)]
pub struct Cells {
    rosters: Vec<Roster>,
    queries: [Query; PAIRS],
    /// Cells that have nodes for each pair.
    serving: [Vec<usize>; PAIRS],
    /// Free slots as last seen, by instance, cell and pair.
    seen: Vec<Vec<[u32; PAIRS]>>,
    memory: Memory,
    /// Costs in milliseconds as far as they are known, if they have to be learned.
    learned: Option<Vec<f64>>,
    /// The cells to ask, in order; kept to save allocations.
    route: Vec<usize>,
}

impl Cells {
    /// Fills cells with the nodes of a fleet, in order.
    pub fn new(
        fleet: &SimFleet,
        policy: Policy,
        instances: usize,
        memory: Memory,
        costs: Costs,
    ) -> Self {
        let count = fleet.specs.len().div_ceil(CELL_NODES_MAX);
        let mut rosters = vec![Roster::new(Rules::default()); count];
        let mut full_view = vec![[0; PAIRS]; count];
        for (node, spec) in fleet.specs.iter().enumerate() {
            let (cell, slot) = place(node);
            let cost_ms = match costs {
                Costs::Known => (1000.0 / spec.speed).round() as u32,
                Costs::Learned => COST_MS_UNKNOWN,
            };
            let standing = NodeStatus {
                state: NodeState::Ready,
                fresh_until_ms: u64::MAX,
                load: Load::default(),
                cost_ms,
                used: 0,
            };
            rosters[cell].enroll(slot, Arc::new(profile(spec)), standing);
            full_view[cell][..=spec.class].iter_mut().for_each(|n| *n += u32::from(spec.slots));
        }
        let serves = |pair: usize| (0..count).filter(|&cell| full_view[cell][pair] > 0).collect();
        Self {
            rosters,
            queries: lang_pairs().map(|pair| query(pair, policy)),
            serving: std::array::from_fn(serves),
            seen: vec![full_view; instances],
            memory,
            learned: (costs == Costs::Learned)
                .then(|| vec![f64::from(COST_MS_UNKNOWN); fleet.specs.len()]),
            route: Vec::with_capacity(count),
        }
    }

    /// Looks for a slot, cell by cell.
    pub fn reserve(&mut self, ask: CellRequest, luck: &mut ChaCha8Rng) -> QualityCellReply {
        self.plan_route(ask, luck);
        let query = Query { keep_last: ask.keep_last, ..self.queries[ask.pair] };
        let mut tries = 0;
        for &cell in &self.route {
            tries += 1;
            let choice = self.rosters[cell].choose(&query, ask.now_ms, luck.next_u32());
            let taken = u32::from(choice.slot.is_some());
            self.seen[ask.instance][cell][ask.pair] = choice.free - taken;
            if let Some(slot) = choice.slot {
                return QualityCellReply {
                    node: Some(cell * CELL_NODES_MAX + slot.index()),
                    tries,
                };
            }
        }
        QualityCellReply { node: None, tries }
    }

    /// Sets the number of jobs of a node.
    pub fn set_used(&mut self, node: usize, used: usize) {
        let (cell, slot) = place(node);
        self.rosters[cell].set_used(slot, used as u16);
    }

    /// Learns from a job that ended on a node.
    pub fn ended(&mut self, node: usize, job: &RunningJob, instance: usize, now_s: f64) {
        let (cell, slot) = place(node);
        if self.memory == Memory::RepliesAndEnds {
            self.seen[instance][cell][job.arrival.pair] += 1;
        }
        if let Some(learned) = &mut self.learned {
            let alone_ms = 1000.0 * (now_s - job.started_s) / slowdown(job.jobs_at_start);
            learned[node] = COST_KEPT * learned[node] + (1.0 - COST_KEPT) * alone_ms;
            self.rosters[cell].set_cost(slot, learned[node].round() as u32);
        }
    }

    fn plan_route(&mut self, ask: CellRequest, luck: &mut ChaCha8Rng) {
        self.route.clear();
        if let Some(node) = ask.beside {
            self.route.push(place(node).0);
            return;
        }
        let (serving, seen) = (&self.serving[ask.pair], &self.seen[ask.instance]);
        self.route.extend_from_slice(serving);
        if serving.len() < 2 {
            return;
        }
        let free = |cell: usize| seen[cell][ask.pair];
        let a = luck.random_range(0..serving.len());
        let b = (a + luck.random_range(1..serving.len())) % serving.len();
        let first = if free(serving[a]) >= free(serving[b]) { a } else { b };
        self.route.swap(0, first);
        self.route[1..].sort_by_key(|&cell| Reverse(free(cell)));
    }
}

fn query(pair: LangPair, policy: Policy) -> Query {
    Query { needs: Needs::SPEECH_TO_SPEECH, policy, ..Query::new(pair) }
}

fn place(node: usize) -> (usize, Slot) {
    let slot = Slot::new(node % CELL_NODES_MAX).expect("a remainder is below the divisor");
    (node / CELL_NODES_MAX, slot)
}
