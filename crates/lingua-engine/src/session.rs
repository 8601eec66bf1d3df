//! People who speak: turns become segments, segments become jobs, and results come back in the order spoken.
//!
//! | file | what |
//! |---|---|
//! | `options.rs` | [`SessionOptions`], and [`Compose`]: how the edge makes a job of a segment |
//! | `hub.rs` | [`Sessions`]: all sessions of this instance; starting and resuming one |
//! | `talk.rs` | one session: what is heard, what becomes of it |
//! | `keeper.rs` | its timers: pauses, deadlines, silence, being away |
//! | `segment.rs` | one segment's way: submitted, followed, ended |
//! | `record.rs` | what the store knows, so that another instance can go on |
//! | `attached.rs` | [`Attached`]: a client's connection to its session |
//!
//! Start at [`Sessions::start`] and [`Attached::next`]. The rules are the core's (`lingua_core::session`); here they meet
//! time, jobs and connections.
//!
//! Invariant: a session outlives its connection by `resume_ms`; one connection at a time has it, the latest.

mod attached;
mod hub;
mod keeper;
mod options;
mod record;
mod segment;
mod talk;

pub use attached::{Attached, Delivered, Over, ToClient, What};
pub use hub::{Holder, NewSession, Sessions};
pub use options::{Compose, SegmentAsk, SegmentInput, SessionError, SessionOptions};
