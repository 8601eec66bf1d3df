//! The engine's metrics. Their names are part of the contract with users.
//!
//! Start at [`EngineMetrics`].

use std::sync::atomic::AtomicU64;

use lingua_core::job::{Cause, JobState};
use lingua_core::node::Resource;
use lingua_core::{Load, Thresholds};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::table::{Pool, PoolTable};

/// One label with a value from a fixed list.
pub type Label = [(&'static str, &'static str); 1];

/// Labels that are made at run time; the pool table or the configured tenants bound their number.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// Counters by one label.
pub(crate) type Counts = ByLabel<Counter>;

/// Gauges by one label.
pub(crate) type Gauges = ByLabel<Gauge>;

/// Durations by one label.
pub(crate) type Durations = ByLabel<Histogram>;

/// A metric for each value of a label. All values are known from the start, so that counting needs
/// neither a hash nor a lock, and a value shows as 0 before it first happens.
#[derive(Debug, Clone)]
pub(crate) struct ByLabel<M> {
    family: Family<Label, M, fn() -> M>,
    by_value: Vec<(&'static str, M)>,
}

impl<M: Clone> ByLabel<M> {
    fn new(label: &'static str, values: &[&'static str], constructor: fn() -> M) -> Self {
        let family: Family<Label, M, fn() -> M> = Family::new_with_constructor(constructor);
        let metric = |&value: &&'static str| (value, family.get_or_create_owned(&[(label, value)]));
        let by_value = values.iter().map(metric).collect();
        Self { family, by_value }
    }

    fn get(&self, value: &'static str) -> Option<&M> {
        let found = self.by_value.iter().find(|(known, _)| *known == value);
        debug_assert!(found.is_some(), "{value} is not a value of this label");
        found.map(|(_, metric)| metric)
    }
}

impl Counts {
    pub(crate) fn count(&self, value: &'static str) {
        self.count_many(value, 1);
    }

    pub(crate) fn count_many(&self, value: &'static str, many: u64) {
        if let Some(counter) = self.get(value) {
            counter.inc_by(many);
        }
    }
}

impl<M: Clone + Default> ByLabel<M> {
    /// The metric of one value.
    pub(crate) fn of(&self, value: &'static str) -> M {
        self.get(value).cloned().unwrap_or_default()
    }
}

impl Durations {
    pub(crate) fn observe(&self, value: &'static str, seconds: f64) {
        if let Some(histogram) = self.get(value) {
            histogram.observe(seconds);
        }
    }
}

const ENDS: [JobState; 3] = [JobState::Done, JobState::Failed, JobState::Cancelled];

/// The codes of [`JobFailure`](lingua_core::job::JobFailure).
const FAILURES: [&str; 9] = [
    "NO_CAPABLE_NODE",
    "ALL_CANDIDATES_FULL_OR_FAILED",
    "RATE_LIMITED",
    "PREFERRED_NODE_NOT_CAPABLE",
    "SCHEDULER_DEPENDENCY_DOWN",
    "NODE_FAILED",
    "DEADLINE_EXCEEDED",
    "INSTANCE_LOST",
    "INTERNAL",
];

const RESERVE_OUTCOMES: [&str; 6] = ["granted", "duplicate", "stale", "full", "none", "pin_lost"];
const DISPATCH_OUTCOMES: [&str; 2] = ["sent", "send_failed"];
const BUS_OUTCOMES: [&str; 4] = ["sent", "received", "undelivered", "dropped"];
const STAGES: [&str; 4] = ["queue", "ack", "run", "total"];
const OPERATIONS: [&str; 8] = [
    "claim_key",
    "create_job",
    "advance_job",
    "reserve",
    "commit",
    "finish",
    "register",
    "heartbeat",
];
const HELD_KINDS: [&str; 7] =
    ["open_jobs", "waiting_jobs", "ended_jobs", "audio", "speech", "requests", "responses"];
const BUDGET_KINDS: [&str; 5] = ["open_jobs", "waiting_jobs", "audio", "requests", "responses"];
const REJECTIONS: [&str; 9] = [
    "stale_attempt",
    "stale_epoch",
    "job_over",
    "late_ack",
    "too_slow",
    "stale_partial",
    "partial_dropped",
    "other_owner",
    "too_many",
];

fn counts(label: &'static str, values: &[&'static str]) -> Counts {
    ByLabel::new(label, values, Counter::default)
}

fn gauges(label: &'static str, values: &[&'static str]) -> Gauges {
    ByLabel::new(label, values, Gauge::default)
}

fn durations(label: &'static str, values: &[&'static str]) -> Durations {
    ByLabel::new(label, values, seconds)
}

/// Buckets from 50 µs to 26 s.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_05, 2.0, 20))
}

/// Writes [`EngineMetrics`] and its constructor: `field: Type = name, help, value;`. A metric by
/// label registers its family.
macro_rules! metrics {
    ($($field:ident $(. $part:ident)?: $Type:ty = $name:literal, $help:literal, $value:expr;)*) => {
        /// The engine's metrics.
        #[derive(Debug)]
        pub struct EngineMetrics {
            $(pub(crate) $field: $Type,)*
        }

        impl EngineMetrics {
            /// Makes the metrics in a registry whose prefix is `lingua`.
            pub fn new(registry: &mut Registry) -> Self {
                $(
                    let $field: $Type = $value;
                    registry.register($name, $help, $field $(. $part)? .clone());
                )*
                Self { $($field,)* }.with_aliases(registry)
            }
        }
    };
}

metrics! {
    reserve.family: Counts = "reserve", "Calls that ask a cell for a slot, by outcome",
        counts("outcome", &RESERVE_OUTCOMES);
    dispatch.family: Counts = "dispatch", "Jobs sent to a node, by outcome",
        counts("outcome", &DISPATCH_OUTCOMES);
    dispatch_seconds: Histogram = "dispatch_seconds", "From accepted to sent", seconds();
    ack_timeouts: Counter = "ack_timeout", "ACKs that did not come in time", Counter::default();
    retries.family: Counts = "job_retries", "Attempts that failed, by reason",
        counts("reason", &Cause::ALL.map(Cause::as_str));
    jobs.family: Counts = "jobs", "Ended jobs, by state",
        counts("state", &ENDS.map(JobState::as_str));
    jobs_failed.family: Counts = "jobs_failed", "Failed jobs, by reason",
        counts("reason", &FAILURES);
    job_seconds.family: Durations = "job_seconds", "Time of a job, by stage",
        durations("stage", &STAGES);
    pool_empty: Family<Labels, Counter> = "pool_empty", "Jobs without a capable node, by pair",
        Family::default();
    pool_nodes: Family<Labels, Gauge> = "pool_nodes", "Nodes of a pool, by state",
        Family::default();
    pool_slots: Family<Labels, Gauge> = "pool_slots",
        "Slots of the ready nodes of a pool, all and free", Family::default();
    pools_left_out: Gauge = "pools_left_out",
        "Exact pools that the table leaves out because they are too small or too many",
        Gauge::default();
    overload.family: Counts = "node_overload",
        "Heartbeats of nodes that get no jobs because of their load, by resource",
        counts("resource", &Resource::ALL.map(Resource::as_str));
    overloaded: Family<Label, Gauge> = "nodes_overloaded",
        "Ready nodes that get no jobs because of their load, by resource", Family::default();
    table_lag_seconds: Gauge<f64, AtomicU64> = "pool_table_lag_seconds",
        "Age of the pool table when it was loaded here", Gauge::default();
    store_seconds.family: Durations = "store_seconds", "Time of a call to the store, by operation",
        durations("op", &OPERATIONS);
    queue_jobs: Gauge = "queue_jobs", "Jobs that wait for a slot", Gauge::default();
    held_bytes.family: Gauges = "held_bytes", "Bytes in memory, by what they belong to",
        gauges("kind", &HELD_KINDS);
    bytes_refused.family: Counts = "bytes_refused",
        "What was refused because its kind holds all bytes that it may",
        counts("kind", &BUDGET_KINDS);
    tenant_open_jobs: Family<Labels, Gauge> = "tenant_open_jobs",
        "Jobs that run or wait, by tenant; those that the configuration does not name are `other`",
        Family::default();
    usage_refused: Family<Labels, Counter> = "usage_refused",
        "What was refused because its tenant or token has reached a limit, by tenant and limit",
        Family::default();
    speech_dropped: Counter = "speech_dropped",
        "Results whose speech was dropped before a client got it", Counter::default();
    queue_oldest_seconds: Gauge<f64, AtomicU64> = "queue_oldest_seconds",
        "Age of the oldest job that waits for a slot", Gauge::default();
    node_rejected.family: Counts = "node_rejected", "Refused reports of nodes, by reason",
        counts("reason", &REJECTIONS);
    bus.family: Counts = "bus_messages", "Messages between instances, by outcome",
        counts("outcome", &BUS_OUTCOMES);
    leader: Gauge = "leader", "1 on the leader", Gauge::default();
    leader_changes: Counter = "leader_changes", "Changes of leader seen here", Counter::default();
    table_version: Gauge = "pool_table_version", "Version of the pool table", Gauge::default();
    unreadable_records: Counter = "store_unreadable_records",
        "Records that could not be read and were left out of a list", Counter::default();
    store_up: Gauge = "store_up", "1 while the store answers", Gauge::default();
    nodes: Family<Label, Gauge> = "nodes", "Nodes, by state", Family::default();
    used_slots: Gauge = "node_used_slots", "Slots taken in the fleet", Gauge::default();
    max_slots: Gauge = "node_max_slots", "Slots in the fleet", Gauge::default();
}

impl EngineMetrics {
    /// Registers the two metrics that have a second name.
    fn with_aliases(self, registry: &mut Registry) -> Self {
        if let Some(reserve) = self.store_seconds.get("reserve") {
            let help = "Time of a call that asks for a slot";
            registry.register("reserve_seconds", help, reserve.clone());
        }
        if let Some(queue) = self.job_seconds.get("queue") {
            let help = "How long jobs waited for a slot";
            registry.register("queue_wait_seconds", help, queue.clone());
        }
        self.store_up.set(1);
        self
    }

    /// Records how long a stage of a job took.
    pub(crate) fn stage(&self, stage: &'static str, ms: u64) {
        self.job_seconds.observe(stage, ms as f64 / 1000.0);
    }

    /// Shows each pool of the table. A pool that lost its last node shows zeros for an hour.
    pub(crate) fn show_pools(&self, table: &PoolTable) {
        self.pool_nodes.clear();
        self.pool_slots.clear();
        let empty = table.empty.iter();
        let empty: Vec<Pool> =
            empty.map(|pool| Pool { pair: pool.pair.clone(), ..Pool::default() }).collect();
        for pool in table.pools.iter().chain(&empty) {
            for (family, state, count) in [
                (&self.pool_nodes, "all", pool.nodes),
                (&self.pool_nodes, "ready", pool.ready),
                (&self.pool_slots, "all", pool.slots),
                (&self.pool_slots, "free", pool.free),
            ] {
                let labels = vec![("pair", pool.pair.clone()), ("state", state.to_owned())];
                family.get_or_create(&labels).set(count.into());
            }
        }
        self.pools_left_out.set(table.left_out.into());
    }

    /// Counts a heartbeat whose load keeps jobs away from the node.
    pub(crate) fn count_overload(&self, load: Load, thresholds: Thresholds) {
        for resource in Resource::ALL {
            if thresholds.exceeded(load, resource) {
                self.overload.count(resource.as_str());
            }
        }
    }

    /// Fills the metrics whose labels are made at run time with an example, for their reference.
    pub fn show_example(&self) {
        let pool = Pool { pair: "zh:en".to_owned(), ..Pool::default() };
        let table = PoolTable { pools: vec![pool], ..PoolTable::default() };
        self.show_pools(&table);
        self.show_fleet(&table);
        drop(self.pool_empty.get_or_create(&vec![("pair", "zh:en".to_owned())]));
        let tenant = ("tenant", "default".to_owned());
        drop(self.tenant_open_jobs.get_or_create(&vec![tenant.clone()]));
        let limit = ("limit", "open_jobs".to_owned());
        drop(self.usage_refused.get_or_create(&vec![tenant, limit]));
    }

    /// Shows the nodes and slots of the fleet.
    pub(crate) fn show_fleet(&self, table: &PoolTable) {
        for state in ["registering", "ready", "degraded", "draining", "offline", "stale"] {
            let count = table.nodes.get(state).copied().unwrap_or(0);
            self.nodes.get_or_create(&[("state", state)]).set(count.into());
        }
        for resource in Resource::ALL.map(Resource::as_str) {
            let count = table.overloaded.get(resource).copied().unwrap_or(0);
            self.overloaded.get_or_create(&[("resource", resource)]).set(count.into());
        }
        self.used_slots.set(table.used.into());
        self.max_slots.set(table.slots.into());
    }
}
