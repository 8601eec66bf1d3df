//! The assignment of a job to a node.
//!
//! Start at [`JobAssign`]. It borrows its texts, because it is written once for every attempt.

use std::borrow::Cow;

use lingua_core::{Attempt, Fence, JobId, Lang, ServiceSet, Source};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::audio::Audio;
use crate::json::{As, BoundedList, text};

/// A job for the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "job_assign")]
#[schemars(rename = "JobAssign")]
pub struct JobAssign<'a> {
    /// The job.
    #[serde(with = "As::<JobId>")]
    pub job_id: JobId,
    /// The try of the job, from 1.
    #[serde(with = "As::<Attempt>")]
    pub attempt_id: Attempt,
    /// Rises with every assignment; a node refuses a fence that is not above the highest it saw.
    #[serde(with = "As::<Fence>")]
    pub fence: Fence,
    /// The conversation that the job belongs to.
    #[serde(borrow)]
    pub session_id: Cow<'a, str>,
    /// Source language, or `auto`.
    #[serde(with = "As::<Source>")]
    pub src_lang: Source,
    /// Target language.
    #[serde(with = "As::<Lang>")]
    pub tgt_lang: Lang,
    /// Address of audio that is stored elsewhere.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub audio_ref: Option<Cow<'a, str>>,
    /// Audio inside the message or in the frames that follow.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub audio: Option<Audio<'a>>,
    /// Text instead of audio: recognition is skipped.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub text: Option<Cow<'a, str>>,
    /// With `auto`: the source is one of these two languages, and the target is the other one.
    #[serde(default, with = "BoundedList::<Lang, 2>", skip_serializing_if = "Option::is_none")]
    pub two_way: Option<Vec<Lang>>,
    /// Earlier texts of this conversation, the oldest first.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<Cow<'a, str>>,
    /// What the client asked for.
    #[serde(default)]
    pub options: AssignOptions,
    /// How many milliseconds are left. A duration and not a moment, because clocks differ.
    #[serde(default)]
    pub deadline_ms: Option<u64>,
    /// The binding that chose this node.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<Bind<'a>>,
    /// Names the job in all logs.
    #[serde(borrow)]
    pub trace_id: Cow<'a, str>,
}

/// The options of the client that the node has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AssignOptions {
    /// The result must include speech.
    pub require_tts: bool,
    /// Further services that the job needs.
    #[serde(with = "As::<ServiceSet>")]
    pub services: ServiceSet,
    /// A higher number is more urgent.
    pub priority: i32,
}

/// Segments with one key go to one node while that is possible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bind<'a> {
    /// The key that the client gave.
    #[serde(borrow)]
    pub bind_key: Cow<'a, str>,
    /// Whether earlier segments ran on another node, so that their context is not here.
    #[serde(default)]
    pub moved: bool,
}

/// The response of `GET /v1/node/{id}/jobs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeJobs<'a> {
    /// Jobs for the node; audio is inside, because no frame can follow.
    #[serde(borrow)]
    pub jobs: Vec<JobAssign<'a>>,
}
