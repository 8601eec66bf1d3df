//! A job as a client asks for it.
//!
//! Start at [`Dispatch`]: the body of `POST /v1/dispatch/f2f`, `/v1/translate` and `/v1/explain`.
//! [`Dispatch::into_order`] and [`Dispatch::into_ask`] check it and fill in what was left out.

use std::borrow::Cow;

use lingua_core::{NodeId, Service};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::audio::Audio;
use crate::limits::{CONTEXT_MAX, EXCLUDE_MAX, SERVICES_MAX};
use crate::message::Message;
use crate::schema::Shown;
use crate::{plain, text};

/// A job to be done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Dispatch<'a> {
    /// The conversation that it belongs to.
    #[serde(
        borrow,
        default,
        deserialize_with = "text::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub session_id: Option<Cow<'a, str>>,
    /// What is spoken, or `auto`.
    #[serde(borrow)]
    pub src_lang: Cow<'a, str>,
    /// What it shall become.
    #[serde(borrow)]
    pub tgt_lang: Cow<'a, str>,
    /// Where the audio lies.
    #[serde(
        borrow,
        default,
        deserialize_with = "text::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub audio_ref: Option<Cow<'a, str>>,
    /// The audio itself.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub audio: Option<Audio<'a>>,
    /// Text instead of audio: nothing has to be recognised.
    #[serde(
        borrow,
        default,
        deserialize_with = "text::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub text: Option<Cow<'a, str>>,
    /// Follows the job through all logs; one is made up if it is left out.
    #[serde(
        borrow,
        default,
        deserialize_with = "text::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub trace_id: Option<Cow<'a, str>>,
    /// With `auto`: it is one of these two languages, and the target is the other one.
    #[serde(
        default,
        deserialize_with = "plain::bounded::<_, _, 2>",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 2))]
    pub two_way: Option<Vec<String>>,
    /// What was said before in this conversation, the oldest first.
    #[serde(
        default,
        deserialize_with = "plain::bounded::<_, _, CONTEXT_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = CONTEXT_MAX))]
    pub context: Option<Vec<String>>,
    /// Wishes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<DispatchOptions>,
}

impl Message for Dispatch<'_> {
    const NAME: &'static str = "dispatch";
}

/// Wishes about how a job is done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DispatchOptions {
    /// The answer has to be spoken; not by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_tts: Option<bool>,
    /// The node that should do it.
    #[serde(with = "plain::option", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Shown<NodeId>>")]
    pub preferred_node_id: Option<NodeId>,
    /// Rather fail than go to another node than the preferred one; not by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// Nodes that must not do it.
    #[serde(
        default,
        serialize_with = "plain::list::serialize",
        deserialize_with = "plain::list::deserialize::<_, _, EXCLUDE_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<Vec<Shown<NodeId>>>", length(max = EXCLUDE_MAX))]
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
        serialize_with = "plain::list::serialize",
        deserialize_with = "plain::list::deserialize::<_, _, SERVICES_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<Vec<Shown<Service>>>", length(max = SERVICES_MAX))]
    pub services: Option<Vec<Service>>,
}
