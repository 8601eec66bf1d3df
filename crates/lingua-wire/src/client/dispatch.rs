//! A job as a client asks for it.
//!
//! Start at [`Dispatch`]: the body of `POST /v1/dispatch/f2f`, `/v1/translate` and `/v1/explain`.
//! [`Dispatch::into_spec`] checks it and fills in what was left out.

use std::borrow::Cow;

use lingua_core::{NodeId, Service};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::audio::Audio;
use crate::json::{As, List, text};
use crate::limits::{CONTEXT_MAX, EXCLUDE_MAX, SERVICES_MAX};

/// A job to be done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Dispatch<'a> {
    /// The conversation that it belongs to.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Cow<'a, str>>,
    /// What is spoken, or `auto`.
    #[serde(borrow)]
    pub src_lang: Cow<'a, str>,
    /// What it shall become.
    #[serde(borrow)]
    pub tgt_lang: Cow<'a, str>,
    /// Where the audio lies.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub audio_ref: Option<Cow<'a, str>>,
    /// The audio itself.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub audio: Option<Audio<'a>>,
    /// Text instead of audio: nothing has to be recognised.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub text: Option<Cow<'a, str>>,
    /// Follows the job through all logs; one is made up if it is left out.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<Cow<'a, str>>,
    /// With `auto`: it is one of these two languages, and the target is the other one.
    #[serde(default, with = "List::<String, 2>", skip_serializing_if = "Option::is_none")]
    pub two_way: Option<Vec<String>>,
    /// What was said before in this conversation, the oldest first.
    #[serde(
        default,
        with = "List::<String, CONTEXT_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    pub context: Option<Vec<String>>,
    /// Wishes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<DispatchOptions>,
}

/// Wishes about how a job is done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DispatchOptions {
    /// The answer has to be spoken; not by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_tts: Option<bool>,
    /// The node that should do it.
    #[serde(with = "As::<Option<NodeId>>", default, skip_serializing_if = "Option::is_none")]
    pub preferred_node_id: Option<NodeId>,
    /// Rather fail than go to another node than the preferred one; not by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// Nodes that must not do it.
    #[serde(
        default,
        with = "List::<NodeId, EXCLUDE_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    pub exclude_node_ids: Option<Vec<NodeId>>,
    /// Segments with one key go to one node while that is possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind_key: Option<String>,
    /// How long it may wait for a slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// How long it may take altogether.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// More is more urgent; 0 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// Further services that the node must have.
    #[serde(
        default,
        with = "List::<Service, SERVICES_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    pub services: Option<Vec<Service>>,
}
