//! Requests of clients, and the short responses.
//!
//! Start at [`Dispatch`]: the body of `POST /v1/dispatch/f2f`, `/v1/translate` and `/v1/explain`.
//! [`Dispatch::into_spec`] in `client/spec.rs` checks it and fills in what was left out. The long
//! responses are in [`view`](crate::view).

use std::borrow::Cow;

use lingua_core::job::JobState;
use lingua_core::{Attempt, JobId, NodeId, Service};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::audio::Audio;
use crate::json::{As, BoundedList, text};
use crate::limits::{CONTEXT_MAX, EXCLUDE_MAX, SERVICES_MAX};

mod spec;

type ContextList = BoundedList<String, CONTEXT_MAX>;
type ExcludedList = BoundedList<NodeId, EXCLUDE_MAX>;
type ServicesList = BoundedList<Service, SERVICES_MAX>;

/// A request for a job.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Dispatch<'a> {
    /// The conversation that the job belongs to.
    #[serde(borrow, default, deserialize_with = "text")]
    pub session_id: Option<Cow<'a, str>>,
    /// Source language, or `auto`.
    #[serde(borrow)]
    pub src_lang: Cow<'a, str>,
    /// Target language.
    #[serde(borrow)]
    pub tgt_lang: Cow<'a, str>,
    /// Address of audio that is stored elsewhere.
    #[serde(borrow, default, deserialize_with = "text")]
    pub audio_ref: Option<Cow<'a, str>>,
    /// Audio inside the request.
    #[serde(borrow, default)]
    pub audio: Option<Audio<'a>>,
    /// Text instead of audio: recognition is skipped.
    #[serde(borrow, default, deserialize_with = "text")]
    pub text: Option<Cow<'a, str>>,
    /// Names the job in all logs; made up if it is left out.
    #[serde(borrow, default, deserialize_with = "text")]
    pub trace_id: Option<Cow<'a, str>>,
    /// With `auto`: the source is one of these two languages, and the target is the other one.
    #[serde(default, with = "BoundedList::<String, 2>")]
    pub two_way: Option<Vec<String>>,
    /// Earlier texts of this conversation, the oldest first.
    #[serde(default, with = "ContextList")]
    pub context: Option<Vec<String>>,
    /// How the job is to be run.
    pub options: Option<DispatchOptions>,
}

/// How a job is to be run.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DispatchOptions {
    /// Whether the result must include speech (false).
    pub require_tts: Option<bool>,
    /// The node that should run the job.
    #[serde(with = "As::<Option<NodeId>>", default)]
    pub preferred_node_id: Option<NodeId>,
    /// Whether the job fails if the preferred node cannot take it (false).
    pub strict: Option<bool>,
    /// Nodes that must not run the job.
    #[serde(default, with = "ExcludedList")]
    pub exclude_node_ids: Option<Vec<NodeId>>,
    /// Segments with one key go to one node while that is possible.
    pub bind_key: Option<String>,
    /// How long the job may wait for a slot, in milliseconds.
    pub wait_ms: Option<u64>,
    /// How long the job may take altogether, in milliseconds.
    pub deadline_ms: Option<u64>,
    /// A higher number is more urgent (0).
    pub priority: Option<i64>,
    /// Whether any node that accepts public jobs may run the job (true); if false, only nodes of
    /// the caller's own tenant.
    pub public: Option<bool>,
    /// Further services that the node must offer.
    #[serde(default, with = "ServicesList")]
    pub services: Option<Vec<Service>>,
}

/// The response of `POST /v1/dispatch/f2f`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DispatchResponse {
    /// The new job.
    #[serde(with = "As::<JobId>")]
    pub job_id: JobId,
    /// The node that the job was sent to.
    #[serde(with = "As::<NodeId>")]
    pub node_id: NodeId,
    /// The try of the job, from 1.
    #[serde(with = "As::<Attempt>")]
    pub attempt_id: Attempt,
}

/// The response of `POST /v1/jobs/{id}/cancel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CancelResponse {
    /// Always true.
    pub ok: bool,
    /// How the job ended: `CANCELLED`, or another end that came first.
    #[serde(with = "As::<JobState>")]
    pub state: JobState,
}
