//! The settings of an instance and their defaults.

use lingua_core::{InstanceId, Policy, Rules, named_enum, with_defaults};

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

named_enum! {
    /// From which jobs last slots are kept (`selection.keep_last`).
    #[derive(Default)]
    pub enum KeepLast {
        /// From those that can still wait for another slot.
        #[default]
        Waiting = "waiting",
        /// From all, so that a fleet without a queue has slots for its rare pairs, too.
        Always = "always",
    }
}

impl KeepLast {
    /// Whether last slots are kept from a job.
    pub(crate) fn applies(self, can_wait: bool) -> bool {
        can_wait || self == Self::Always
    }
}

with_defaults! {
    /// Intervals and time limits, in milliseconds.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Times {
        /// How often a node sends a heartbeat.
        pub heartbeat_ms: u64 = 5_000,
        /// How long a heartbeat counts.
        pub stale_ms: u64 = 15_000,
        /// How long a node has to confirm a job.
        pub ack_ms: u64 = 5_000,
        /// How long the lease of a running job lasts without a heartbeat.
        pub run_lease_ms: u64 = 15_000,
        /// How long a node may work on a job.
        pub run_ms: u64 = 60_000,
        /// How long the leases of the leader and of an instance last.
        pub leader_lease_ms: u64 = 9_000,
        /// How often they are renewed.
        pub leader_renew_ms: u64 = 3_000,
        /// How often expired leases are ended and waiting jobs look for a slot again.
        pub upkeep_ms: u64 = 250,
        /// How long the record of a node without heartbeats is kept.
        pub node_record_ms: u64 = 3_600_000,
        /// How soon changes appear in the pool table.
        pub table_ms: u64 = 500,
        /// How often the table and the nodes are read even if the change feed said nothing.
        pub look_ms: u64 = 10_000,
        /// How long a stop waits for running jobs.
        pub drain_ms: u64 = 10_000,
        /// How long speech that a node gave is kept for a client that has not got it.
        pub speech_ms: u64 = 60_000,
    }
}

with_defaults! {
    /// Limits on memory.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Bounds {
        /// Most jobs that run or wait at this instance.
        pub live_jobs_max: usize = 50_000,
        /// Most bytes of those jobs, without audio.
        pub open_bytes_max: usize = 256 << 20,
        /// Most bytes of the jobs that wait for a slot, with their audio.
        pub waiting_bytes_max: usize = 256 << 20,
        /// Most bytes of audio that clients have sent and whose jobs have not ended.
        pub audio_bytes_max: usize = 512 << 20,
        /// Most bytes of results with speech that are kept until they are delivered; the oldest are
        /// dropped first.
        pub speech_bytes_max: usize = 256 << 20,
        /// Most bytes of request bodies that are being received.
        pub request_bytes_max: usize = 256 << 20,
        /// Most bytes of long responses that their clients have not read.
        pub response_bytes_max: usize = 256 << 20,
        /// Most messages that wait for one node; with one more the node is disconnected.
        pub outbox_max: usize = 256,
        /// Most messages that wait for one job.
        pub job_inbox_max: usize = 64,
        /// Most events that a slow watcher may be behind.
        pub events_max: usize = 1024,
    }
}

with_defaults! {
    /// Limits of the pool table.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct PoolOptions {
        /// Whether the table has pools at all; without them it only counts nodes and slots.
        pub generate: bool = true,
        /// Whether it has the mixed pools.
        pub mixed: bool = true,
        /// Exact pools with fewer nodes are left out.
        pub min_nodes_per_pool: usize = 1,
        /// Most exact pools, the largest first.
        pub max_pools: usize = 50,
    }
}
