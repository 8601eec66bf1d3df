//! The messages of the session WebSocket.
//!
//! | file | what |
//! |---|---|
//! | `request.rs` | [`SessionRequest`]: any text frame from the client |
//! | `plan.rs` | checks `session_start` and turns it into a [`SessionPlan`] |
//! | `update.rs` | [`SessionUpdate`]: any text frame from the scheduler |
//!
//! Binary frames from the client are audio: they belong to the open turn, or open one.
//!
//! [`SessionPlan`]: lingua_core::session::SessionPlan

mod plan;
mod request;
mod update;

pub use plan::parse_speaker;
pub use request::{
    AudioFormat, SessionEnd, SessionRequest, SessionResume, SessionStart, TextTurn, TurnEnd,
    TurnStart,
};
pub use update::{
    JobAccepted, SegmentMissing, SegmentResult, SegmentTimings, SessionPartial, SessionStarted,
    SessionUpdate,
};
