//! The events of `GET /v1/events`.
//!
//! Start at [`JobUpdate`]. Each type is the data of the server-sent event that has its name without
//! `_update`.

use lingua_core::job::JobState;
use lingua_core::{Attempt, Epoch, JobId, NodeId, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::wire_types::wire_types;

wire_types! {
    /// A node registered, left, or changed its state.
    pub struct NodeUpdate {
        /// The node that changed; `GET /v1/nodes/{id}` has its state.
        pub node_id: NodeId,
        /// Number of the node's incarnation.
        pub epoch: Epoch,
    }

    /// A job changed.
    pub struct JobUpdate {
        /// Which step of the job this is.
        pub kind: JobUpdateKind,
        /// The job that took the step.
        pub job_id: JobId,
        /// The current attempt.
        pub attempt_id: Attempt,
        /// The state of the job now.
        pub state: JobState,
        /// The node of the current attempt, if there is one.
        #[serialize_always]
        pub node_id: Option<NodeId>,
        /// The text so far, if `kind` is `partial`. Never sent after the end of the job.
        pub text: Option<String>,
    }

    /// The leader published a new pool table.
    pub struct PoolUpdate {
        /// Version of the new table.
        pub table_version: u64,
    }

    /// Another instance became the leader.
    pub struct LeaderUpdate {
        /// Number of the new leader's term.
        pub term: Term,
    }
}

/// What changed about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "JobUpdateKind")]
pub enum JobUpdateKind {
    /// Its state or its node.
    State,
    /// Its partial text.
    Partial,
}
