//! How an instance is set up. The defaults are those of the design.

use lingua_core::{InstanceId, Policy, Rules};

/// Everything that can be set.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The instance's name.
    pub instance: InstanceId,
    /// Where people find it.
    pub address: String,
    /// The rules of the fleet; the store must have the same.
    pub rules: Rules,
    /// How a node is chosen.
    pub policy: Policy,
    /// How long things may take.
    pub times: Times,
    /// Most further attempts after the first.
    pub max_retry: u32,
    /// How much there may be.
    pub bounds: Bounds,
    /// What the pool table shows.
    pub pools: PoolOptions,
    /// The seed of its luck.
    pub seed: u64,
}

impl EngineOptions {
    /// The defaults.
    pub fn new(instance: InstanceId, seed: u64) -> Self {
        Self {
            instance,
            address: String::new(),
            rules: Rules::default(),
            policy: Policy::default(),
            times: Times::default(),
            max_retry: 2,
            bounds: Bounds::default(),
            pools: PoolOptions::default(),
            seed,
        }
    }
}

/// How long things may take, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// How often a node gives a sign of life.
    pub heartbeat_ms: u64,
    /// For how long that counts.
    pub stale_ms: u64,
    /// How long a node has to confirm a job.
    pub ack_ms: u64,
    /// How long a running job's lease lasts without a sign of life.
    pub run_lease_ms: u64,
    /// How long a node may work on a job.
    pub run_ms: u64,
    /// How long the leader's and an instance's lease last.
    pub leader_lease_ms: u64,
    /// How often they are renewed.
    pub leader_renew_ms: u64,
    /// How often leases are reaped and waiting jobs looked after.
    pub upkeep_ms: u64,
    /// How long a silent node's record is kept.
    pub node_record_ms: u64,
    /// How soon changes appear in the pool table.
    pub table_ms: u64,
    /// How long a stop waits for running jobs.
    pub drain_ms: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            heartbeat_ms: 5_000,
            stale_ms: 15_000,
            ack_ms: 5_000,
            run_lease_ms: 15_000,
            run_ms: 60_000,
            leader_lease_ms: 9_000,
            leader_renew_ms: 3_000,
            upkeep_ms: 250,
            node_record_ms: 3_600_000,
            table_ms: 500,
            drain_ms: 10_000,
        }
    }
}

/// How much there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Jobs that this instance runs or lets wait at once.
    pub live_jobs_max: usize,
    /// Orders that wait to be sent to one node; one more and the node is too slow to be kept.
    pub outbox_max: usize,
    /// Messages that wait for one job.
    pub job_inbox_max: usize,
    /// Bindings that are remembered.
    pub bindings_max: usize,
    /// Events that a slow watcher may be behind.
    pub events_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            live_jobs_max: 50_000,
            outbox_max: 256,
            job_inbox_max: 64,
            bindings_max: 100_000,
            events_max: 1024,
        }
    }
}

/// What the pool table shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolOptions {
    /// Exact pools with fewer nodes are left out.
    pub min_nodes_per_pool: usize,
    /// At most this many exact pools, the largest first.
    pub max_pools: usize,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self { min_nodes_per_pool: 1, max_pools: 50 }
    }
}
