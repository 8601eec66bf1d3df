//! Goals for tenants that share a fleet: a burst costs the tenant that makes it, weights hold.
//!
//! Start at [`goals`], and at [`play`] for one run. Which tenant gets a slot that came free is the
//! decision of the core's [`fair_share`], which the engine's queue uses too; which node it is, of
//! the core's rosters.
//!
//! Invariant: each tenant's jobs depend on the seed and its load only, so that a job can be
//! compared with itself in a run in which its tenant was alone.

use std::collections::VecDeque;

use lingua_core::Policy;
use lingua_core::fair_share::{self, Shares};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::cells::{CellRequest, Cells};
use super::fleet::SimFleet;
use super::fleets::FleetGoal;
use super::machine::SimMachine;
use super::next_ends::NextEnds;
use super::scenario::{Scenario, Shape, WAIT_MS_DEFAULT};
use super::workload::{Arrival, Workload};

/// How long a run lasts.
const RUN_S: f64 = 600.0;

/// Jobs that arrive before are not counted: the queues are filling.
const WARM_UP_S: f64 = 20.0;

/// A tenant of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantLoad {
    /// Its share when slots are scarce.
    pub weight: u32,
    /// Work that it sends, in hundredths of what the nodes can do.
    pub load_percent: u16,
}

const FLOOD: TenantLoad = TenantLoad { weight: 1, load_percent: 1000 };
const LIGHT: TenantLoad = TenantLoad { weight: 1, load_percent: 20 };

/// All goals for tenants.
pub fn goals() -> Vec<FleetGoal> {
    let least = |what, measure| FleetGoal::at_least(98.0, "%", what, measure);
    let off = |limit, what, measure| FleetGoal::at_most(limit, "%", what, measure);
    vec![
        least("load 0.20 beside one of 10: jobs within twice their time alone", |s| {
            within_twice(s, 10, 1)
        }),
        // Each instance knows its own waiting jobs and running jobs only, so half of the slots that
        // come free are offered to the light tenant's jobs: they wait twice as long. Ten percent
        // are allowed for that, as with weights.
        FleetGoal::at_least(90.0, "%", "the same, two instances", |s| within_twice(s, 10, 2)),
        off(5.0, "weights 2 : 1, 40 slots: jobs are off 2 : 1", |s| off_two_to_one(s, 10, 1)),
        off(5.0, "the same, a single node of 4 slots", |s| off_two_to_one(s, 1, 1)),
        off(10.0, "the same, 40 slots, two instances", |s| off_two_to_one(s, 10, 2)),
    ]
}

/// How many percent of the jobs of a light tenant end within twice the time that they took alone,
/// while another tenant sends ten times what the fleet can do.
fn within_twice(seed: u64, nodes: u32, instances: usize) -> f64 {
    let alone = play(seed, nodes, instances, &[LIGHT]).swap_remove(0);
    let beside = play(seed, nodes, instances, &[LIGHT, FLOOD]).swap_remove(0);
    let pairs = alone.iter().zip(&beside).filter(|(alone, _)| alone.at_s >= WARM_UP_S);
    let (mut all, mut within) = (0, 0);
    for (alone, beside) in pairs {
        let Some(alone_s) = alone.took_s else { continue };
        all += 1;
        within += i32::from(beside.took_s.is_some_and(|took_s| took_s <= 2.0 * alone_s));
    }
    100.0 * f64::from(within) / f64::from(all)
}

/// By how many percent the jobs of two tenants are off 2 : 1, their weights, when each of them
/// sends three times what the fleet can do.
fn off_two_to_one(seed: u64, nodes: u32, instances: usize) -> f64 {
    let tenants = [2, 1].map(|weight| TenantLoad { weight, load_percent: 300 });
    let done = play(seed, nodes, instances, &tenants);
    let count = |jobs: &[SimJob]| {
        jobs.iter().filter(|job| job.at_s >= WARM_UP_S && job.took_s.is_some()).count() as f64
    };
    100.0 * (count(&done[0]) / count(&done[1]) / 2.0 - 1.0).abs()
}

/// What became of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimJob {
    /// When it arrived.
    pub at_s: f64,
    /// From then until its end; `None` if it got no slot in time.
    pub took_s: Option<f64>,
}

/// Plays a fleet of equal nodes of four slots; gives the jobs of each tenant in order of arrival.
pub fn play(seed: u64, nodes: u32, instances: usize, tenants: &[TenantLoad]) -> Vec<Vec<SimJob>> {
    let mut run = TenantRun::new(seed, nodes, instances, tenants);
    let mut arrivals: Vec<(usize, Arrival)> = vec![];
    for (tenant, load) in tenants.iter().enumerate() {
        let scenario = run.scenario.at(load.load_percent).seeded(seed + 1000 * tenant as u64);
        let all = Workload::new(&scenario, SimFleet::new(&scenario).capacity());
        let in_time = all.take_while(|arrival| arrival.at_s < RUN_S);
        arrivals.extend(in_time.map(|arrival| (tenant, arrival)));
    }
    arrivals.sort_by(|(_, a), (_, b)| a.at_s.total_cmp(&b.at_s));
    for (tenant, arrival) in arrivals {
        run.finish_until(arrival.at_s);
        run.arrive(tenant, arrival);
    }
    run.finish_until(f64::INFINITY);
    let mut jobs = vec![vec![]; tenants.len()];
    for (tenant, job) in run.jobs {
        jobs[tenant].push(job);
    }
    jobs
}

/// A job that waits: its number and the job.
type Waiting = (usize, Arrival);

/// An instance: who waits, and what each tenant holds.
#[derive(Default)]
struct Instance {
    /// By tenant.
    waiting: Vec<VecDeque<Waiting>>,
    shares: Shares<usize>,
}

struct TenantRun {
    scenario: Scenario,
    weights: Vec<u32>,
    machines: Vec<SimMachine>,
    cells: Cells,
    instances: Vec<Instance>,
    ends: NextEnds,
    luck: ChaCha8Rng,
    /// Tenant and fate of every job, in order of arrival.
    jobs: Vec<(usize, SimJob)>,
}

impl TenantRun {
    fn new(seed: u64, nodes: u32, instances: usize, tenants: &[TenantLoad]) -> Self {
        let scenario = Scenario { nodes, shape: Shape::Equal, ..Scenario::default() };
        let fleet = SimFleet::new(&scenario);
        let instance = || Instance {
            waiting: vec![VecDeque::new(); tenants.len()],
            shares: Shares::default(),
        };
        Self {
            weights: tenants.iter().map(|tenant| tenant.weight).collect(),
            machines: fleet.specs.iter().copied().map(SimMachine::new).collect(),
            cells: Cells::new(&fleet, &scenario, Policy::Balanced, instances),
            instances: (0..instances).map(|_| instance()).collect(),
            ends: NextEnds::new(fleet.specs.len()),
            luck: ChaCha8Rng::seed_from_u64(seed),
            jobs: vec![],
            scenario,
        }
    }

    /// Which of these tenants goes first at an instance.
    fn first(&self, at: usize, tenants: &[usize]) -> Option<usize> {
        let shares = &self.instances[at].shares;
        let standings = tenants.iter().map(|&tenant| shares.standing(tenant, self.weights[tenant]));
        fair_share::next(standings).map(|position| tenants[position])
    }

    fn waiting(&self, at: usize) -> Vec<usize> {
        let waiting = &self.instances[at].waiting;
        (0..waiting.len()).filter(|&tenant| !waiting[tenant].is_empty()).collect()
    }

    fn arrive(&mut self, tenant: usize, arrival: Arrival) {
        let (number, now_s) = (self.jobs.len(), arrival.at_s);
        self.jobs.push((tenant, SimJob { at_s: now_s, took_s: None }));
        self.expire(now_s);
        let at = arrival.session % self.instances.len();
        let mut tenants = self.waiting(at);
        let is_behind_own = tenants.contains(&tenant);
        tenants.push(tenant);
        if !is_behind_own
            && self.first(at, &tenants) == Some(tenant)
            && let Some(node) = self.reserve(at, None, now_s)
        {
            return self.start(node, tenant, (number, arrival), now_s);
        }
        let instance = &mut self.instances[at];
        instance.waiting[tenant].push_back((number, arrival));
        instance.shares.joined(tenant);
    }

    fn start(&mut self, node: usize, tenant: usize, (number, arrival): Waiting, now_s: f64) {
        let at = arrival.session % self.instances.len();
        self.instances[at].shares.started(tenant);
        // The session stands for the instance until here; the end needs the job.
        let arrival = Arrival { session: number * self.instances.len() + at, ..arrival };
        self.machines[node].start(arrival, true, now_s);
        self.cells.set_used(node, self.machines[node].used());
        self.ends.set(node, self.machines[node].next_end_s());
    }

    fn finish_until(&mut self, until_s: f64) {
        while let Some((node, at_s)) = self.ends.pop_until(until_s) {
            self.finish(node, at_s);
        }
    }

    fn finish(&mut self, node: usize, now_s: f64) {
        let job = self.machines[node].finish(now_s).expect("a node that is due has a job");
        let (number, at) = (
            job.arrival.session / self.instances.len(),
            job.arrival.session % self.instances.len(),
        );
        self.cells.set_used(node, self.machines[node].used());
        self.cells.ended(node, &job, at, now_s);
        self.ends.set(node, self.machines[node].next_end_s());
        let (tenant, fate) = &mut self.jobs[number];
        fate.took_s = Some(now_s - fate.at_s);
        self.instances[at].shares.ended(*tenant);
        self.expire(now_s);
        // The instance that owned the job and the one to which the node is connected learn of it at
        // the same time.
        let first = [at, node % self.instances.len()][self.luck.random_range(0..2)];
        let others = (0..self.instances.len()).filter(|&other| other != first);
        let order: Vec<usize> = std::iter::once(first).chain(others).collect();
        for at in order {
            if self.wake(at, node, now_s) {
                return;
            }
        }
    }

    /// Gives the slot to a waiting job of this instance; says whether there was one.
    fn wake(&mut self, at: usize, freed: usize, now_s: f64) -> bool {
        let Some(tenant) = self.first(at, &self.waiting(at)) else { return false };
        let Some(node) = self.reserve(at, Some(freed), now_s) else { return false };
        let instance = &mut self.instances[at];
        let Some(job) = instance.waiting[tenant].pop_front() else { return false };
        instance.shares.chosen(tenant, self.weights[tenant]);
        instance.shares.left(tenant);
        self.start(node, tenant, job, now_s);
        true
    }

    /// Drops the jobs that have waited as long as they may.
    fn expire(&mut self, now_s: f64) {
        let since_s = now_s - WAIT_MS_DEFAULT as f64 / 1000.0;
        for Instance { waiting, shares } in &mut self.instances {
            for (tenant, jobs) in waiting.iter_mut().enumerate() {
                while jobs.pop_front_if(|(_, arrival)| arrival.at_s < since_s).is_some() {
                    shares.left(tenant);
                }
            }
        }
    }

    fn reserve(&mut self, instance: usize, beside: Option<usize>, now_s: f64) -> Option<usize> {
        let (pair, keep_last, now_ms) = (0, beside.is_none(), (now_s * 1000.0) as u64);
        let request = CellRequest { pair, instance, keep_last, beside, now_ms };
        self.cells.reserve(request, &mut self.luck).node
    }
}
