//! The calls of the server: for clients, nodes and operators.
//!
//! Start at [`Handle::submit`] for a job and at [`Handle::register`] for a node.

mod jobs;
mod nodes;
mod operators;
mod reports;

use std::sync::Arc;

use lingua_store::Store;
use tokio::sync::broadcast;

use crate::clock::Timer;
use crate::events::EngineEvent;
use crate::options::EngineOptions;
use crate::state::EngineState;

pub use jobs::{Submitted, Waited};
pub(crate) use nodes::changed_profile;
pub use nodes::{HeartbeatResult, NodeHeartbeat, NodeRegistration, RegisteredNode};
pub use operators::{Cluster, NodeExplanation};
pub use reports::PARTIAL_BYTES_MAX;

/// An instance, as the server sees it. Clones are the same instance.
#[derive(Debug)]
pub struct Handle<S, T> {
    pub(crate) shared: Arc<EngineState<S, T>>,
}

impl<S, T> Clone for Handle<S, T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Store, T: Timer> Handle<S, T> {
    /// The settings of this instance.
    pub fn options(&self) -> &EngineOptions {
        &self.shared.options
    }

    /// The time, in milliseconds since the epoch.
    pub fn now_ms(&self) -> u64 {
        self.shared.now_ms()
    }

    /// The events from now on.
    pub fn events(&self) -> broadcast::Receiver<EngineEvent> {
        self.shared.events.subscribe()
    }

    /// How many nodes are connected here.
    pub fn connected_nodes(&self) -> usize {
        self.shared.nodes.len()
    }

    /// How many jobs are open here.
    pub fn open_jobs(&self) -> usize {
        self.shared.live.len()
    }

    /// Whether the store can be written. One that is full or has become a replica can only be read.
    pub async fn is_ready(&self) -> bool {
        if self.shared.is_stopping() {
            return false;
        }
        let ready = self.announce_presence().await.is_ok();
        self.shared.metrics.store_up.set(i64::from(ready));
        ready
    }
}
