//! Messages from the client of a session.
//!
//! Start at [`SessionRequest::parse`]. The first message is `session_start` or `session_resume`;
//! [`SessionStart::into_plan`] checks the former. Invariant: a plan has canonical languages and an
//! audio encoding that sessions accept.

use std::borrow::Cow;

use lingua_core::session::{AudioEncoding, Direction, PCM_RATES, SessionPlan, Speaker};
use lingua_core::{NodeId, NodeLabel};

use crate::error::{RequestError, invalid, shown};
use crate::labels::{self, LabelList};
use crate::lang;
use crate::limits::TEXT_BYTES_MAX;
use crate::message::{at_most, check_label, frames, missing_field};
use crate::wire_types::wire_types;

/// In Hz.
const SAMPLE_RATE_DEFAULT: u32 = 16_000;

frames! {
    /// A text frame from a client to the scheduler.
    #[expect(missing_docs, reason = "each variant holds the message of its name")]
    pub enum SessionRequest {
        Start(SessionStart),
        Resume(SessionResume),
        TurnStart(TurnStart),
        TurnEnd(TurnEnd),
        Text(TextTurn<'a>),
        End(SessionEnd),
    }
}

wire_types! {
    /// Starts a session: one way (`src_lang`, `tgt_lang`) or `two_way` (`lang_a`, `lang_b`).
    #[derive(Default)]
    #[serde(tag = "type", rename = "session_start")]
    pub struct SessionStart {
        /// `one_way` (the default) or `two_way`.
        pub mode: Option<String>,
        /// One way: the spoken language, or `auto`.
        pub src_lang: Option<String>,
        /// One way: the language of the translation.
        pub tgt_lang: Option<String>,
        /// Two ways: the language of speaker `a`.
        pub lang_a: Option<String>,
        /// Two ways: the language of speaker `b`.
        pub lang_b: Option<String>,
        /// Results must include synthesised speech; false by default.
        pub require_tts: Option<bool>,
        /// Send partial texts before the result; false by default.
        pub partials: Option<bool>,
        /// Send the last two texts with each job, so that any node can follow; false by default.
        pub context: Option<bool>,
        /// Silence ends a turn, so that a microphone may stay open; only for `pcm16`. The server's
        /// setting by default.
        pub vad: Option<bool>,
        /// How audio is encoded; `pcm16` at 16,000 Hz by default.
        pub audio: Option<AudioFormat>,
        /// The node that should run the jobs of this session.
        pub preferred_node_id: Option<NodeId>,
        /// Whether nodes that accept public jobs may run the jobs of this session; if false, only
        /// nodes of the caller's own tenant. The tenant's setting by default.
        pub public: Option<bool>,
        /// Labels that the nodes must have; an object such as `{"region": "eu"}` stands for
        /// `["region:eu"]`.
        #[serde(default, with = "LabelList")]
        pub labels: Option<Vec<NodeLabel>>,
    }

    /// How the binary frames of a session are encoded.
    pub struct AudioFormat {
        /// `pcm16` (16 bits, one channel, little-endian) or `opus` (one packet per frame).
        pub format: String,
        /// Samples per second of `pcm16`: 8000, 16000, 24000 or 48000.
        pub sample_rate: Option<u32>,
    }

    /// Resumes a session whose connection broke.
    #[serde(tag = "type", rename = "session_resume")]
    pub struct SessionResume {
        /// From `session_started`.
        pub session_id: String,
        /// From `session_started`.
        pub resume_token: String,
        /// The last `seq` that the client has seen; 0 if none.
        #[serde(default)]
        pub last_seq: u64,
    }

    /// Opens a turn. Without it, the first speech opens one.
    #[derive(Default)]
    #[serde(tag = "type", rename = "turn_start")]
    pub struct TurnStart {
        /// `a` or `b`, in a two-way session; if absent, the node finds out who speaks.
        pub speaker: Option<String>,
    }

    /// Ends the turn.
    #[derive(Copy, Default)]
    #[serde(tag = "type", rename = "turn_end")]
    pub struct TurnEnd {}

    /// A turn of text instead of speech.
    #[serde(tag = "type", rename = "text")]
    #[schemars(rename = "TextTurn")]
    pub struct TextTurn<'a> {
        /// The text to translate.
        pub text: Cow<'a, str>,
        /// `a` or `b`, in a two-way session.
        pub speaker: Option<String>,
    }

    /// Ends the session: open segments are still delivered, then the scheduler closes the socket.
    #[derive(Copy, Default)]
    #[serde(tag = "type", rename = "session_end")]
    pub struct SessionEnd {}
}

impl SessionStart {
    /// Checks the message.
    pub fn into_plan(self) -> Result<SessionPlan, RequestError> {
        let language = |field: &str, value: &Option<String>| match value {
            Some(value) => lang::language(field, value),
            None => Err(missing_field(field)),
        };
        let direction = match self.mode.as_deref() {
            None | Some("one_way") => {
                let src = self.src_lang.as_deref().ok_or_else(|| missing_field("src_lang"))?;
                let src = lang::source("src_lang", src)?;
                Direction::OneWay { src, tgt: language("tgt_lang", &self.tgt_lang)? }
            }
            Some("two_way") => {
                let a = language("lang_a", &self.lang_a)?;
                let b = language("lang_b", &self.lang_b)?;
                if a == b {
                    return Err(invalid!("lang_b", "both speakers speak {a}; give two languages"));
                }
                Direction::TwoWay { a, b }
            }
            Some(other) => {
                let mode = shown(other);
                return Err(invalid!("mode", "{mode} is unknown; use one_way or two_way"));
            }
        };
        Ok(SessionPlan {
            direction,
            require_tts: self.require_tts.unwrap_or(false),
            partials: self.partials.unwrap_or(false),
            vad: self.vad,
            context: self.context.unwrap_or(false),
            audio: self.audio.map_or(Ok(AudioFormat::DEFAULT), |audio| audio.encoding())?,
            preferred: self.preferred_node_id,
            public: self.public,
            labels: labels::required("labels", self.labels)?,
        })
    }
}

impl AudioFormat {
    const DEFAULT: AudioEncoding = AudioEncoding::Pcm16 { sample_rate: SAMPLE_RATE_DEFAULT };

    fn encoding(&self) -> Result<AudioEncoding, RequestError> {
        let sample_rate = self.sample_rate.unwrap_or(SAMPLE_RATE_DEFAULT);
        match self.format.as_str() {
            "pcm16" if PCM_RATES.contains(&sample_rate) => Ok(AudioEncoding::Pcm16 { sample_rate }),
            "pcm16" => {
                let known = PCM_RATES.map(|rate| rate.to_string()).join(", ");
                let field = "audio.sample_rate";
                Err(invalid!(field, "{sample_rate} is not supported; use one of {known}"))
            }
            "opus" => Ok(AudioEncoding::Opus),
            other => {
                let format = shown(other);
                Err(invalid!("audio.format", "{format} is unknown; use pcm16 or opus"))
            }
        }
    }
}

impl SessionResume {
    pub(crate) fn check_bounds(&self) -> Result<(), RequestError> {
        check_label("session_id", &self.session_id)?;
        check_label("resume_token", &self.resume_token)
    }
}

impl TextTurn<'_> {
    pub(crate) fn check_bounds(&self) -> Result<(), RequestError> {
        at_most("text", &self.text, TEXT_BYTES_MAX)
    }
}

/// Reads the `speaker` of `turn_start` or `text`, for a session of this direction.
pub fn parse_speaker(
    name: Option<&str>,
    direction: Direction,
) -> Result<Option<Speaker>, RequestError> {
    match (name, direction) {
        (None, _) => Ok(None),
        (Some(_), Direction::OneWay { .. }) => {
            let what = "a one-way session has one speaker; leave the field out, or start the \
                        session in mode two_way";
            Err(RequestError::invalid("speaker", what))
        }
        (Some("a"), _) => Ok(Some(Speaker::A)),
        (Some("b"), _) => Ok(Some(Speaker::B)),
        (Some(other), _) => Err(invalid!("speaker", "{} is unknown; use a or b", shown(other))),
    }
}
