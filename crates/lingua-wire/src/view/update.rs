//! The events of `GET /v1/events`.
//!
//! Start at [`JobUpdate`]. Each type is the data of the server-sent event that has its name without
//! `_update`.

use lingua_core::job::JobState;
use lingua_core::{Attempt, Epoch, JobId, NodeId, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::As;

/// A node registered, left, or changed its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeUpdate {
    /// The node that changed; `GET /v1/nodes/{id}` has its state.
    #[serde(with = "As::<NodeId>")]
    pub node_id: NodeId,
    /// Number of the node's incarnation.
    #[serde(with = "As::<Epoch>")]
    pub epoch: Epoch,
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

/// A job changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobUpdate {
    /// What changed.
    pub kind: JobUpdateKind,
    /// The job.
    #[serde(with = "As::<JobId>")]
    pub job_id: JobId,
    /// The current attempt.
    #[serde(with = "As::<Attempt>")]
    pub attempt_id: Attempt,
    /// The state of the job now.
    #[serde(with = "As::<JobState>")]
    pub state: JobState,
    /// The node of the current attempt, if there is one.
    #[serde(with = "As::<Option<NodeId>>", default)]
    pub node_id: Option<NodeId>,
    /// The text so far, if `kind` is `partial`. Never sent after the end of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The leader published a new pool table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolUpdate {
    /// Version of the new table.
    pub table_version: u64,
}

/// Another instance became the leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaderUpdate {
    /// Number of the new leader's term.
    #[serde(with = "As::<Term>")]
    pub term: Term,
}
