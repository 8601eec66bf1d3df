//! A job as a handler sees it, and its result.
//!
//! Start at [`Job`], [`Output`] and [`Failure`]: the messages `job_assign`, `job_done` and
//! `job_fail` without the protocol around them.

use bytes::Bytes;
use lingua_core::{Attempt, Fence, JobId, Lang, Source};
use lingua_wire::node::JobRef;
use lingua_wire::scheduler::{AssignOptions, JobAssign};
use serde_json::{Map, Value};

use super::stream::SoundStream;

/// One utterance to translate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The same in every attempt of the job.
    pub job_id: JobId,
    /// The try of the job, from 1.
    pub attempt_id: Attempt,
    /// Rises with every assignment to this node.
    pub fence: Fence,
    /// The conversation that the job belongs to.
    pub session_id: String,
    /// Source language, or `auto`.
    pub src_lang: Source,
    /// The language to translate to.
    pub tgt_lang: Lang,
    /// Address of audio that is stored elsewhere.
    pub audio_ref: Option<String>,
    /// Audio that came with the job.
    pub audio: Option<Sound>,
    /// Audio that is still being spoken; only nodes that asked for streaming get it.
    pub stream: Option<SoundStream>,
    /// Text instead of audio: recognition is skipped.
    pub text: Option<String>,
    /// With `auto`: the source is one of these two languages, and the target is the other one.
    pub two_way: Option<[Lang; 2]>,
    /// Earlier texts of this conversation, the oldest first.
    pub context: Vec<String>,
    /// What the client asked for.
    pub options: AssignOptions,
    /// How many milliseconds were left when the job was sent.
    pub deadline_ms: Option<u64>,
    /// The binding that chose this node.
    pub bind: Option<Binding>,
    /// Names the job in all logs.
    pub trace_id: String,
}

/// Segments with one key go to one node while that is possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The key that the client gave.
    pub key: String,
    /// Whether earlier segments ran on another node, so that their context is not here.
    pub moved: bool,
}

/// A piece of audio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sound {
    /// `pcm16`, `wav`, `opus`, …
    pub format: String,
    /// Samples a second; formats with a header of their own may leave it out.
    pub sample_rate: Option<u32>,
    /// The encoded audio.
    pub bytes: Bytes,
}

impl Sound {
    /// Raw samples of 16 bits.
    pub fn pcm16(sample_rate: u32, bytes: impl Into<Bytes>) -> Self {
        Self { format: "pcm16".to_owned(), sample_rate: Some(sample_rate), bytes: bytes.into() }
    }
}

impl Job {
    /// The job of an assignment. Audio in the next frame is filled in when it has arrived.
    pub(super) fn new(assign: JobAssign<'_>, inline_audio: Bytes) -> Self {
        let audio = assign.audio.map(|audio| Sound {
            format: audio.format.into_owned(),
            sample_rate: audio.sample_rate,
            bytes: inline_audio,
        });
        let bind =
            assign.bind.map(|bind| Binding { key: bind.bind_key.into_owned(), moved: bind.moved });
        Self {
            job_id: assign.job_id,
            attempt_id: assign.attempt_id,
            fence: assign.fence,
            session_id: assign.session_id.into_owned(),
            src_lang: assign.src_lang,
            tgt_lang: assign.tgt_lang,
            audio_ref: assign.audio_ref.map(Into::into),
            audio,
            stream: None,
            text: assign.text.map(Into::into),
            two_way: assign.two_way.and_then(|langs| langs.try_into().ok()),
            context: assign.context.into_iter().map(Into::into).collect(),
            options: assign.options,
            deadline_ms: assign.deadline_ms,
            bind,
            trace_id: assign.trace_id.into_owned(),
        }
    }

    /// The job and its attempt, as messages name them.
    pub fn job_ref(&self) -> JobRef {
        JobRef { job_id: self.job_id, attempt_id: self.attempt_id }
    }
}

/// The result of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Output {
    /// The recognised text.
    pub text_asr: Option<String>,
    /// The text in the target language.
    pub text_translated: Option<String>,
    /// The translation as speech.
    pub tts_audio: Option<Sound>,
    /// The recognised language, if the source of the job was `auto`.
    pub src_lang: Option<String>,
    /// Further fields, which reach the client unchanged. They cannot replace the ones above.
    pub extra: Map<String, Value>,
}

impl Output {
    /// A result that has only a translation.
    pub fn translated(text: impl Into<String>) -> Self {
        Self { text_translated: Some(text.into()), ..Self::default() }
    }

    /// Adds the recognised text.
    #[must_use]
    pub fn with_asr(mut self, text: impl Into<String>) -> Self {
        self.text_asr = Some(text.into());
        self
    }

    /// Adds the translation as speech.
    #[must_use]
    pub fn with_speech(mut self, sound: Sound) -> Self {
        self.tts_audio = Some(sound);
        self
    }

    /// Adds a further field.
    #[must_use]
    pub fn with_extra(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.extra.insert(name.into(), value.into());
        self
    }
}

/// Why a job failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    /// One word, such as `MODEL_LOAD_FAILED`.
    pub reason: String,
    /// Whether another node might succeed.
    pub retryable: bool,
    /// The reason as a sentence, for logs.
    pub detail: Option<String>,
}

impl Failure {
    /// The job was cancelled and the handler did not end in time.
    pub const CANCELLED: &'static str = "CANCELLED";
    /// The handler panicked.
    pub const PANICKED: &'static str = "HANDLER_PANICKED";
    /// The audio of the job did not arrive as announced.
    pub const BAD_AUDIO: &'static str = "BAD_AUDIO";
    /// The result breaks a bound of the contract.
    pub const BAD_OUTPUT: &'static str = "BAD_OUTPUT";
    /// The handler's own reason cannot be sent: it is empty, too long or has control characters.
    pub const UNNAMED: &'static str = "HANDLER_FAILED";

    /// A failure after which another node might succeed.
    pub fn retryable(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retryable: true, detail: None }
    }

    /// A failure that every node would have.
    pub fn permanent(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retryable: false, detail: None }
    }

    /// Adds a sentence that explains the reason.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}
