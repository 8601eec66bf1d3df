//! Jobs that wait for a slot: per pair, first come first served.
//!
//! Start at [`WaitingQueue::oldest_first`]. All jobs of a pair ask for the same, so when a slot
//! comes free it is enough to try the first of each pair.
//!
//! Invariant: within a pair, jobs leave in the order in which they came.

use std::collections::VecDeque;

use super::fleet::PAIRS;
use super::workload::Arrival;

/// A job that waits for a slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WaitingJob {
    /// The job as it arrived.
    pub arrival: Arrival,
    /// Whether it arrived after the warm-up.
    pub counted: bool,
}

/// All waiting jobs; at most all jobs of a run.
#[derive(Debug, Clone, Default)]
pub struct WaitingQueue {
    by_pair: [VecDeque<WaitingJob>; PAIRS],
}

impl WaitingQueue {
    /// Adds a job behind all others of its pair.
    pub fn park(&mut self, job: WaitingJob) {
        self.by_pair[job.arrival.pair].push_back(job);
    }

    /// Whether no job of this pair waits.
    pub fn is_empty(&self, pair: usize) -> bool {
        self.by_pair[pair].is_empty()
    }

    /// The first job of each pair, longest wait first.
    pub fn oldest_first(&self) -> impl Iterator<Item = WaitingJob> + use<> {
        let mut heads = self.by_pair.each_ref().map(|jobs| jobs.front().copied());
        let came = |head: &Option<WaitingJob>| head.map_or(f64::INFINITY, |job| job.arrival.at_s);
        heads.sort_by(|a, b| came(a).total_cmp(&came(b)));
        heads.into_iter().flatten()
    }

    /// Removes the first job of a pair.
    pub fn take(&mut self, pair: usize) -> Option<WaitingJob> {
        self.by_pair[pair].pop_front()
    }

    /// Removes a job that has waited longer than it may.
    pub fn take_expired(&mut self, now_s: f64, wait_s: f64) -> Option<WaitingJob> {
        let expired = |job: &mut WaitingJob| now_s - job.arrival.at_s > wait_s;
        self.by_pair.iter_mut().find_map(|jobs| jobs.pop_front_if(expired))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(at_s: f64, pair: usize) -> WaitingJob {
        WaitingJob { arrival: Arrival { at_s, work_s: 1.0, pair, session: 0 }, counted: true }
    }

    fn line(jobs: &[(f64, usize)]) -> WaitingQueue {
        let mut line = WaitingQueue::default();
        jobs.iter().for_each(|&(at_s, pair)| line.park(job(at_s, pair)));
        line
    }

    #[test]
    fn the_first_of_each_pair_is_tried_by_age() {
        let line = line(&[(1.0, 2), (2.0, 0), (3.0, 2), (4.0, 0)]);
        assert_eq!(line.oldest_first().collect::<Vec<_>>(), [job(1.0, 2), job(2.0, 0)]);
        assert!(line.is_empty(1) && !line.is_empty(2));
    }

    #[test]
    fn a_pair_is_first_come_first_served() {
        let mut line = line(&[(1.0, 0), (2.0, 1), (3.0, 0)]);
        assert_eq!(line.take(0), Some(job(1.0, 0)));
        assert_eq!(line.take(0), Some(job(3.0, 0)));
        assert_eq!(line.take(0), None);
    }

    #[test]
    fn a_job_waits_as_long_as_it_may_and_no_longer() {
        let mut line = line(&[(1.0, 0), (1.5, 1)]);
        assert_eq!(line.take_expired(3.0, 2.0), None);
        assert_eq!(line.take_expired(3.1, 2.0), Some(job(1.0, 0)));
        assert_eq!(line.take_expired(3.1, 2.0), None);
    }
}
