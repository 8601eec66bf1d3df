//! The cells and the instances that ask them: the code of the core and of the engine.
//!
//! Start at [`Cells::reserve`]. Within a cell the core's roster chooses. Between cells the engine's
//! [`Routes`] draw, by what the instance remembers of each cell: the replies to its own calls and
//! the ends of its own jobs. Costs are known, or they are learned by the engine's [`Cost`], which
//! reaches the roster with the node's heartbeats.
//!
//! Invariant: the rosters count exactly the jobs on the machines.

use std::sync::Arc;

use lingua_core::job::AttemptOutcome;
use lingua_core::node::COST_MS_UNKNOWN;
use lingua_core::roster::{Capacity, LIMIT_NEW, NodeStatus, limit_after, limit_after_heartbeat};
use lingua_core::{CellId, LangPair, Load, Needs, NodeState, Policy, Query, Roster, Rules, Slot};
use lingua_engine::cost::{Cost, PairDurations, median_ms};
use lingua_engine::routes::{AskedCells, RouteKey, Routes};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::fleet::{PAIRS, SimFleet, lang_pairs, profile};
use super::machine::RunningJob;
use super::scenario::{Costs, Scenario};

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
    /// Whether to leave the last free slots of flexible nodes alone.
    pub keep_last: bool,
    /// Ask only the cell of this node, where a slot came free.
    pub beside: Option<usize>,
    /// Virtual time.
    pub now_ms: u64,
}

/// All cells, and what each instance remembers of them.
#[derive(Debug)]
pub struct Cells {
    rosters: Vec<Roster>,
    /// The cell and slot of each node.
    places: Vec<(usize, Slot)>,
    /// The nodes of each cell, by slot.
    members: Vec<Vec<usize>>,
    slots: Vec<u16>,
    queries: [Query; PAIRS],
    instances: Vec<Routes>,
    learned: Option<Learned>,
    typical_ms: u32,
}

/// What the instances have learned of the nodes' speeds.
#[derive(Debug)]
struct Learned {
    costs: Vec<Cost>,
    pairs: PairDurations,
}

impl Cells {
    /// Divides the nodes of a fleet into cells, in turn.
    pub fn new(fleet: &SimFleet, scenario: &Scenario, policy: Policy, instances: usize) -> Self {
        let nodes = fleet.specs.len();
        let members = scenario.cells.members(nodes);
        let mut places = vec![(0, Slot::new(0).expect("a slot")); nodes];
        let mut rosters = vec![Roster::new(Rules::default()); members.len()];
        for (cell, members) in members.iter().enumerate() {
            for (at, &node) in members.iter().enumerate() {
                let slot = Slot::new(at).expect("a cell has at most 100 nodes");
                places[node] = (cell, slot);
                let spec = &fleet.specs[node];
                let cost_ms = match scenario.costs {
                    Costs::Known => f64::from(scenario.work_ms) / spec.speed,
                    Costs::Learned => f64::from(COST_MS_UNKNOWN),
                };
                let limit = match scenario.costs {
                    Costs::Known => spec.slots,
                    Costs::Learned => LIMIT_NEW,
                };
                let status = NodeStatus {
                    state: NodeState::Ready,
                    fresh_until_ms: u64::MAX,
                    load: Load::default(),
                    cost_ms: cost_ms.round() as u32,
                    used: 0,
                    limit,
                };
                rosters[cell].enroll(slot, Arc::new(profile(spec)), status);
            }
        }
        let ids: Vec<CellId> = (0..members.len()).filter_map(CellId::new).collect();
        let routes = || {
            let routes = Routes::default();
            routes.reset(ids.clone());
            routes
        };
        let is_learned = scenario.costs == Costs::Learned;
        let learned = || Learned { costs: vec![Cost::default(); nodes], pairs: Default::default() };
        Self {
            rosters,
            places,
            members,
            slots: fleet.specs.iter().map(|spec| spec.slots).collect(),
            queries: lang_pairs().map(|pair| query(pair, policy)),
            instances: (0..instances).map(|_| routes()).collect(),
            learned: is_learned.then(learned),
            typical_ms: if is_learned { COST_MS_UNKNOWN } else { scenario.work_ms },
        }
    }

    /// Looks for a slot, cell by cell.
    pub fn reserve(&mut self, ask: CellRequest, luck: &mut ChaCha8Rng) -> QualityCellReply {
        let query = Query { keep_last: ask.keep_last, ..self.queries[ask.pair] };
        let (routes, key) = (&self.instances[ask.instance], route_key(&query));
        let mut asked = AskedCells::default();
        let mut tries = 0;
        loop {
            let cell = match ask.beside {
                Some(node) if tries == 0 => Some(self.places[node].0),
                Some(_) => None,
                None => {
                    let random = luck.next_u32();
                    routes
                        .draw(key, &mut asked, false, random, ask.now_ms, self.typical_ms)
                        .map(|cell| cell.index())
                }
            };
            let Some(cell) = cell else { return QualityCellReply { node: None, tries } };
            tries += 1;
            let (roster, id) = (&self.rosters[cell], CellId::new(cell).expect("a known cell"));
            let choice = roster.choose(&query, ask.now_ms, luck.next_u32());
            match choice.slot {
                Some(slot) => {
                    let taken =
                        if roster.limit(slot) > 0 { u64::from(roster.weight(slot)) } else { 0 };
                    let free = choice.capacity.free - taken;
                    let left = Capacity { free, ..choice.capacity };
                    routes.granted(key, id, left, ask.now_ms);
                    let node = Some(self.members[cell][slot.index()]);
                    return QualityCellReply { node, tries };
                }
                None if choice.capable == 0 => routes.incapable(key, id),
                None => routes.full(key, id, choice.capacity, ask.now_ms),
            }
        }
    }

    /// Sets the number of jobs of a node.
    pub fn set_used(&mut self, node: usize, used: usize) {
        let (cell, slot) = self.places[node];
        self.rosters[cell].set_used(slot, used as u16);
    }

    /// Learns from a job that ended on a node.
    pub fn ended(&mut self, node: usize, job: &RunningJob, instance: usize, now_s: f64) {
        let (cell, slot) = self.places[node];
        let (roster, pair) = (&mut self.rosters[cell], job.arrival.pair);
        let id = CellId::new(cell).expect("a known cell");
        let (key, weight) = (route_key(&self.queries[pair]), roster.weight(slot));
        self.instances[instance].freed(key, id, weight);
        if let Some(learned) = &mut self.learned {
            let took_ms = (1000.0 * (now_s - job.started_s)).round() as u64;
            let (used, pair) = (job.jobs_at_start as u16, self.queries[pair].pair);
            learned.costs[node].learn(took_ms, used, pair, &learned.pairs);
            let limit =
                limit_after(roster.limit(slot), AttemptOutcome::Succeeded, self.slots[node]);
            roster.set_limit(slot, limit);
        }
    }

    /// A node's heartbeat: its cell learns what was learned of it.
    pub fn heartbeat(&mut self, node: usize, now_ms: u64) {
        let Some(learned) = &mut self.learned else { return };
        let (cell, slot) = self.places[node];
        let roster = &mut self.rosters[cell];
        learned.costs[node].fade(now_ms);
        roster.set_cost(slot, learned.costs[node].speed(self.typical_ms).cost_ms);
        roster.set_limit(slot, limit_after_heartbeat(roster.limit(slot)));
    }

    /// The leader publishes the usual cost of the fleet.
    pub fn publish_typical(&mut self) {
        let Some(learned) = &self.learned else { return };
        let known = learned.costs.iter().filter(|cost| cost.is_well_known());
        if let Some(typical_ms) = median_ms(known.map(|cost| cost.learned_ms()).collect()) {
            self.typical_ms = typical_ms;
        }
    }

    /// A node goes away for a while, or comes back; what was learned of it stays.
    pub fn set_online(&mut self, node: usize, is_online: bool) {
        let (cell, slot) = self.places[node];
        let state = if is_online { NodeState::Ready } else { NodeState::Offline };
        self.rosters[cell].set_state(slot, state);
        self.changed(cell);
    }

    /// Nothing is known of the node any more: another one is in its place.
    pub fn renew(&mut self, node: usize) {
        let (cell, slot) = self.places[node];
        if let Some(learned) = &mut self.learned {
            learned.costs[node] = Cost::default();
            self.rosters[cell].set_cost(slot, self.typical_ms);
            self.rosters[cell].set_limit(slot, LIMIT_NEW);
        }
        self.changed(cell);
    }

    /// Everything is new: the instances, the leader and all nodes.
    pub fn restart(&mut self) {
        self.typical_ms = COST_MS_UNKNOWN;
        if let Some(learned) = &mut self.learned {
            learned.pairs = PairDurations::default();
        }
        for node in 0..self.places.len() {
            self.renew(node);
        }
    }

    /// The cell of a node.
    pub fn cell_of(&self, node: usize) -> usize {
        self.places[node].0
    }

    fn changed(&self, cell: usize) {
        let id = CellId::new(cell).expect("a known cell");
        self.instances.iter().for_each(|routes| routes.changed(id));
    }
}

fn query(pair: LangPair, policy: Policy) -> Query {
    Query { needs: Needs::SPEECH_TO_SPEECH, policy, ..Query::new(pair) }
}

fn route_key(query: &Query) -> RouteKey {
    let Query { pair, needs, public, tenant, .. } = *query;
    RouteKey { pair, needs, private_to: (!public).then_some(tenant) }
}
