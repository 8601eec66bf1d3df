//! Events for clients that watch.

use std::sync::Arc;

use lingua_core::job::JobState;
use lingua_core::{Attempt, Epoch, JobId, NodeId, Tenant, Term};

/// Something that happened in the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum EngineEvent {
    /// A node registered, left, or changed its state.
    Node { node: NodeId, epoch: Epoch },
    /// A job changed its state, or its node has a further part of the text.
    Job {
        /// The job that the event is about.
        job: JobId,
        /// Whose job it is.
        tenant: Tenant,
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
    Pools { version: u64 },
    /// Another instance leads.
    Leader { term: Term },
}
