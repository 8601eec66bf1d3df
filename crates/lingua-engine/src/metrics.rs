//! What is counted, by the names of the contract.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// One label with a value from a fixed list.
pub type Label = [(&'static str, &'static str); 1];

/// Counts by one label.
pub type Counts = Family<Label, Counter>;

/// Labels that are made at run time; their number is bounded by the pool table.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// Durations by one label.
pub(crate) type Durations = Family<Label, Histogram, fn() -> Histogram>;

/// 50 µs to 26 s.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_05, 2.0, 20))
}

/// The engine's metrics.
#[derive(Debug)]
pub struct Metrics {
    pub(crate) reserve: Counts,
    pub(crate) reserve_seconds: Histogram,
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
    pub(crate) queue_wait_seconds: Histogram,
    pub(crate) node_rejected: Counts,
    pub(crate) leader: Gauge,
    pub(crate) leader_changes: Counter,
    pub(crate) table_version: Gauge,
    pub(crate) store_up: Gauge,
    pub(crate) nodes: Family<Label, Gauge>,
    pub(crate) used_slots: Gauge,
    pub(crate) max_slots: Gauge,
}

impl Metrics {
    /// Makes them and puts them into a registry whose prefix is `lingua`.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            reserve: Counts::default(),
            reserve_seconds: seconds(),
            dispatch: Counts::default(),
            dispatch_seconds: seconds(),
            ack_timeouts: Counter::default(),
            retries: Counts::default(),
            jobs: Counts::default(),
            job_seconds: Durations::new_with_constructor(seconds),
            pool_empty: Family::default(),
            pool_nodes: Family::default(),
            table_lag_seconds: Gauge::default(),
            store_seconds: Durations::new_with_constructor(seconds),
            queue_jobs: Gauge::default(),
            queue_wait_seconds: seconds(),
            node_rejected: Counts::default(),
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
        r.register("reserve", "Asked a cell for a slot, by outcome", self.reserve.clone());
        r.register("reserve_seconds", "Time of one such call", self.reserve_seconds.clone());
        r.register("dispatch", "Jobs sent to a node, by outcome", self.dispatch.clone());
        r.register("dispatch_seconds", "From accepted to sent", self.dispatch_seconds.clone());
        r.register("ack_timeout", "Nodes did not confirm in time", self.ack_timeouts.clone());
        r.register("job_retries", "Attempts that came to nothing, by reason", self.retries.clone());
        r.register("jobs", "Jobs ended, by state", self.jobs.clone());
        r.register("job_seconds", "Time of a job, by stage", self.job_seconds.clone());
        r.register("pool_empty", "Jobs that no node could serve, by pair", self.pool_empty.clone());
        r.register("pool_nodes", "Nodes of a pool, by state", self.pool_nodes.clone());
        let lag = self.table_lag_seconds.clone();
        r.register("pool_table_lag_seconds", "From published to in force here", lag);
        r.register("store_seconds", "Time of a call to the store", self.store_seconds.clone());
        r.register("queue_jobs", "Jobs that wait for a slot", self.queue_jobs.clone());
        r.register("queue_wait_seconds", "How long they waited", self.queue_wait_seconds.clone());
        r.register(
            "node_rejected",
            "Words of nodes not taken, by reason",
            self.node_rejected.clone(),
        );
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
        self.job_seconds.get_or_create(&[("stage", stage)]).observe(ms as f64 / 1000.0);
    }

    pub(crate) fn count(counts: &Counts, name: &'static str, value: &'static str) {
        counts.get_or_create(&[(name, value)]).inc();
    }
}
