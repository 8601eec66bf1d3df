//! What happens, as `GET /v1/events` tells it.
//!
//! Start at [`JobUpdate`]. Each type is the data of the server-sent event that has its [`Message::NAME`]
//! without `_event`.

use lingua_core::job::JobState;
use lingua_core::{Attempt, Epoch, JobId, NodeId, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::As;

/// A node came, went, or is in another state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeUpdate {
    /// Which node.
    #[serde(with = "As::<NodeId>")]
    pub node_id: NodeId,
    /// Number of its incarnation.
    #[serde(with = "As::<Epoch>")]
    pub epoch: Epoch,
}

/// What an event tells of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "JobUpdateKind")]
pub enum JobUpdateKind {
    /// It moved.
    State,
    /// Its node has a part of the text.
    Partial,
}

/// A job moved, or its node has a part of the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobUpdate {
    /// What it tells.
    pub kind: JobUpdateKind,
    /// Which job.
    #[serde(with = "As::<JobId>")]
    pub job_id: JobId,
    /// Which try.
    #[serde(with = "As::<Attempt>")]
    pub attempt_id: Attempt,
    /// Where it stands.
    #[serde(with = "As::<JobState>")]
    pub state: JobState,
    /// Its node, if it has one.
    #[serde(with = "As::<Option<NodeId>>", default)]
    pub node_id: Option<NodeId>,
    /// The text so far, in a partial one. Never sent after the end of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A new pool table is out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolUpdate {
    /// Its version.
    pub table_version: u64,
}

/// Another instance leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaderUpdate {
    /// Number of its reign.
    #[serde(with = "As::<Term>")]
    pub term: Term,
}
