//! Counts of a run and the results that follow from them.
//!
//! Start at [`QualityOutcome`]. Jobs of the warm-up are placed like all others and not counted.
//!
//! Invariant: every counted job that arrived is in the end either rejected or done.

use super::fleet::PAIRS;
use super::workload::{Arrival, SESSIONS};

/// The results of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QualityOutcome {
    /// Jobs that arrived, by pair.
    pub arrived: [u64; PAIRS],
    /// Jobs that got no slot: at once, or within the time that they may wait; by pair.
    pub rejected: [u64; PAIRS],
    /// Mean wait for a slot of the jobs that got one, in seconds.
    pub wait_mean_s: f64,
    /// 99 of 100 of them waited at most this long.
    pub wait_p99_s: f64,
    /// Mean time from arrival to end, in seconds.
    pub response_mean_s: f64,
    /// 99 of 100 jobs were done by then.
    pub response_p99_s: f64,
    /// Nodes or cells asked, per job.
    pub tries_mean: f64,
    /// Entropy of the nodes that one session's jobs went to, as a share of the entropy of an even
    /// spread over all nodes; of the session with the least.
    pub spread_min: f64,
    /// Share of the jobs that went to the node of the session's job before.
    pub same_node_share: f64,
}

impl QualityOutcome {
    /// Share of all jobs that got no slot.
    pub fn rejected_share(&self) -> f64 {
        share(self.rejected.iter().sum(), self.arrived.iter().sum())
    }

    /// Share of a pair's jobs that got no slot.
    pub fn rejected_share_of(&self, pair: usize) -> f64 {
        share(self.rejected[pair], self.arrived[pair])
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The counts during a run.
#[derive(Debug, Clone)]
pub struct QualityTally {
    arrived: [u64; PAIRS],
    rejected: [u64; PAIRS],
    waits_s: Vec<f64>,
    responses_s: Vec<f64>,
    tries: u64,
    jobs: u64,
    sessions: Vec<Session>,
}

/// Where a session's jobs went.
#[derive(Debug, Clone)]
struct Session {
    by_node: Vec<u32>,
    last: Option<usize>,
    repeats: u64,
}

impl QualityTally {
    /// Nothing counted yet, on this many nodes.
    pub fn new(nodes: usize) -> Self {
        let session = Session { by_node: vec![0; nodes], last: None, repeats: 0 };
        Self {
            arrived: [0; PAIRS],
            rejected: [0; PAIRS],
            waits_s: Vec::new(),
            responses_s: Vec::new(),
            tries: 0,
            jobs: 0,
            sessions: vec![session; SESSIONS],
        }
    }

    /// A job arrived.
    pub fn arrived(&mut self, pair: usize, counted: bool) {
        self.jobs += 1;
        self.arrived[pair] += u64::from(counted);
    }

    /// An instance searched for a slot.
    pub fn tried(&mut self, tries: u32) {
        self.tries += u64::from(tries);
    }

    /// A job got no slot.
    pub fn rejected(&mut self, pair: usize, counted: bool) {
        self.rejected[pair] += u64::from(counted);
    }

    /// A job got a slot.
    pub fn placed(&mut self, job: &Arrival, node: usize, counted: bool, now_s: f64) {
        if !counted {
            return;
        }
        self.waits_s.push(now_s - job.at_s);
        let session = &mut self.sessions[job.session];
        session.by_node[node] += 1;
        session.repeats += u64::from(session.last == Some(node));
        session.last = Some(node);
    }

    /// A job is done.
    pub fn done(&mut self, job: &Arrival, counted: bool, now_s: f64) {
        if counted {
            self.responses_s.push(now_s - job.at_s);
        }
    }

    /// The results, once all jobs have ended.
    pub fn close(mut self) -> QualityOutcome {
        let (arrived, rejected): (u64, u64) =
            (self.arrived.iter().sum(), self.rejected.iter().sum());
        assert_eq!(arrived, rejected + self.responses_s.len() as u64, "every job ends once");
        let repeats = self.sessions.iter().map(|session| session.repeats).sum();
        QualityOutcome {
            arrived: self.arrived,
            rejected: self.rejected,
            wait_mean_s: mean(&self.waits_s),
            wait_p99_s: p99(&mut self.waits_s),
            response_mean_s: mean(&self.responses_s),
            response_p99_s: p99(&mut self.responses_s),
            tries_mean: self.tries as f64 / self.jobs.max(1) as f64,
            spread_min: self.sessions.iter().map(Session::spread).fold(1.0, f64::min),
            same_node_share: share(repeats, arrived - rejected),
        }
    }
}

impl Session {
    /// Entropy of its nodes divided by that of an even spread.
    fn spread(&self) -> f64 {
        let total: u32 = self.by_node.iter().sum();
        if total == 0 || self.by_node.len() < 2 {
            return 0.0;
        }
        let parts =
            self.by_node.iter().filter(|&&n| n > 0).map(|&n| f64::from(n) / f64::from(total));
        let entropy = -parts.map(|p| p * p.ln()).sum::<f64>();
        entropy / (self.by_node.len() as f64).ln()
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The value that 99 of 100 do not exceed; 0 if there are none.
fn p99(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let rank = (values.len() * 99).div_ceil(100) - 1;
    *values.select_nth_unstable_by(rank, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_value_that_99_of_100_do_not_exceed() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(p99(&mut values), 99.0);
        assert_eq!(p99(&mut [5.0]), 5.0);
        assert_eq!(p99(&mut []), 0.0);
    }

    #[test]
    fn spread_is_one_when_even_and_zero_on_a_single_node() {
        let session = |by_node: Vec<u32>| Session { by_node, last: None, repeats: 0 };
        assert!((session(vec![7; 10]).spread() - 1.0).abs() < 1e-12);
        assert_eq!(session(vec![0, 9, 0]).spread(), 0.0);
    }

    #[test]
    #[should_panic(expected = "every job ends once")]
    fn a_lost_job_is_noticed() {
        let mut tally = QualityTally::new(1);
        tally.arrived(0, true);
        tally.close();
    }
}
