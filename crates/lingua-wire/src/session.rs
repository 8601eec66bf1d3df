//! What is said on a session's socket.
//!
//! | file | what |
//! |---|---|
//! | `client.rs` | [`SessionMessage`]: any frame of a client |
//! | `plan.rs` | [`Plan`]: what a session was started with, checked and in the core's words |
//! | `scheduler.rs` | [`SessionAnswer`]: any frame of the scheduler |
//!
//! Audio goes beside the messages: every binary frame of a client is audio of the turn that is open, or opens one.

mod client;
mod plan;
mod scheduler;

pub use crate::scheduler::ErrorMessage;
pub use client::{
    AudioFormat, SessionEnd, SessionMessage, SessionResume, SessionStart, TextTurn, TurnEnd,
    TurnStart,
};
pub use plan::{Direction, Plan};
pub use scheduler::{
    JobAccepted, Missing, SegmentResult, SegmentTimings, SessionAnswer, SessionPartial,
    SessionStarted,
};
