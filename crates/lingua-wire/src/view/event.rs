//! What happens, as `GET /v1/events` tells it.
//!
//! Start at [`JobUpdate`]. Each type is the data of the server-sent event that has its [`Message::NAME`]
//! without `_event`.

use lingua_core::job::JobState;
use lingua_core::{Attempt, Epoch, JobId, NodeId, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::message::Message;
use crate::plain;
use crate::schema::Shown;

/// A node came, went, or is in another state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeUpdate {
    /// Which node.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<NodeId>")]
    pub node_id: NodeId,
    /// Number of its incarnation.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<Epoch>")]
    pub epoch: Epoch,
}

impl Message for NodeUpdate {
    const NAME: &'static str = "node_update";
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
    #[serde(with = "plain")]
    #[schemars(with = "Shown<JobId>")]
    pub job_id: JobId,
    /// Which try.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<Attempt>")]
    pub attempt_id: Attempt,
    /// Where it stands.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<JobState>")]
    pub state: JobState,
    /// Its node, if it has one.
    #[serde(with = "plain::option", default)]
    #[schemars(with = "Option<Shown<NodeId>>")]
    pub node_id: Option<NodeId>,
    /// The text so far, in a partial one. Never sent after the end of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl Message for JobUpdate {
    const NAME: &'static str = "job_update";
}

/// A new pool table is out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolUpdate {
    /// Its version.
    pub table_version: u64,
}

impl Message for PoolUpdate {
    const NAME: &'static str = "pool_update";
}

/// Another instance leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaderUpdate {
    /// Number of its reign.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<Term>")]
    pub term: Term,
}

impl Message for LeaderUpdate {
    const NAME: &'static str = "leader_update";
}
