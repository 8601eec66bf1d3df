//! Messages from the scheduler to the client of a session.
//!
//! Start at [`SegmentResult`] and [`SegmentMissing`]: each segment ends as one of them, in the
//! order spoken.

use std::borrow::Cow;

use lingua_core::{JobId, Lang, LangPair, Source};

use crate::audio::Audio;
use crate::message::frames;
use crate::scheduler::ErrorMessage;
use crate::view::Timings;
use crate::wire_types::wire_types;

frames! {
    /// A text frame from the scheduler to a client.
    #[expect(clippy::large_enum_variant, reason = "it is matched once and never stored")]
    #[expect(missing_docs, reason = "each variant holds the message of its name")]
    pub enum SessionUpdate {
        Started(SessionStarted),
        Accepted(JobAccepted),
        Partial(SessionPartial),
        Result(SegmentResult<'a>),
        Missing(SegmentMissing),
        Error(ErrorMessage<'a>),
    }
}

wire_types! {
    /// The session has started, or is resumed.
    #[derive(Default)]
    #[serde(tag = "type", rename = "session_started")]
    pub struct SessionStarted {
        /// For `session_resume`.
        pub session_id: String,
        /// The secret for `session_resume`.
        pub resume_token: String,
        /// How long after its connection broke the session can be resumed.
        #[serde(default)]
        pub resume_ms: u64,
        /// True if the client resumed a session.
        #[serde(default)]
        pub resumed: bool,
        /// After a resume: how much sound of the open turn had arrived, in milliseconds. 0 if no
        /// turn is open, because it ended, or because another instance has taken the session over.
        pub received_ms: Option<u64>,
        /// After a resume: how many turns the session has had. Later ones have not arrived.
        pub turns: Option<u32>,
        /// After a resume: whether the last of these turns is still open.
        pub turn_open: Option<bool>,
        /// What will not work now, for people: no node serves the languages.
        pub warning: Option<String>,
    }

    /// A segment has become a job.
    #[derive(Copy)]
    #[serde(tag = "type", rename = "job_accepted")]
    pub struct JobAccepted {
        /// Counts from 1 within the session.
        pub turn: u32,
        /// Counts from 1 within the turn.
        pub segment: u32,
        /// The job's id, for `/v1/jobs/{job_id}`.
        pub job_id: JobId,
    }

    /// A partial text; it replaces the previous one, and never comes after the result.
    #[serde(tag = "type", rename = "partial")]
    pub struct SessionPartial {
        /// Counts from 1 within the session.
        pub turn: u32,
        /// Counts from 1 within the turn.
        pub segment: u32,
        /// The text so far.
        pub text: String,
    }

    /// The result of a segment.
    #[serde(tag = "type", rename = "result")]
    #[schemars(rename = "SegmentResult")]
    pub struct SegmentResult<'a> {
        /// Counts the results and missing segments of the session from 1.
        pub seq: u64,
        /// Counts from 1 within the session.
        pub turn: u32,
        /// Counts from 1 within the turn.
        pub segment: u32,
        /// The segment's job.
        pub job_id: JobId,
        /// The spoken language; `auto` if the node did not report it.
        pub src_lang: Source,
        /// The language of the translation.
        pub tgt_lang: Lang,
        /// The direction in the tags that the node registered, such as `zh:en`, if those are not
        /// the tags that were asked for.
        pub served_as: Option<LangPair>,
        /// The recognised text.
        pub text_asr: Option<Cow<'a, str>>,
        /// The translated text.
        pub text_translated: Option<Cow<'a, str>>,
        /// The translation as speech, in base64.
        pub tts_audio: Option<Audio<'a>>,
        /// Where the time went.
        #[serde(default)]
        pub timings: SegmentTimings,
    }

    /// Where the time of a segment went.
    #[derive(Copy, Default)]
    pub struct SegmentTimings {
        /// From the segment's first speech to its end.
        pub speech_ms: Option<u64>,
        /// From the segment's end to its result.
        pub delay_ms: Option<u64>,
        /// The job's own times. With a streaming node, the job begins with the first speech.
        #[serde(flatten)]
        pub job: Timings,
    }

    /// There is no result for a segment; the segments after it are not affected.
    #[serde(tag = "type", rename = "missing")]
    #[schemars(rename = "Missing")]
    pub struct SegmentMissing {
        /// Counts the results and missing segments of the session from 1.
        #[serde(default)]
        pub seq: u64,
        /// Counts from 1 within the session.
        pub turn: u32,
        /// Counts from 1 within the turn.
        pub segment: u32,
        /// The segment's job; absent if the segment did not become one.
        pub job_id: Option<JobId>,
        /// The error code; a text, so that clients can read codes that are newer than themselves.
        pub error: String,
        /// What happened and what to do.
        pub detail: String,
    }
}

impl SegmentResult<'_> {
    /// A copy that does not borrow from the frame.
    pub fn into_owned(self) -> SegmentResult<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        SegmentResult {
            seq: self.seq,
            turn: self.turn,
            segment: self.segment,
            job_id: self.job_id,
            src_lang: self.src_lang,
            tgt_lang: self.tgt_lang,
            served_as: self.served_as,
            text_asr: self.text_asr.map(own),
            text_translated: self.text_translated.map(own),
            tts_audio: self.tts_audio.map(Audio::into_owned),
            timings: self.timings,
        }
    }
}
