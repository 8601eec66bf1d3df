//! What the scheduler says to the client of a session.
//!
//! Start at [`SegmentResult`] and [`Missing`]: each segment ends as one of them, in the order spoken.

use std::borrow::Cow;

use lingua_core::{JobId, Lang, Source};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ErrorMessage;
use crate::audio::Audio;
use crate::json::{As, text};
use crate::message::frames;
use crate::view::Timings;

frames! {
    /// A frame from the scheduler to a client.
    #[expect(clippy::large_enum_variant, reason = "it is looked at once and never kept")]
    pub enum SessionAnswer {
        /// The session has begun, or goes on.
        Started(SessionStarted<'a>),
        /// A segment has become a job.
        Accepted(JobAccepted),
        /// A part of a text.
        Partial(SessionPartial<'a>),
        /// What came of a segment.
        Result(SegmentResult<'a>),
        /// Nothing came of a segment.
        Missing(Missing<'a>),
        /// Something was wrong.
        Error(ErrorMessage<'a>),
    }
}

/// The session has begun, or goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "session_started")]
#[schemars(rename = "SessionStarted")]
pub struct SessionStarted<'a> {
    /// Its name.
    #[serde(borrow)]
    pub session_id: Cow<'a, str>,
    /// The secret with which to come back after the connection broke.
    #[serde(borrow)]
    pub resume_token: Cow<'a, str>,
    /// For how long it may be away.
    #[serde(default)]
    pub resume_ms: u64,
    /// Whether it goes on, rather than begins.
    #[serde(default)]
    pub resumed: bool,
}

impl SessionStarted<'_> {
    /// The same, independent of the frame that it was read from.
    pub fn into_owned(self) -> SessionStarted<'static> {
        SessionStarted {
            session_id: own(self.session_id),
            resume_token: own(self.resume_token),
            resume_ms: self.resume_ms,
            resumed: self.resumed,
        }
    }
}

fn own(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}

/// A segment has become a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "job_accepted")]
#[schemars(rename = "JobAccepted")]
pub struct JobAccepted {
    /// Which turn, from 1.
    pub turn: u32,
    /// Which part of it, from 1.
    pub segment: u32,
    /// Which job.
    #[serde(with = "As::<JobId>")]
    pub job_id: JobId,
}

/// A part of a text; each replaces the one before, and none comes after the whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "partial")]
#[schemars(rename = "SessionPartial")]
pub struct SessionPartial<'a> {
    /// Which turn.
    pub turn: u32,
    /// Which part of it.
    pub segment: u32,
    /// The text so far.
    #[serde(borrow)]
    pub text: Cow<'a, str>,
}

/// What came of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "result")]
#[schemars(rename = "SegmentResult")]
pub struct SegmentResult<'a> {
    /// Its number among all results and missing ones of the session, from 1.
    pub seq: u64,
    /// Which turn.
    pub turn: u32,
    /// Which part of it.
    pub segment: u32,
    /// Which job it was.
    #[serde(with = "As::<JobId>")]
    pub job_id: JobId,
    /// What was spoken; `auto` if nobody could say.
    #[serde(with = "As::<Source>")]
    pub src_lang: Source,
    /// What it became.
    #[serde(with = "As::<Lang>")]
    pub tgt_lang: Lang,
    /// What was said.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub text_asr: Option<Cow<'a, str>>,
    /// What it means in the other language.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub text_translated: Option<Cow<'a, str>>,
    /// The same, spoken: the audio is inside, as base64.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub tts_audio: Option<Audio<'a>>,
    /// How long it took.
    #[serde(default)]
    pub timings: SegmentTimings,
}

impl SegmentResult<'_> {
    /// The same, independent of the frame that it was read from.
    pub fn into_owned(self) -> SegmentResult<'static> {
        SegmentResult {
            seq: self.seq,
            turn: self.turn,
            segment: self.segment,
            job_id: self.job_id,
            src_lang: self.src_lang,
            tgt_lang: self.tgt_lang,
            text_asr: self.text_asr.map(own),
            text_translated: self.text_translated.map(own),
            tts_audio: self.tts_audio.map(Audio::into_owned),
            timings: self.timings,
        }
    }
}

/// How long a segment took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SegmentTimings {
    /// From its first sound to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speech_ms: Option<u64>,
    /// From its end to what came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// The job's own times. A node that listens along has the job from the first sound on.
    #[serde(flatten)]
    pub job: Timings,
}

/// Nothing came of a segment; those after it go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "missing")]
#[schemars(rename = "Missing")]
pub struct Missing<'a> {
    /// Its number among all results and missing ones of the session.
    #[serde(default)]
    pub seq: u64,
    /// Which turn.
    pub turn: u32,
    /// Which part of it.
    pub segment: u32,
    /// Which job it was, if it became one.
    #[serde(with = "As::<Option<JobId>>", default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// The code; a text, so that a client can read codes that are newer than itself.
    #[serde(borrow)]
    pub error: Cow<'a, str>,
    /// What happened and what to do.
    #[serde(borrow)]
    pub detail: Cow<'a, str>,
}

impl Missing<'_> {
    /// The same, independent of the frame that it was read from.
    pub fn into_owned(self) -> Missing<'static> {
        Missing {
            seq: self.seq,
            turn: self.turn,
            segment: self.segment,
            job_id: self.job_id,
            error: own(self.error),
            detail: own(self.detail),
        }
    }
}
