//! How long a job takes on a node, learned from the jobs that it finished.
//!
//! Start at [`Cost::learn`]. The mean of the logarithms over about 128 jobs, each divided by what
//! the pair usually takes ([`PairDurations`]) and by the node's other jobs. The cost in the
//! store ([`Cost::speed`]) is drawn towards the usual cost of the fleet as if by 64 jobs. So an
//! unknown node counts as an average one, and chance does not look like a difference between nodes.
//! What was learned fades with each heartbeat, so that a node that was slow gets another chance.

use std::sync::atomic::Ordering;

use hashbrown::HashMap;
use lingua_core::LangPair;
use lingua_core::node::{COST_MS_MAX, COST_MS_UNKNOWN};
use lingua_core::roster::CONTENTION_PERCENT;
use lingua_store::Store;
use lingua_store::contract::NodeSpeed;
use parking_lot::Mutex;

use crate::node::LocalNode;
use crate::{Engine, Timer};

/// The last jobs that count. With half as many, chance alone would put one equal node in twenty
/// outside the band within which costs count as equal.
const MEMORY_JOBS: f64 = 128.0;

/// A node counts as if it had done so many jobs at the usual cost of the fleet.
const ASSUMED_JOBS: f64 = 64.0;

/// Most jobs that what is known of a node counts as.
const JOBS_MAX: f64 = 256.0;

/// How much of that is left after [`FADE_MS`].
const JOBS_KEPT: f64 = 0.98;

/// A node that fails quickly is always free: without a penalty it would get every job. Each failure
/// doubles its cost, up to this factor.
const PENALTY_MAX: f64 = 16.0;

/// How much of the penalty is left after [`FADE_MS`], so that the node gets another chance.
const PENALTY_KEPT: f64 = 0.8;

/// The usual time between two heartbeats.
const FADE_MS: f64 = 5000.0;

/// From so many jobs on, a node's speed is known well enough to judge a pair or the fleet by it.
pub const JUDGE_FROM_JOBS: u16 = 8;

/// Most jobs that what is known of a pair counts as, and most pairs that are remembered.
const PAIR_JOBS_MAX: f64 = 1024.0;
const PAIRS_MAX: usize = 1024;

/// What is known of a node's speed.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// The mean of the logarithms of the milliseconds.
    ln_ms: f64,
    /// How many jobs that is known from; less and less while the node has none.
    jobs: f64,
    penalty: f64,
    /// Until when it has faded.
    faded_ms: u64,
}

impl Default for Cost {
    fn default() -> Self {
        Self { ln_ms: 0.0, jobs: 0.0, penalty: 1.0, faded_ms: 0 }
    }
}

impl Cost {
    /// Starts with the speed of the node in the store.
    pub fn from_speed(speed: NodeSpeed) -> Self {
        let ln_ms = f64::from(speed.learned_ms.max(1)).ln();
        Self { ln_ms, jobs: f64::from(speed.jobs).min(JOBS_MAX), ..Self::default() }
    }

    /// Whether a job was learned from.
    pub fn is_known(self) -> bool {
        self.jobs.round() >= 1.0
    }

    /// Whether the fleet can be judged by it.
    pub fn is_well_known(self) -> bool {
        self.jobs >= f64::from(JUDGE_FROM_JOBS)
    }

    /// How long a job took on the node, as far as that is known.
    pub fn learned_ms(self) -> u32 {
        self.ln_ms.exp().round().clamp(1.0, f64::from(COST_MS_MAX)) as u32
    }

    /// Learns from a job of this pair that took `took_ms` while the node had `used` leases.
    pub fn learn(&mut self, took_ms: u64, used: u16, pair: LangPair, pairs: &PairDurations) {
        let beside = f64::from(used.saturating_sub(1));
        let alone_ms = (took_ms.max(1) as f64) / (1.0 + CONTENTION_PERCENT as f64 / 100.0 * beside);
        let ln_ms = alone_ms.ln() - pairs.learn(pair, alone_ms.ln(), *self);
        self.jobs = (self.jobs + 1.0).min(JOBS_MAX);
        self.ln_ms += (ln_ms - self.ln_ms) / self.jobs.min(MEMORY_JOBS);
    }

    /// Raises the penalty after a failed job.
    pub fn failed(&mut self) {
        self.penalty = (self.penalty * 2.0).min(PENALTY_MAX);
    }

    /// Lets what is known fade, and the penalty with it; for each heartbeat.
    pub fn fade(&mut self, now_ms: u64) {
        if self.faded_ms > 0 {
            let times = now_ms.saturating_sub(self.faded_ms) as f64 / FADE_MS;
            self.penalty = (self.penalty * PENALTY_KEPT.powf(times)).max(1.0);
            self.jobs *= JOBS_KEPT.powf(times);
        }
        self.faded_ms = now_ms;
    }

    /// The speed to write to the store, if this is the usual cost of the fleet.
    pub fn speed(self, typical_ms: u32) -> NodeSpeed {
        let jobs = self.jobs.round();
        let learned_ms = if jobs > 0.0 { self.learned_ms() } else { typical_ms };
        // Of the logarithms, so that one job that took far too long changes little.
        let ln_typical_ms = f64::from(typical_ms.max(1)).ln();
        let ln_ms = (jobs * self.ln_ms + ASSUMED_JOBS * ln_typical_ms) / (jobs + ASSUMED_JOBS);
        let cost_ms = (ln_ms.exp() * self.penalty).round().clamp(1.0, f64::from(COST_MS_MAX));
        NodeSpeed { cost_ms: cost_ms as u32, learned_ms, jobs: jobs as u16 }
    }
}

/// How long the jobs of a pair take, compared to the average job on the same nodes.
#[derive(Debug, Default)]
pub struct PairDurations(Mutex<Durations>);

#[derive(Debug, Default)]
struct Durations {
    by_pair: HashMap<LangPair, PairDuration>,
    /// Sums over all pairs: jobs, and jobs × logarithm.
    jobs: f64,
    ln_jobs: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct PairDuration {
    ln: f64,
    jobs: f64,
}

impl PairDurations {
    /// Learns from a job on a node; gives the logarithm of how much longer than the average job
    /// those of its pair take.
    fn learn(&self, pair: LangPair, ln_ms: f64, node: Cost) -> f64 {
        let mut known = self.0.lock();
        if known.by_pair.len() >= PAIRS_MAX && !known.by_pair.contains_key(&pair) {
            *known = Durations::default();
        }
        let mut of_pair = known.by_pair.get(&pair).copied().unwrap_or_default();
        if node.jobs < f64::from(JUDGE_FROM_JOBS) {
            return known.compared_to_average(of_pair);
        }
        let average = known.average();
        known.jobs -= of_pair.jobs;
        known.ln_jobs -= of_pair.jobs * of_pair.ln;
        of_pair.jobs = (of_pair.jobs + 1.0).min(PAIR_JOBS_MAX);
        of_pair.ln += (ln_ms - node.ln_ms + average - of_pair.ln) / of_pair.jobs;
        known.jobs += of_pair.jobs;
        known.ln_jobs += of_pair.jobs * of_pair.ln;
        known.by_pair.insert(pair, of_pair);
        known.compared_to_average(of_pair)
    }
}

impl Durations {
    fn average(&self) -> f64 {
        if self.jobs > 0.0 { self.ln_jobs / self.jobs } else { 0.0 }
    }

    fn compared_to_average(&self, of_pair: PairDuration) -> f64 {
        if of_pair.jobs > 0.0 { of_pair.ln - self.average() } else { 0.0 }
    }
}

/// The usual cost among these nodes, by those of which something is known.
pub fn median_ms(mut learned_ms: Vec<u32>) -> Option<u32> {
    let middle = learned_ms.len() / 2;
    (!learned_ms.is_empty()).then(|| *learned_ms.select_nth_unstable(middle).1)
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// The usual cost of the fleet, as of the last clean-up or the last pool table.
    pub(crate) fn typical_ms(&self) -> u32 {
        self.typical_ms.load(Ordering::Relaxed)
    }

    /// Finds out the usual cost of the fleet: from the pool table, else from the nodes here.
    pub(crate) fn refresh_typical(&self) {
        let published = self.table.lock().as_ref().and_then(|table| table.typical_ms);
        let typical = published.or_else(|| median_ms(self.nodes.learned_ms()));
        self.typical_ms.store(typical.unwrap_or(COST_MS_UNKNOWN), Ordering::Relaxed);
    }

    /// Learns from a job that a node here has done since `since_ms`.
    pub(crate) fn learn(&self, node: &LocalNode, pair: LangPair, since_ms: u64, used: u16) {
        let took_ms = self.now_ms().saturating_sub(since_ms);
        node.cost.lock().learn(took_ms, used, pair, &self.pair_durations);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPICAL_MS: u32 = 1000;

    fn pair(text: &str) -> LangPair {
        text.parse().unwrap()
    }

    fn after(observations: impl IntoIterator<Item = u64>) -> Cost {
        let (mut cost, pairs) = (Cost::default(), PairDurations::default());
        observations.into_iter().for_each(|ms| cost.learn(ms, 1, pair("zh:en"), &pairs));
        cost
    }

    #[test]
    fn an_unknown_node_counts_as_an_average_one() {
        for typical_ms in [60, 1000, 2500] {
            assert_eq!(after([]).speed(typical_ms), NodeSpeed::assumed(typical_ms));
        }
    }

    #[test]
    fn few_jobs_say_little_and_many_say_much() {
        let cost = |jobs| after(std::iter::repeat_n(200, jobs)).speed(TYPICAL_MS).cost_ms;
        assert!((950..1000).contains(&cost(1)), "{}", cost(1));
        assert_eq!(cost(64), 447);
        assert!((270..290).contains(&cost(256)), "{}", cost(256));
        assert_eq!(after(std::iter::repeat_n(200, 9)).learned_ms(), 200);
    }

    #[test]
    fn one_odd_job_changes_the_cost_little() {
        let odd = after(std::iter::repeat_n(500, 100).chain([50_000]));
        assert!((500..550).contains(&odd.learned_ms()), "{odd:?}");
        let first = after([100 * u64::from(TYPICAL_MS)]).speed(TYPICAL_MS);
        assert!(first.cost_ms < TYPICAL_MS * 11 / 10, "{first:?}");
    }

    #[test]
    fn what_was_learned_fades_with_the_heartbeats() {
        let mut slow = after(std::iter::repeat_n(5000, 100));
        let before = slow.speed(TYPICAL_MS).cost_ms;
        (1..=200).for_each(|n| slow.fade(n * 5000));
        let later = slow.speed(TYPICAL_MS).cost_ms;
        assert!(before > 2500 && later < 1200, "{before}, then {later}");
    }

    #[test]
    fn failures_raise_the_cost_for_a_while() {
        let mut cost = Cost::default();
        (0..10).for_each(|_| cost.failed());
        assert_eq!(cost.speed(TYPICAL_MS).cost_ms, 16 * TYPICAL_MS);
        (1..=20).for_each(|n| cost.fade(n * 5000));
        assert_eq!(cost.speed(TYPICAL_MS).cost_ms, TYPICAL_MS);
    }

    #[test]
    fn other_jobs_on_the_node_are_accounted_for() {
        let (mut cost, pairs) = (Cost::default(), PairDurations::default());
        cost.learn(1450, 4, pair("zh:en"), &pairs);
        assert_eq!(cost.learned_ms(), 1000);
    }

    #[test]
    fn a_pair_with_long_jobs_does_not_make_its_nodes_look_slow() {
        let pairs = PairDurations::default();
        let (mut both, mut long_only) = (Cost::default(), Cost::default());
        for n in 0..600 {
            let (name, ms) = [("zh:en", 600), ("ja:en", 200)][n % 2];
            both.learn(ms, 1, pair(name), &pairs);
        }
        for _ in 0..200 {
            long_only.learn(600, 1, pair("zh:en"), &pairs);
        }
        let (both, long_only) = (both.learned_ms() as f64, long_only.learned_ms() as f64);
        assert!((0.8..1.25).contains(&(long_only / both)), "{long_only} and {both}");
    }

    #[test]
    fn another_instance_goes_on_from_what_the_store_knows() {
        let known = after(std::iter::repeat_n(60, 50));
        let told = known.speed(TYPICAL_MS);
        assert_eq!(Cost::from_speed(told).speed(TYPICAL_MS), told);
    }
}
