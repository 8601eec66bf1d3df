//! A node at work: processor sharing with contention.
//!
//! Start at [`SimMachine::start`]. All jobs on a node run at the same rate, so it is enough to know
//! how much work each job that was there from the beginning would have got: a job ends when this
//! mark reaches what it was at its start plus its own work.
//!
//! Invariant: a machine never has more jobs than slots, and its mark never falls.

use super::fleet::{NodeSpec, slowdown};
use super::workload::Arrival;

/// A job on a node.
#[derive(Debug, Clone, Copy)]
pub struct RunningJob {
    /// The job as it arrived.
    pub arrival: Arrival,
    /// Whether it arrived after the warm-up.
    pub counted: bool,
    /// When it got its slot.
    pub started_s: f64,
    /// How many jobs the node had then, this one included.
    pub jobs_at_start: usize,
    ends_at_mark: f64,
}

impl RunningJob {
    /// A job that had its node to itself.
    pub fn alone(arrival: Arrival, started_s: f64) -> Self {
        Self { arrival, counted: true, started_s, jobs_at_start: 1, ends_at_mark: 0.0 }
    }
}

/// A node and the jobs on it.
#[derive(Debug, Clone)]
pub struct SimMachine {
    spec: NodeSpec,
    jobs: Vec<RunningJob>,
    /// Work that a job has got that was there from the beginning.
    mark: f64,
    /// When the mark was right.
    marked_s: f64,
}

impl SimMachine {
    /// An idle node.
    pub fn new(spec: NodeSpec) -> Self {
        Self { spec, jobs: Vec::with_capacity(spec.slots.into()), mark: 0.0, marked_s: 0.0 }
    }

    /// How many jobs it has.
    pub fn used(&self) -> usize {
        self.jobs.len()
    }

    /// Whether all slots are taken.
    pub fn is_full(&self) -> bool {
        self.jobs.len() >= usize::from(self.spec.slots)
    }

    /// How long a job of mean work takes if it starts now and nothing changes.
    pub fn delay_s(&self) -> f64 {
        slowdown(self.jobs.len() + 1) / self.spec.speed
    }

    /// Makes the node faster or slower from now on.
    pub fn set_speed(&mut self, speed: f64, now_s: f64) {
        self.advance(now_s);
        self.spec.speed = speed;
    }

    /// Starts a job.
    pub fn start(&mut self, arrival: Arrival, counted: bool, now_s: f64) {
        assert!(!self.is_full(), "a node was given more jobs than it has slots");
        self.advance(now_s);
        self.jobs.push(RunningJob {
            arrival,
            counted,
            started_s: now_s,
            jobs_at_start: self.jobs.len() + 1,
            ends_at_mark: self.mark + arrival.work_s,
        });
    }

    /// When its next job ends if nothing changes before.
    pub fn next_end_s(&self) -> Option<f64> {
        let next = self.jobs.iter().map(|job| job.ends_at_mark).min_by(f64::total_cmp)?;
        Some(self.marked_s + (next - self.mark).max(0.0) / self.rate())
    }

    /// Ends the job that is due; `None` if there is none at all.
    pub fn finish(&mut self, now_s: f64) -> Option<RunningJob> {
        let marks = self.jobs.iter().map(|job| job.ends_at_mark).enumerate();
        let (at, mark) = marks.min_by(|a, b| a.1.total_cmp(&b.1))?;
        // The exact mark, so that rounding errors do not add up.
        (self.mark, self.marked_s) = (mark, now_s);
        Some(self.jobs.swap_remove(at))
    }

    fn advance(&mut self, now_s: f64) {
        self.mark += (now_s - self.marked_s) * self.rate();
        self.marked_s = now_s;
    }

    fn rate(&self) -> f64 {
        self.spec.speed / slowdown(self.jobs.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(work_s: f64) -> Arrival {
        Arrival { at_s: 0.0, work_s, pair: 0, session: 0 }
    }

    #[test]
    fn a_job_alone_takes_its_work_divided_by_speed() {
        let mut machine = SimMachine::new(NodeSpec { speed: 2.0, slots: 4, class: 0 });
        machine.start(job(3.0), true, 10.0);
        assert_eq!(machine.next_end_s(), Some(11.5));
    }

    #[test]
    fn jobs_share_and_slow_each_other_down() {
        let mut machine = SimMachine::new(NodeSpec { speed: 1.0, slots: 4, class: 0 });
        machine.start(job(1.0), true, 0.0);
        machine.start(job(1.0), true, 0.5);
        // The first has half of its work left and runs at 1 / 1.15 from then on.
        let end_s = machine.next_end_s().unwrap();
        assert!((end_s - (0.5 + 0.5 * 1.15)).abs() < 1e-12);
        assert_eq!(machine.finish(end_s).unwrap().started_s, 0.0);
        // The second is alone again with the other half.
        let end_s = machine.next_end_s().unwrap();
        assert!((end_s - (0.5 + 0.5 * 1.15 + 0.5)).abs() < 1e-12);
        let second = machine.finish(end_s).unwrap();
        assert_eq!((second.started_s, second.jobs_at_start), (0.5, 2));
        assert_eq!(machine.next_end_s(), None);
    }

    #[test]
    #[should_panic(expected = "more jobs than it has slots")]
    fn a_full_node_takes_nothing() {
        let mut machine = SimMachine::new(NodeSpec { speed: 1.0, slots: 1, class: 0 });
        machine.start(job(1.0), true, 0.0);
        machine.start(job(1.0), true, 0.0);
    }
}
