//! The settings of an instance and their defaults.

use lingua_core::{InstanceId, Policy, Rules};

use crate::tenants::TenantTable;

/// The settings of an instance.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The name of the instance, unique in the fleet.
    pub instance: InstanceId,
    /// The URL under which it is reached, for people.
    pub address: String,
    /// The rules that nodes are chosen by; the store must have the same.
    pub rules: Rules,
    /// How a node is chosen among those that can do a job.
    pub policy: Policy,
    /// From which jobs the last slots of nodes that serve rarer pairs are kept.
    pub keep_last: KeepLast,
    /// Intervals and time limits.
    pub times: Times,
    /// Most attempts after the first.
    pub max_retry: u32,
    /// Limits on memory.
    pub bounds: Bounds,
    /// Limits of the pool table.
    pub pools: PoolOptions,
    /// The rules of the tenants; they may change later.
    pub tenants: TenantTable,
    /// The seed of its random numbers.
    pub seed: u64,
}

impl EngineOptions {
    /// The defaults, for this instance.
    pub fn new(instance: InstanceId, seed: u64) -> Self {
        Self {
            instance,
            address: String::new(),
            rules: Rules::default(),
            policy: Policy::default(),
            keep_last: KeepLast::default(),
            times: Times::default(),
            max_retry: 2,
            bounds: Bounds::default(),
            pools: PoolOptions::default(),
            tenants: TenantTable::default(),
            seed,
        }
    }
}

/// From which jobs last slots are kept (`selection.keep_last`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeepLast {
    /// From those that can still wait for another slot.
    #[default]
    Waiting,
    /// From all, so that a fleet without a queue has slots for its rare pairs, too.
    Always,
}

impl KeepLast {
    /// Whether last slots are kept from a job.
    pub(crate) fn applies(self, can_wait: bool) -> bool {
        can_wait || self == Self::Always
    }
}

/// Intervals and time limits, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// How often a node sends a heartbeat.
    pub heartbeat_ms: u64,
    /// How long a heartbeat counts.
    pub stale_ms: u64,
    /// How long a node has to confirm a job.
    pub ack_ms: u64,
    /// How long the lease of a running job lasts without a heartbeat.
    pub run_lease_ms: u64,
    /// How long a node may work on a job.
    pub run_ms: u64,
    /// How long the leases of the leader and of an instance last.
    pub leader_lease_ms: u64,
    /// How often they are renewed.
    pub leader_renew_ms: u64,
    /// How often expired leases are ended and waiting jobs look for a slot again.
    pub upkeep_ms: u64,
    /// How long the record of a node without heartbeats is kept.
    pub node_record_ms: u64,
    /// How soon changes appear in the pool table.
    pub table_ms: u64,
    /// How often the table and the nodes are read even if the change feed said nothing.
    pub look_ms: u64,
    /// How long a stop waits for running jobs.
    pub drain_ms: u64,
    /// How long speech that a node gave is kept for a client that has not got it.
    pub speech_ms: u64,
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
            look_ms: 10_000,
            drain_ms: 10_000,
            speech_ms: 60_000,
        }
    }
}

/// Limits on memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Most jobs that run or wait at this instance.
    pub live_jobs_max: usize,
    /// Most bytes of those jobs, without audio.
    pub open_bytes_max: usize,
    /// Most bytes of the jobs that wait for a slot, with their audio.
    pub waiting_bytes_max: usize,
    /// Most bytes of audio that clients have sent and whose jobs have not ended.
    pub audio_bytes_max: usize,
    /// Most bytes of results with speech that are kept until they are delivered; the oldest are
    /// dropped first.
    pub speech_bytes_max: usize,
    /// Most bytes of request bodies that are being received.
    pub request_bytes_max: usize,
    /// Most bytes of long responses that their clients have not read.
    pub response_bytes_max: usize,
    /// Most messages that wait for one node; with one more the node is disconnected.
    pub outbox_max: usize,
    /// Most messages that wait for one job.
    pub job_inbox_max: usize,
    /// Most events that a slow watcher may be behind.
    pub events_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            live_jobs_max: 50_000,
            open_bytes_max: 256 << 20,
            waiting_bytes_max: 256 << 20,
            audio_bytes_max: 512 << 20,
            speech_bytes_max: 256 << 20,
            request_bytes_max: 256 << 20,
            response_bytes_max: 256 << 20,
            outbox_max: 256,
            job_inbox_max: 64,
            events_max: 1024,
        }
    }
}

/// Limits of the pool table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolOptions {
    /// Whether the table has pools at all; without them it only counts nodes and slots.
    pub generate: bool,
    /// Whether it has the mixed pools.
    pub mixed: bool,
    /// Exact pools with fewer nodes are left out.
    pub min_nodes_per_pool: usize,
    /// Most exact pools, the largest first.
    pub max_pools: usize,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self { generate: true, mixed: true, min_nodes_per_pool: 1, max_pools: 50 }
    }
}
