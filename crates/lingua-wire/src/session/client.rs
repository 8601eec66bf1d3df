//! What the client of a session says.
//!
//! Start at [`SessionMessage::parse`]. The first message is `session_start` or `session_resume`.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::RequestError;
use crate::json::text;
use crate::limits::TEXT_BYTES_MAX;
use crate::message::{at_most, check_label, frames};

frames! {
    /// A frame from a client to the scheduler.
    pub enum SessionMessage {
        /// It begins.
        Start(SessionStart<'a>),
        /// It comes back.
        Resume(SessionResume<'a>),
        /// Somebody begins to speak.
        TurnStart(TurnStart<'a>),
        /// Somebody has said what there was to say.
        TurnEnd(TurnEnd),
        /// Somebody writes.
        Text(TextTurn<'a>),
        /// It leaves.
        End(SessionEnd),
    }
}

/// A session begins: one way (`src_lang`, `tgt_lang`) or `two_way` (`lang_a`, `lang_b`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "session_start")]
#[schemars(rename = "SessionStart")]
pub struct SessionStart<'a> {
    /// `one_way` (also if it is left out) or `two_way`.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub mode: Option<Cow<'a, str>>,
    /// One way: what is spoken, or `auto`.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub src_lang: Option<Cow<'a, str>>,
    /// One way: what it becomes.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub tgt_lang: Option<Cow<'a, str>>,
    /// Two ways: what speaker `a` speaks, and `b` hears.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub lang_a: Option<Cow<'a, str>>,
    /// Two ways: what speaker `b` speaks, and `a` hears.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub lang_b: Option<Cow<'a, str>>,
    /// The answer has to be spoken; not by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_tts: Option<bool>,
    /// Parts of a text are wanted before it is whole; not by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partials: Option<bool>,
    /// The last two texts go along with each job, so that any node can follow; not by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<bool>,
    /// How audio is coded; `pcm16` with 16,000 samples a second if it is left out.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub audio: Option<AudioFormat<'a>>,
}

/// How the binary frames of a session are coded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AudioFormat<'a> {
    /// `pcm16` (one channel, little-endian) or `opus` (one packet to a frame).
    #[serde(borrow)]
    pub format: Cow<'a, str>,
    /// Samples a second of `pcm16`: 8000, 16000, 24000 or 48000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_rate: Option<u32>,
}

/// A session whose connection broke goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "session_resume")]
#[schemars(rename = "SessionResume")]
pub struct SessionResume<'a> {
    /// Which session.
    #[serde(borrow)]
    pub session_id: Cow<'a, str>,
    /// The secret that came with it.
    #[serde(borrow)]
    pub resume_token: Cow<'a, str>,
    /// The last `seq` that was seen; none if it is left out.
    #[serde(default)]
    pub last_seq: u64,
}

impl SessionResume<'_> {
    pub(crate) fn check_bounds(&self) -> Result<(), RequestError> {
        check_label("session_id", &self.session_id)?;
        check_label("resume_token", &self.resume_token)
    }
}

/// Somebody begins to speak. Without it, the first audio begins a turn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "turn_start")]
#[schemars(rename = "TurnStart")]
pub struct TurnStart<'a> {
    /// `a` or `b`, in a session of two ways; left to the node otherwise.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub speaker: Option<Cow<'a, str>>,
}

/// Somebody has said what there was to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "turn_end")]
#[schemars(rename = "TurnEnd")]
pub struct TurnEnd {}

/// A turn that is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "text")]
#[schemars(rename = "TextTurn")]
pub struct TextTurn<'a> {
    /// What is to be translated.
    #[serde(borrow)]
    pub text: Cow<'a, str>,
    /// `a` or `b`, in a session of two ways.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub speaker: Option<Cow<'a, str>>,
}

impl TextTurn<'_> {
    pub(crate) fn check_bounds(&self) -> Result<(), RequestError> {
        at_most("text", &self.text, TEXT_BYTES_MAX)
    }
}

/// The client leaves: what is open is still delivered, then the socket is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "session_end")]
#[schemars(rename = "SessionEnd")]
pub struct SessionEnd {}
