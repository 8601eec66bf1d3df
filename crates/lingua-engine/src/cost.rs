//! How long a job takes on a node, learned from the jobs that it finished.
//!
//! Start at [`Cost::learn`]. A moving average that follows slowly, so that chance does not look
//! like a difference between nodes, and quickly when a node suddenly becomes much slower.

use lingua_core::node::{COST_MS_MAX, COST_MS_UNKNOWN};

/// Weight of an ordinary observation: one in 64.
const USUAL: f64 = 1.0 / 64.0;

/// Weight of an observation that is far above the average.
const PEAK: f64 = 1.0 / 4.0;

/// How many times the average that is.
const PEAK_FROM: f64 = 4.0;

/// The first few observations weigh more, or a slow node would look normal for minutes.
const FIRST: u32 = 8;

/// Each job that runs beside another makes it this much slower.
const CONTENTION: f64 = 0.15;

/// A node that fails quickly is always free: without a penalty it would get every job. Each failure
/// doubles its cost, up to this factor.
const PENALTY_MAX: f64 = 16.0;

/// How much of the penalty is left after each heartbeat, so that the node gets another chance.
const PENALTY_KEPT: f64 = 0.8;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    ms: f64,
    seen: u32,
    penalty: f64,
}

impl Default for Cost {
    fn default() -> Self {
        Self { ms: f64::from(COST_MS_UNKNOWN), seen: 0, penalty: 1.0 }
    }
}

impl Cost {
    /// Learns from a job that took `took_ms` while the node had `used` leases.
    pub(crate) fn learn(&mut self, took_ms: u64, used: u16) {
        let beside = f64::from(used.saturating_sub(1));
        let alone = (took_ms.max(1) as f64) / (1.0 + CONTENTION * beside);
        self.seen = self.seen.saturating_add(1);
        let weight = match self.seen {
            n if n <= FIRST => 1.0 / f64::from(n),
            _ if alone > PEAK_FROM * self.ms => PEAK,
            _ => USUAL,
        };
        self.ms += (alone - self.ms) * weight;
    }

    /// Raises the penalty after a failed job.
    pub(crate) fn failed(&mut self) {
        self.penalty = (self.penalty * 2.0).min(PENALTY_MAX);
    }

    /// Lowers the penalty after a heartbeat.
    pub(crate) fn forgive(&mut self) {
        self.penalty = (self.penalty * PENALTY_KEPT).max(1.0);
    }

    /// The expected duration of the next job, in milliseconds.
    pub(crate) fn ms(self) -> u32 {
        (self.ms * self.penalty).round().clamp(1.0, f64::from(COST_MS_MAX)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(observations: impl IntoIterator<Item = u64>) -> u32 {
        let mut cost = Cost::default();
        observations.into_iter().for_each(|ms| cost.learn(ms, 1));
        cost.ms()
    }

    #[test]
    fn a_new_nodes_speed_is_learned_at_once() {
        assert_eq!(after([]), COST_MS_UNKNOWN);
        assert_eq!(after([300]), 300);
        assert_eq!(after([300, 500]), 400);
    }

    #[test]
    fn chance_changes_the_cost_little_and_a_collapse_much() {
        let steady = std::iter::repeat_n(500, 100);
        let one_slow = after(steady.clone().chain([1500]));
        assert!((500..=520).contains(&one_slow), "{one_slow}");
        let collapsed = after(steady.chain([10_000]));
        assert!(collapsed > 2_500, "{collapsed}");
    }

    #[test]
    fn failures_raise_the_cost_for_a_while() {
        let mut cost = Cost::default();
        (0..10).for_each(|_| cost.failed());
        assert_eq!(cost.ms(), 16 * COST_MS_UNKNOWN);
        (0..20).for_each(|_| cost.forgive());
        assert_eq!(cost.ms(), COST_MS_UNKNOWN);
    }

    #[test]
    fn other_jobs_on_the_node_are_accounted_for() {
        let mut cost = Cost::default();
        cost.learn(1450, 4);
        assert_eq!(cost.ms(), 1000);
    }
}
