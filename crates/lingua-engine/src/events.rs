//! Events for clients that watch.

use std::sync::Arc;

use lingua_core::job::JobState;
use lingua_core::{Attempt, Epoch, JobId, NodeId, Term};

/// Something that happened in the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineEvent {
    /// A node registered, left, or changed its state.
    Node {
        /// The name of the node.
        node: NodeId,
        /// Its current epoch.
        epoch: Epoch,
    },
    /// A job changed its state, or its node has a further part of the text.
    Job {
        /// The job.
        job: JobId,
        /// Its current attempt.
        attempt: Attempt,
        /// Its state now.
        state: JobState,
        /// The node of the attempt, if it has one.
        node: Option<NodeId>,
        /// The text so far, if that is what changed.
        text: Option<Arc<str>>,
    },
    /// A new pool table was published.
    Pools {
        /// Its version.
        version: u64,
    },
    /// Another instance leads.
    Leader {
        /// The term of its leadership.
        term: Term,
    },
}
