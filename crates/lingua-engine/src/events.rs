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
    /// A job changed its state.
    Job {
        /// The job.
        job: JobId,
        /// Its current attempt.
        attempt: Attempt,
        /// Its new state.
        state: JobState,
        /// The node of the attempt, if it has one.
        node: Option<NodeId>,
    },
    /// A node has a partial text of a job.
    Partial {
        /// The job.
        job: JobId,
        /// The attempt that the text is from.
        attempt: Attempt,
        /// The job's state.
        state: JobState,
        /// The node that sent the text.
        node: NodeId,
        /// The text so far.
        text: Arc<str>,
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
