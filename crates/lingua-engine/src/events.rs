//! What happens, for whoever wants to watch.

use std::sync::Arc;

use lingua_core::job::JobState;
use lingua_core::{Attempt, Epoch, JobId, NodeId, Term};

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineEvent {
    /// A node came, went, or is in another state.
    Node {
        /// Who.
        node: NodeId,
        /// Which incarnation.
        epoch: Epoch,
    },
    /// A job moved.
    Job {
        /// Which.
        job: JobId,
        /// Which try.
        attempt: Attempt,
        /// Where to.
        state: JobState,
        /// Its node, if it has one.
        node: Option<NodeId>,
    },
    /// A node has a part of a job's text.
    Partial {
        /// Which job.
        job: JobId,
        /// Which try.
        attempt: Attempt,
        /// Where the job stands.
        state: JobState,
        /// The node.
        node: NodeId,
        /// The text so far.
        text: Arc<str>,
    },
    /// A new pool table is out.
    Pools {
        /// Its version.
        version: u64,
    },
    /// Another instance leads.
    Leader {
        /// In this term.
        term: Term,
    },
}
