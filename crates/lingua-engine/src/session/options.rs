//! How sessions are set up, and why one may be refused.

use lingua_core::session::{FrameError, SegmentRules, SessionPlan};
use lingua_core::with_defaults;

use crate::byte_budget::OverBudget;
use crate::usage_limit::OverLimit;

with_defaults! {
    /// How sessions are set up; the same for all sessions of an instance.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SessionOptions {
        /// When a segment ends.
        pub segments: SegmentRules = SegmentRules {
            pause_ms: 800,
            segment_max_ms: 10_000,
            segment_bytes_max: crate::speech::SPEECH_BYTES_MAX - (128 << 10),
            silence_ms: None,
        },
        /// How long a silence ends a segment of a client that asks for voice detection.
        pub silence_ms: u64 = 600,
        /// How long after its end a segment may take.
        pub deadline_ms: u64 = 15_000,
        /// How long a segment's job waits for a free slot.
        pub wait_ms: u64 = 2_000,
        /// How long a session can be resumed after its connection broke.
        pub resume_ms: u64 = 60_000,
        /// A connected client that sends nothing for this long loses its session.
        pub idle_ms: u64 = 1_800_000,
        /// How many times faster than real time audio may arrive.
        pub rate_max: u64 = 4,
        /// The window over which that rate is averaged.
        pub rate_window_ms: u64 = 5_000,
        /// Most undelivered segments of a session; further ones are missing.
        pub open_segments_max: usize = 32,
        /// Most sessions of one token.
        pub per_token_max: usize = 1_000,
        /// Most sessions of this instance.
        pub sessions_max: usize = 10_000,
    }
}

impl SessionOptions {
    /// When a segment of this session ends.
    pub(super) fn segment_rules(&self, plan: &SessionPlan) -> SegmentRules {
        let silence_ms = match plan.vad {
            Some(vad) => vad.then_some(self.silence_ms),
            None => self.segments.silence_ms,
        };
        SegmentRules { silence_ms, ..self.segments }
    }
}

/// Why a client's request on its session is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum SessionRefusal {
    /// There is no such session, or its secret is another one.
    #[error("no session has this id and resume_token; start a new one")]
    NotFound,
    /// The session is another tenant's. Its client is told the same as if there were none.
    #[error("no session has this id and resume_token; start a new one")]
    OtherTenant,
    /// This instance or this token has as many sessions as it may.
    #[error("{scope} has {limit} sessions already; end one, or use another instance")]
    TooManySessions { scope: &'static str, limit: usize },
    /// The tenant or the token has reached a limit.
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
    /// Audio arrives too fast.
    #[error(
        "audio arrives faster than {rate} times real time; check the sample rate, or wait \
         {wait_ms} ms"
    )]
    TooFast { rate: u64, wait_ms: u64 },
    /// Too many segments wait for their outcome.
    #[error("{limit} segments of this session wait for results; this was dropped, wait for some")]
    TooManySegments { limit: usize },
    /// There is no room for more audio.
    #[error("{0}; the frame was dropped")]
    NoRoom(#[from] OverBudget),
    /// A frame is not valid audio.
    #[error(transparent)]
    BadFrame(#[from] FrameError),
    /// A later connection owns the session.
    #[error("another connection has resumed this session; this connection is closed")]
    Superseded,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] lingua_store::StoreError),
}

impl SessionRefusal {
    /// The error code that clients see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound | Self::OtherTenant => "SESSION_NOT_FOUND",
            Self::TooManySessions { .. } | Self::TooFast { .. } | Self::TooManySegments { .. } => {
                "RATE_LIMITED"
            }
            Self::NoRoom(error) => error.code(),
            Self::OverLimit(error) => error.code(),
            Self::BadFrame(error) => error.code(),
            Self::Superseded => "STALE_EPOCH",
            Self::Store(error) => error.code(),
        }
    }
}
