//! What is counted, by the names of the contract.

use lingua_core::job::{Cause, JobState};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// One label with a value from a fixed list.
pub type Label = [(&'static str, &'static str); 1];

/// Labels that are made at run time; their number is bounded by the pool table.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// Counts by one label.
pub(crate) type Counts = ByLabel<Counter, fn() -> Counter>;

/// Durations by one label.
pub(crate) type Durations = ByLabel<Histogram, fn() -> Histogram>;

/// A metric for each value of a label. All values are known from the start: each has a place of its own,
/// so that counting needs neither a hash nor a lock, and shows as 0 before it happens.
#[derive(Debug)]
pub(crate) struct ByLabel<M, C> {
    family: Family<Label, M, C>,
    by_value: Vec<(&'static str, M)>,
}

impl<M: Clone, C: MetricConstructor<M>> ByLabel<M, C> {
    fn new(name: &'static str, values: &[&'static str], constructor: C) -> Self {
        let family = Family::new_with_constructor(constructor);
        let place = |&value: &&'static str| (value, family.get_or_create_owned(&[(name, value)]));
        let by_value = values.iter().map(place).collect();
        Self { family, by_value }
    }

    fn get(&self, value: &'static str) -> Option<&M> {
        let same = |known: &str| known.len() == value.len() && known == value;
        let found = self.by_value.iter().find(|(known, _)| same(known));
        debug_assert!(found.is_some(), "{value} is not on the list");
        found.map(|(_, metric)| metric)
    }
}

impl Counts {
    pub(crate) fn count_many(&self, value: &'static str, many: u64) {
        if let Some(counter) = self.get(value) {
            counter.inc_by(many);
        }
    }

    pub(crate) fn count(&self, value: &'static str) {
        if let Some(counter) = self.get(value) {
            counter.inc();
        }
    }
}

impl Durations {
    pub(crate) fn observe(&self, value: &'static str, seconds: f64) {
        if let Some(histogram) = self.get(value) {
            histogram.observe(seconds);
        }
    }
}

/// How a job can end.
const ENDS: [JobState; 3] = [JobState::Done, JobState::Failed, JobState::Cancelled];

/// What asking a cell for a slot can come to.
const RESERVE_OUTCOMES: [&str; 6] = ["granted", "duplicate", "stale", "full", "none", "pin_lost"];

/// What sending a job can come to.
const DISPATCH_OUTCOMES: [&str; 2] = ["sent", "send_failed"];

/// Why a word of a node does not count.
const REJECTIONS: [&str; 7] = [
    "stale_attempt",
    "stale_epoch",
    "job_over",
    "late_ack",
    "too_slow",
    "stale_partial",
    "partial_dropped",
];

/// What becomes of messages between instances.
const BUS: [&str; 4] = ["sent", "received", "undelivered", "dropped"];

/// The stages of a job that are timed.
const STAGES: [&str; 4] = ["queue", "ack", "run", "total"];

/// The calls to the store that are timed.
const OPERATIONS: [&str; 7] =
    ["create_job", "advance_job", "reserve", "commit", "finish", "register", "heartbeat"];

/// 50 µs to 26 s.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_05, 2.0, 20))
}

/// The engine's metrics.
#[derive(Debug)]
pub struct EngineMetrics {
    pub(crate) reserve: Counts,
    reserve_seconds: Histogram,
    pub(crate) dispatch: Counts,
    pub(crate) dispatch_seconds: Histogram,
    pub(crate) ack_timeouts: Counter,
    pub(crate) retries: Counts,
    pub(crate) jobs: Counts,
    pub(crate) job_seconds: Durations,
    pub(crate) pool_empty: Family<Labels, Counter>,
    pub(crate) pool_nodes: Family<Labels, Gauge>,
    pub(crate) table_lag_seconds: Gauge<f64, std::sync::atomic::AtomicU64>,
    pub(crate) store_seconds: Durations,
    pub(crate) queue_jobs: Gauge,
    queue_wait_seconds: Histogram,
    pub(crate) node_rejected: Counts,
    pub(crate) bus: Counts,
    pub(crate) leader: Gauge,
    pub(crate) leader_changes: Counter,
    pub(crate) table_version: Gauge,
    pub(crate) store_up: Gauge,
    pub(crate) nodes: Family<Label, Gauge>,
    pub(crate) used_slots: Gauge,
    pub(crate) max_slots: Gauge,
}

impl EngineMetrics {
    /// Makes them and puts them into a registry whose prefix is `lingua`.
    pub fn new(registry: &mut Registry) -> Self {
        let store_seconds = Durations::new("op", &OPERATIONS, seconds);
        let job_seconds = Durations::new("stage", &STAGES, seconds);
        // The same under two names.
        let reserve_seconds = store_seconds.get("reserve").cloned().unwrap_or_else(seconds);
        let queue_wait_seconds = job_seconds.get("queue").cloned().unwrap_or_else(seconds);
        let metrics = Self {
            reserve: Counts::new("outcome", &RESERVE_OUTCOMES, Counter::default),
            reserve_seconds,
            dispatch: Counts::new("outcome", &DISPATCH_OUTCOMES, Counter::default),
            dispatch_seconds: seconds(),
            ack_timeouts: Counter::default(),
            retries: Counts::new("reason", &Cause::ALL.map(Cause::as_str), Counter::default),
            jobs: Counts::new("state", &ENDS.map(JobState::as_str), Counter::default),
            job_seconds,
            pool_empty: Family::default(),
            pool_nodes: Family::default(),
            table_lag_seconds: Gauge::default(),
            store_seconds,
            queue_jobs: Gauge::default(),
            queue_wait_seconds,
            node_rejected: Counts::new("reason", &REJECTIONS, Counter::default),
            bus: Counts::new("outcome", &BUS, Counter::default),
            leader: Gauge::default(),
            leader_changes: Counter::default(),
            table_version: Gauge::default(),
            store_up: Gauge::default(),
            nodes: Family::default(),
            used_slots: Gauge::default(),
            max_slots: Gauge::default(),
        };
        metrics.register(registry);
        metrics.store_up.set(1);
        metrics
    }

    fn register(&self, r: &mut Registry) {
        r.register("reserve", "Asked a cell for a slot, by outcome", self.reserve.family.clone());
        r.register("reserve_seconds", "Time of one such call", self.reserve_seconds.clone());
        r.register("dispatch", "Jobs sent to a node, by outcome", self.dispatch.family.clone());
        r.register("dispatch_seconds", "From accepted to sent", self.dispatch_seconds.clone());
        r.register("ack_timeout", "Nodes did not confirm in time", self.ack_timeouts.clone());
        r.register(
            "job_retries",
            "Attempts that came to nothing, by reason",
            self.retries.family.clone(),
        );
        r.register("jobs", "Jobs ended, by state", self.jobs.family.clone());
        r.register("job_seconds", "Time of a job, by stage", self.job_seconds.family.clone());
        r.register("pool_empty", "Jobs that no node could serve, by pair", self.pool_empty.clone());
        r.register("pool_nodes", "Nodes of a pool, by state", self.pool_nodes.clone());
        let lag = self.table_lag_seconds.clone();
        r.register("pool_table_lag_seconds", "From published to in force here", lag);
        r.register(
            "store_seconds",
            "Time of a call to the store",
            self.store_seconds.family.clone(),
        );
        r.register("queue_jobs", "Jobs that wait for a slot", self.queue_jobs.clone());
        r.register("queue_wait_seconds", "How long they waited", self.queue_wait_seconds.clone());
        r.register(
            "node_rejected",
            "Words of nodes not taken, by reason",
            self.node_rejected.family.clone(),
        );
        r.register("bus_messages", "Messages between instances", self.bus.family.clone());
        r.register("leader", "1 on the leader", self.leader.clone());
        r.register("leader_changes", "Changes of leader seen here", self.leader_changes.clone());
        r.register(
            "pool_table_version",
            "Version of the table in force",
            self.table_version.clone(),
        );
        r.register("store_up", "1 while the store answers", self.store_up.clone());
        r.register("nodes", "Nodes, by state", self.nodes.clone());
        r.register("node_used_slots", "Slots taken in the fleet", self.used_slots.clone());
        r.register("node_max_slots", "Slots in the fleet", self.max_slots.clone());
    }

    /// Notes how long a stage of a job took.
    pub(crate) fn stage(&self, stage: &'static str, ms: u64) {
        self.job_seconds.observe(stage, ms as f64 / 1000.0);
    }
}
