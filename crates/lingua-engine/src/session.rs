//! Sessions: turns become segments, segments become jobs, results return in the order spoken.
//!
//! | file | what |
//! |---|---|
//! | `options.rs` | [`SessionOptions`], and [`SessionRefusal`]: why a request is refused |
//! | `registry.rs` | [`Sessions`]: all sessions of this instance; starts and resumes them |
//! | `connection.rs` | [`ClientConnection`]: a client's connection to its session |
//! | `live.rs` | one session: takes audio and text, opens and closes segments |
//! | `state.rs` | what a session holds under its lock |
//! | `segment.rs` | submits a segment as a job, follows the job, stores the outcome |
//! | `timers.rs` | pauses, deadlines, idle and abandoned sessions |
//! | `record.rs` | the session's record in the store, from which another instance continues |
//!
//! A segment travels from [`ClientConnection::audio`] to `live.rs`, which opens it, to
//! `segment.rs`, which submits its job and waits, to [`ClientConnection::next`], which delivers in
//! order. The rules are the core's (`lingua_core::session`).
//!
//! Invariant: a session outlives its connection by `resume_ms`; the latest connection owns it.

mod connection;
mod live;
mod options;
mod record;
mod registry;
mod segment;
mod state;
mod timers;

pub use connection::{ClientConnection, CloseReason, ReceivedInput, SegmentOutcome, SessionOutput};
pub use options::{SessionOptions, SessionRefusal};
#[cfg(feature = "decoders")]
pub(crate) use record::StoredSession;
pub use registry::{JobIdSource, NewSession, SecretHash, Sessions};
