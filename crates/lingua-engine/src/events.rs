//! What happens, for whoever wants to watch.

use lingua_core::job::JobState;
use lingua_core::{Epoch, JobId, NodeId, Term};

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
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
        /// Where to.
        state: JobState,
        /// Its node, if it has one.
        node: Option<NodeId>,
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
