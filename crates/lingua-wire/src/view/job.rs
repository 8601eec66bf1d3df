//! A job as its client sees it.
//!
//! Start at [`JobView`]: the answer of `GET /v1/jobs/{id}` and of `POST /v1/translate`.

use lingua_core::job::JobState;
use lingua_core::{Attempt, InstanceId, JobId, Lang, NodeId, Source};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::As;
use crate::node::JobResult;
use crate::raw::RawJson;

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobView {
    /// Which job.
    #[serde(with = "As::<JobId>")]
    pub job_id: JobId,
    /// Where it stands.
    #[serde(with = "As::<JobState>")]
    pub state: JobState,
    /// The conversation that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// What is spoken, or `auto`.
    #[serde(with = "As::<Source>")]
    pub src_lang: Source,
    /// What it becomes.
    #[serde(with = "As::<Lang>")]
    pub tgt_lang: Lang,
    /// The node of the current attempt.
    #[serde(with = "As::<Option<NodeId>>", default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// The current attempt.
    #[serde(with = "As::<Attempt>")]
    pub attempt_id: Attempt,
    /// The instance that has it.
    #[serde(with = "As::<Option<InstanceId>>", default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<InstanceId>,
    /// Follows the job through all logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// Every attempt, the first one first.
    #[serde(default)]
    pub attempts: Vec<AttemptView>,
    /// How long things took.
    #[serde(default)]
    pub timings: Timings,
    /// What the node has of the text so far; gone when the attempt is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
    /// What came of it, as the node gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<JobResult<'static>>")]
    pub result: Option<RawJson>,
    /// The code of what went wrong, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What went wrong, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// When it was accepted.
    pub created_ms: u64,
    /// When it last moved.
    pub updated_ms: u64,
    /// When it is too late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at_ms: Option<u64>,
}

/// One try of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptView {
    /// Which try.
    #[serde(with = "As::<Attempt>")]
    pub attempt_id: Attempt,
    /// On which node.
    #[serde(with = "As::<Option<NodeId>>", default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// How far it got, or how it ended.
    #[serde(with = "As::<JobState>")]
    pub state: JobState,
    /// Why it came to nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When a slot was taken for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_ms: Option<u64>,
    /// When it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatched_ms: Option<u64>,
    /// When the node said that it has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acked_ms: Option<u64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
}

/// How long the parts of a job's life took, as far as they are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Timings {
    /// Waiting for a slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_ms: Option<u64>,
    /// From being accepted to being sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch_ms: Option<u64>,
    /// From being sent to the ACK.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_ms: Option<u64>,
    /// From the ACK to the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_ms: Option<u64>,
    /// Altogether.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_ms: Option<u64>,
}

/// The answer of `GET /v1/jobs`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct JobList {
    /// The jobs.
    pub jobs: Vec<JobView>,
    /// Where the next page starts, if there is one.
    #[serde(with = "As::<Option<JobId>>", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<JobId>,
}
