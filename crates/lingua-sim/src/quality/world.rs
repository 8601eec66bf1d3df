//! The events of a run: jobs arrive, get slots, wait, end.
//!
//! Start at [`run`]. Between two arrivals the nodes finish what is due, in the order of time; a
//! slot that comes free goes to the oldest job that waits and can be placed now.
//!
//! Invariant: a job never overtakes an older one of its pair, and every job ends once.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::baseline::Baseline;
use super::cells::{CellRequest, Cells, QualityCellReply};
use super::fleet::SimFleet;
use super::machine::SimMachine;
use super::next_ends::NextEnds;
use super::queue::{WaitingJob, WaitingQueue};
use super::scenario::{DispatchRule, Scenario, Waiting};
use super::tally::{QualityOutcome, QualityTally};
use super::workload::{Arrival, Workload};

/// One part in this many of the jobs comes before counting begins.
const WARM_UP_PART: u32 = 10;

/// The stream of the generator that choices draw from; arrivals have the first one, 0.
const LUCK_STREAM: u64 = 1;

/// Between two rounds of heartbeats; a tenth of the nodes sends one in each.
const HEARTBEAT_ROUND_S: f64 = 0.5;
const HEARTBEAT_ROUNDS: usize = 10;

/// The leader publishes the usual cost every so many of these rounds.
pub(super) const PUBLISH_ROUNDS: usize = 6;

/// Plays a scenario to its end.
pub fn run(scenario: &Scenario) -> QualityOutcome {
    run_with(scenario, &[]).0
}

/// Something that happens to the fleet during a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FleetEvent {
    /// A node goes away; its jobs end as usual.
    Leave(usize),
    /// A node that was away comes back.
    Return(usize),
    /// A node that was away is another one: nothing is known of it.
    Join(usize),
    /// A node is this many times as fast as at first.
    Speed(usize, f64),
    /// All instances and nodes start anew.
    Restart,
}

/// When a counted job got its slot, and where.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Placed {
    /// Seconds since the start.
    pub at_s: f64,
    /// The node.
    pub node: usize,
}

/// Plays a scenario while things happen to the fleet, each at its time; gives where the jobs went.
pub fn run_with(
    scenario: &Scenario,
    events: &[(f64, FleetEvent)],
) -> (QualityOutcome, Vec<Placed>) {
    let mut world = World::new(scenario);
    let mut events = events.iter().copied().peekable();
    let jobs = Workload::new(scenario, world.fleet.capacity()).take(scenario.jobs as usize);
    for (number, arrival) in jobs.enumerate() {
        while let Some((at_s, event)) = events.next_if(|(at_s, _)| *at_s <= arrival.at_s) {
            world.advance(at_s);
            world.happen(event, at_s);
        }
        world.advance(arrival.at_s);
        world.arrive(arrival, number as u32 >= scenario.jobs / WARM_UP_PART);
    }
    world.finish_until(f64::INFINITY);
    (world.tally.close(), world.placed)
}

struct World {
    fleet: SimFleet,
    machines: Vec<SimMachine>,
    chooser: Chooser,
    waiting: Waiting,
    line: WaitingQueue,
    ends: NextEnds,
    luck: ChaCha8Rng,
    tally: QualityTally,
    placed: Vec<Placed>,
    /// How many rounds of heartbeats there were.
    rounds: usize,
}

enum Chooser {
    Core { cells: Box<Cells>, instances: usize },
    Baseline(Baseline),
}

impl World {
    fn new(scenario: &Scenario) -> Self {
        let fleet = SimFleet::new(scenario);
        let chooser = match scenario.dispatch {
            DispatchRule::Baseline(baseline) => Chooser::Baseline(baseline),
            DispatchRule::Core { policy, instances } => {
                let instances = usize::from(instances);
                let cells = Cells::new(&fleet, scenario, policy, instances);
                Chooser::Core { cells: Box::new(cells), instances }
            }
        };
        let mut luck = ChaCha8Rng::seed_from_u64(scenario.seed);
        luck.set_stream(LUCK_STREAM);
        let nodes = fleet.specs.len();
        Self {
            machines: fleet.specs.iter().copied().map(SimMachine::new).collect(),
            fleet,
            chooser,
            waiting: scenario.waiting,
            line: WaitingQueue::default(),
            ends: NextEnds::new(nodes),
            luck,
            tally: QualityTally::new(nodes),
            placed: vec![],
            rounds: 0,
        }
    }

    /// Lets the time pass until then: jobs end, nodes send heartbeats.
    fn advance(&mut self, until_s: f64) {
        loop {
            let next_s = (self.rounds + 1) as f64 * HEARTBEAT_ROUND_S;
            if next_s > until_s {
                return self.finish_until(until_s);
            }
            self.finish_until(next_s);
            self.rounds += 1;
            let Chooser::Core { cells, .. } = &mut self.chooser else { continue };
            if self.rounds.is_multiple_of(PUBLISH_ROUNDS) {
                cells.publish_typical();
            }
            for node in
                (self.rounds % HEARTBEAT_ROUNDS..self.machines.len()).step_by(HEARTBEAT_ROUNDS)
            {
                cells.heartbeat(node, (next_s * 1000.0) as u64);
            }
        }
    }

    fn happen(&mut self, event: FleetEvent, now_s: f64) {
        let Chooser::Core { cells, .. } = &mut self.chooser else { return };
        match event {
            FleetEvent::Leave(node) => cells.set_online(node, false),
            FleetEvent::Return(node) => cells.set_online(node, true),
            FleetEvent::Join(node) => {
                cells.renew(node);
                cells.set_online(node, true);
            }
            FleetEvent::Speed(node, factor) => {
                let speed = factor * self.fleet.specs[node].speed;
                self.machines[node].set_speed(speed, now_s);
                self.ends.set(node, self.machines[node].next_end_s());
            }
            FleetEvent::Restart => cells.restart(),
        }
    }

    fn arrive(&mut self, arrival: Arrival, counted: bool) {
        let now_s = arrival.at_s;
        self.tally.arrived(arrival.pair, counted);
        self.expire(now_s);
        let (may_wait, keep_last) = match self.waiting {
            Waiting::No { keep_last } => (false, keep_last),
            Waiting::UpTo { .. } => (true, true),
        };
        let found = match self.line.is_empty(arrival.pair) {
            true => self.reserve(&arrival, keep_last, None, now_s),
            false => None,
        };
        match found {
            Some(node) => self.start(node, arrival, counted, now_s),
            None if may_wait => self.line.park(WaitingJob { arrival, counted }),
            None => self.tally.rejected(arrival.pair, counted),
        }
    }

    /// Ends every job that is due before this time.
    fn finish_until(&mut self, until_s: f64) {
        while let Some((node, at_s)) = self.ends.pop_until(until_s) {
            self.finish(node, at_s);
        }
    }

    fn finish(&mut self, node: usize, now_s: f64) {
        let machine = &mut self.machines[node];
        let job = machine.finish(now_s).expect("a node that is due has a job");
        if let Chooser::Core { cells, instances } = &mut self.chooser {
            cells.set_used(node, machine.used());
            cells.ended(node, &job, job.arrival.session % *instances, now_s);
        }
        self.ends.set(node, self.machines[node].next_end_s());
        self.tally.done(&job.arrival, job.counted, now_s);
        self.expire(now_s);
        self.wake(node, now_s);
    }

    /// Gives the slot that came free on a node to the oldest job that can be placed now.
    fn wake(&mut self, freed: usize, now_s: f64) {
        for WaitingJob { arrival, counted } in self.line.oldest_first() {
            if let Some(node) = self.reserve(&arrival, false, Some(freed), now_s) {
                self.line.take(arrival.pair);
                self.start(node, arrival, counted, now_s);
                return;
            }
        }
    }

    fn expire(&mut self, now_s: f64) {
        let Waiting::UpTo { wait_ms } = self.waiting else { return };
        while let Some(job) = self.line.take_expired(now_s, wait_ms as f64 / 1000.0) {
            self.tally.rejected(job.arrival.pair, job.counted);
        }
    }

    fn reserve(
        &mut self,
        job: &Arrival,
        keep_last: bool,
        beside: Option<usize>,
        now_s: f64,
    ) -> Option<usize> {
        let pair = job.pair;
        let QualityCellReply { node, tries } = match &mut self.chooser {
            Chooser::Baseline(baseline) => {
                baseline.pick(&self.machines, &self.fleet.capable[pair], &mut self.luck)
            }
            Chooser::Core { cells, instances } => {
                let (instance, now_ms) = (job.session % *instances, (now_s * 1000.0) as u64);
                let ask = CellRequest { pair, instance, keep_last, beside, now_ms };
                cells.reserve(ask, &mut self.luck)
            }
        };
        self.tally.tried(tries);
        node
    }

    fn start(&mut self, node: usize, arrival: Arrival, counted: bool, now_s: f64) {
        let machine = &mut self.machines[node];
        machine.start(arrival, counted, now_s);
        if let Chooser::Core { cells, .. } = &mut self.chooser {
            cells.set_used(node, machine.used());
        }
        self.ends.set(node, self.machines[node].next_end_s());
        self.tally.placed(&arrival, node, counted, now_s);
        if counted {
            self.placed.push(Placed { at_s: now_s, node });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenario::{Shape, WAIT_MS_UNLIMITED};
    use super::*;

    #[test]
    fn a_single_server_is_first_come_first_served() {
        // Theory: P(wait > t) = ρ exp(−(1 − ρ) t). Another order keeps the mean and not the tail.
        let outcome = run(&Scenario {
            nodes: 1,
            shape: Shape::Theory,
            load_percent: 50,
            waiting: Waiting::UpTo { wait_ms: WAIT_MS_UNLIMITED },
            jobs: 400_000,
            ..Scenario::default()
        });
        let p99_s = 50f64.ln() / 0.5;
        assert!((outcome.wait_mean_s - 1.0).abs() < 0.05, "{outcome:?}");
        assert!((outcome.wait_p99_s / p99_s - 1.0).abs() < 0.05, "{outcome:?}");
    }

    #[test]
    fn a_job_gives_up_when_it_has_waited_long_enough() {
        let overload =
            Scenario { nodes: 20, load_percent: 150, jobs: 20_000, ..Scenario::default() };
        let outcome = run(&overload);
        assert!((outcome.rejected_share() - 1.0 / 3.0).abs() < 0.05, "{outcome:?}");
        assert!(outcome.wait_p99_s > 1.0 && outcome.wait_p99_s <= 2.0, "{outcome:?}");
    }
}
