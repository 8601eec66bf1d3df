//! A job as a handler sees it, and what comes of it.
//!
//! Start at [`Job`], [`Output`] and [`Failure`]: the frames `job_assign`, `job_done` and `job_fail`
//! without the protocol around them.

use bytes::Bytes;
use lingua_core::{Attempt, Fence, JobId, Lang, Source};
use lingua_wire::node::JobRef;
use lingua_wire::scheduler::{AssignOptions, JobAssign};
use serde_json::{Map, Value};

use super::stream::SoundStream;

/// One utterance to translate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Which job.
    pub job_id: JobId,
    /// Which try of it.
    pub attempt_id: Attempt,
    /// The number of the order.
    pub fence: Fence,
    /// The conversation that it belongs to.
    pub session_id: String,
    /// What is spoken, or `auto`.
    pub src_lang: Source,
    /// What it becomes.
    pub tgt_lang: Lang,
    /// Where the audio lies, if it lies elsewhere.
    pub audio_ref: Option<String>,
    /// The audio, if it came along.
    pub audio: Option<Sound>,
    /// The audio, if it is still being spoken: only for nodes that listen along.
    pub stream: Option<SoundStream>,
    /// Text instead of audio: nothing has to be recognised.
    pub text: Option<String>,
    /// With `auto`: it is one of these two languages, and the target is the other one.
    pub two_way: Option<[Lang; 2]>,
    /// What was said before in this conversation, the oldest first.
    pub context: Vec<String>,
    /// What the client asked for.
    pub options: AssignOptions,
    /// How many milliseconds were left when the job was sent.
    pub deadline_ms: Option<u64>,
    /// The binding that brought it here.
    pub bind: Option<Binding>,
    /// Follows the job through all logs.
    pub trace_id: String,
}

/// Segments with one key go to one node while that is possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The key.
    pub key: String,
    /// Whether earlier segments went to another node, so that their context is not here.
    pub moved: bool,
}

/// A piece of audio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sound {
    /// `pcm16`, `wav`, `opus`, …
    pub format: String,
    /// Samples a second; formats with a header of their own may leave it out.
    pub sample_rate: Option<u32>,
    /// The audio itself.
    pub bytes: Bytes,
}

impl Sound {
    /// Raw samples of 16 bits.
    pub fn pcm16(sample_rate: u32, bytes: impl Into<Bytes>) -> Self {
        Self { format: "pcm16".to_owned(), sample_rate: Some(sample_rate), bytes: bytes.into() }
    }
}

impl Job {
    /// The job of a frame and the audio that came with it.
    pub(super) fn new(assign: JobAssign<'_>, audio: Option<Sound>) -> Self {
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

    /// The job and its try, as messages name them.
    pub fn job_ref(&self) -> JobRef {
        JobRef { job_id: self.job_id, attempt_id: self.attempt_id }
    }
}

/// What a handler made of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Output {
    /// What was said.
    pub text_asr: Option<String>,
    /// What it means in the other language.
    pub text_translated: Option<String>,
    /// The same, spoken.
    pub tts_audio: Option<Sound>,
    /// What was spoken, if the job's source was `auto`.
    pub src_lang: Option<String>,
    /// Further fields, which reach the client as they are. They cannot replace the ones above.
    pub extra: Map<String, Value>,
}

impl Output {
    /// An output that is a translation and nothing else.
    pub fn translated(text: impl Into<String>) -> Self {
        Self { text_translated: Some(text.into()), ..Self::default() }
    }

    /// With what was said.
    #[must_use]
    pub fn with_asr(mut self, text: impl Into<String>) -> Self {
        self.text_asr = Some(text.into());
        self
    }

    /// With the translation as sound.
    #[must_use]
    pub fn with_speech(mut self, sound: Sound) -> Self {
        self.tts_audio = Some(sound);
        self
    }

    /// With a further field.
    #[must_use]
    pub fn with_extra(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.extra.insert(name.into(), value.into());
        self
    }
}

/// Why a handler gave up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    /// One word, such as `MODEL_LOAD_FAILED`.
    pub reason: String,
    /// Whether another node might succeed.
    pub retryable: bool,
    /// The same in a sentence, for logs.
    pub detail: Option<String>,
}

impl Failure {
    /// The handler was told to stop and did not come to an end in time.
    pub const CANCELLED: &'static str = "CANCELLED";
    /// The handler panicked.
    pub const PANICKED: &'static str = "HANDLER_PANICKED";
    /// The audio of the job did not arrive as it was announced.
    pub const BAD_AUDIO: &'static str = "BAD_AUDIO";
    /// The output breaks a bound of the contract.
    pub const BAD_OUTPUT: &'static str = "BAD_OUTPUT";
    /// The handler's own reason cannot be sent: it is empty, too long or has control characters.
    pub const UNNAMED: &'static str = "HANDLER_FAILED";

    /// A failure that another node might not have.
    pub fn retryable(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retryable: true, detail: None }
    }

    /// A failure that every node would have.
    pub fn permanent(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retryable: false, detail: None }
    }

    /// With a sentence.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}
