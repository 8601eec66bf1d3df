//! The calls of the server: for clients, nodes and operators.
//!
//! Start at [`Engine::submit`] for a job and at [`Engine::register`] for a node.

mod erase;
mod heartbeats;
mod job_keys;
mod job_list;
mod jobs;
mod nodes;
mod operators;
mod reports;

use std::sync::Arc;

use lingua_store::Store;
use tokio::sync::broadcast;

use crate::events::EngineEvent;
use crate::usage_limit::UsageLimiter;
use crate::{Engine, EngineOptions, Timer};

pub use crate::choice::{JobExplanation, NodeExplanation};
pub use erase::ErasedJobs;
pub(crate) use heartbeats::changed_profile;
pub use heartbeats::{HeartbeatResult, NodeHeartbeat};
pub(crate) use job_list::label_of;
pub use jobs::{Submitted, Waited};
pub use nodes::NodeRegistration;
pub use operators::{Cluster, Known};
pub use reports::PARTIAL_BYTES_MAX;

/// An instance, as the server sees it. Clones are the same instance.
pub type Handle<S, T> = Arc<Engine<S, T>>;

impl<S: Store, T: Timer> Engine<S, T> {
    /// The settings of this instance.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// What tenants and tokens use, and may use.
    pub fn usage_limiter(&self) -> &UsageLimiter {
        &self.usage
    }

    /// The time, in milliseconds since the epoch.
    pub fn now_ms(&self) -> u64 {
        self.timer.now_ms()
    }

    /// The events from now on.
    pub fn events(&self) -> broadcast::Receiver<EngineEvent> {
        self.events.subscribe()
    }

    /// How many nodes are connected here.
    pub fn connected_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// How many jobs are open here.
    pub fn open_jobs(&self) -> usize {
        self.live.len()
    }

    /// Whether the store can be written. One that is full or has become a replica can only be read.
    pub async fn is_ready(&self) -> bool {
        if self.is_stopping() {
            return false;
        }
        let ready = self.announce_presence().await.is_ok();
        self.metrics.store_up.set(i64::from(ready));
        ready
    }
}
