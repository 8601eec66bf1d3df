//! How sessions are set up, what the edge does for them, and what is refused.

use std::fmt::Debug;
use std::sync::Arc;

use lingua_core::JobId;
use lingua_core::session::{FrameError, SegmentId, SegmentRules, Speaker};

use crate::request::{JobRequest, ResultJson};
use crate::speech::Speech;

/// How sessions are set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionOptions {
    /// When a segment ends.
    pub segments: SegmentRules,
    /// How long after its end a segment may take.
    pub deadline_ms: u64,
    /// How long a session outlives its connection.
    pub resume_ms: u64,
    /// How long a client may say nothing at all.
    pub idle_ms: u64,
    /// How many times faster than real time audio may come.
    pub rate_max: u64,
    /// Over how long that is measured.
    pub rate_window_ms: u64,
    /// Most segments of a session that were not delivered.
    pub open_segments_max: usize,
    /// Most sessions of one token.
    pub per_token_max: usize,
    /// Most sessions of this instance.
    pub sessions_max: usize,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            segments: SegmentRules {
                pause_ms: 800,
                segment_max_ms: 10_000,
                segment_bytes_max: crate::speech::SPEECH_BYTES_MAX - (128 << 10),
                silence_ms: None,
            },
            deadline_ms: 15_000,
            resume_ms: 60_000,
            idle_ms: 1_800_000,
            rate_max: 4,
            rate_window_ms: 5_000,
            open_segments_max: 32,
            per_token_max: 1_000,
            sessions_max: 10_000,
        }
    }
}

/// What is said in a segment.
#[derive(Debug, Clone)]
pub enum SegmentInput {
    /// Text.
    Text(Arc<str>),
    /// Audio that may still be growing.
    Speech(Arc<Speech>),
}

/// A segment that is to become a job.
#[derive(Debug)]
pub struct SegmentAsk<'a> {
    /// What the session was started with, as the edge wrote it down.
    pub plan: &'a [u8],
    /// The job's id.
    pub id: JobId,
    /// Whose it is.
    pub session: Arc<str>,
    /// Which segment.
    pub at: SegmentId,
    /// Who speaks, if that was said.
    pub speaker: Option<Speaker>,
    /// What is said.
    pub input: SegmentInput,
    /// What was said before, the oldest first.
    pub context: Vec<Arc<str>>,
    /// Segments of one turn have the same.
    pub bind_key: Arc<str>,
    /// How long the job may take from now on.
    pub deadline_ms: u64,
}

/// What the edge does for sessions: it alone knows what a session was started with.
pub trait Compose: Debug + Send + Sync + 'static {
    /// A name for a new job.
    fn job_id(&self, now_ms: u64) -> JobId;

    /// Makes a job of a segment; `None` if it cannot read its own plan.
    fn job(&self, ask: SegmentAsk<'_>) -> Option<JobRequest>;

    /// What was said, from a result: what later jobs get as context.
    fn text_of(&self, result: &ResultJson) -> Option<String>;
}

/// Why a session is refused something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// There is no such session, or it is somebody else's.
    #[error("there is no such session, or the token is not its own; start a new one")]
    NotFound,
    /// As many as there may be.
    #[error("{what} has {limit} sessions already; end one, or use another instance")]
    TooMany {
        /// Who.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// Audio comes too fast.
    #[error(
        "audio comes faster than {rate} times real time; check the sample rate, or wait {wait_ms} ms"
    )]
    TooFast {
        /// How many times faster it may be.
        rate: u64,
        /// How long to wait.
        wait_ms: u64,
    },
    /// A frame is no audio.
    #[error(transparent)]
    BadFrame(#[from] FrameError),
    /// Another connection has the session.
    #[error("another connection has resumed this session; this one is over")]
    Superseded,
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] lingua_store::StoreError),
}

impl SessionError {
    /// The error code that users see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound => "SESSION_NOT_FOUND",
            Self::TooMany { .. } | Self::TooFast { .. } => "RATE_LIMITED",
            Self::BadFrame(error) => error.code(),
            Self::Superseded => "STALE_EPOCH",
            Self::Store(error) => error.code(),
        }
    }
}
