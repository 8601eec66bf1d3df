//! The messages of the session WebSocket.
//!
//! | file | what |
//! |---|---|
//! | `request.rs` | [`SessionRequest`]: any text frame from the client |
//! | `update.rs` | [`SessionUpdate`]: any text frame from the scheduler |
//!
//! Binary frames from the client are audio: they belong to the open turn, or open one.

mod request;
mod update;

pub use request::{
    AudioFormat, SessionEnd, SessionRequest, SessionResume, SessionStart, TextTurn, TurnEnd,
    TurnStart, parse_speaker,
};
pub use update::{
    JobAccepted, SegmentMissing, SegmentResult, SegmentTimings, SessionPartial, SessionStarted,
    SessionUpdate,
};
