//! What happens, as `GET /v1/events` tells it.
//!
//! Start at [`JobEvent`]. Each type is the data of the server-sent event that has its [`Message::NAME`]
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
pub struct NodeEvent {
    /// Which node.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<NodeId>")]
    pub node_id: NodeId,
    /// Number of its incarnation.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<Epoch>")]
    pub epoch: Epoch,
}

impl Message for NodeEvent {
    const NAME: &'static str = "node_event";
}

/// What an event tells of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "JobEventKind")]
pub enum JobEventKind {
    /// It moved.
    State,
    /// Its node has a part of the text.
    Partial,
}

/// A job moved, or its node has a part of the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobEvent {
    /// What it tells.
    pub kind: JobEventKind,
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

impl Message for JobEvent {
    const NAME: &'static str = "job_event";
}

/// A new pool table is out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolEvent {
    /// Its version.
    pub table_version: u64,
}

impl Message for PoolEvent {
    const NAME: &'static str = "pool_event";
}

/// Another instance leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaderEvent {
    /// Number of its reign.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<Term>")]
    pub term: Term,
}

impl Message for LeaderEvent {
    const NAME: &'static str = "leader_event";
}
