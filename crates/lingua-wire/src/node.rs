//! Messages of nodes: registration, heartbeats, reports about jobs.
//!
//! | file | what it holds |
//! |---|---|
//! | `register.rs` | [`Register`], [`Heartbeat`] and their responses |
//! | `capability.rs` | what a node can do, in both shapes, and how it becomes a `Profile` |
//! | `job.rs` | [`JobAck`], [`JobPartial`], [`JobDone`], [`JobFail`] |
//! | `result.rs` | [`JobResult`]: what a node made of a job |
//!
//! Start at [`NodeMessage::parse`]. HTTP and WebSocket carry the same bodies. A socket belongs to
//! one node, so there `node_id` may be left out.

use lingua_core::NodeId;

use crate::error::RequestError;
use crate::message::{frames, missing_field};

mod capability;
mod job;
mod register;
mod result;

pub use capability::{CapabilityFields, LanguageLists, ServiceFlags};
pub use job::{Bye, JobAck, JobDone, JobFail, JobPartial, JobRef, Offline, OkResponse};
pub use register::{
    Heartbeat, HeartbeatResponse, LoadFields, Register, RegisterParts, RegisterResponse,
};
pub use result::{JobResult, embed_audio, kept_result};

frames! {
    /// A frame from a node to the scheduler.
    pub enum NodeMessage {
        /// The node introduces itself; the first frame of a socket.
        Register(Register),
        /// The node is alive.
        Heartbeat(Heartbeat),
        /// The node has received a job.
        JobAck(JobAck),
        /// A part of a job's text.
        JobPartial(JobPartial<'a>),
        /// The result of a job.
        JobDone(JobDone<'a>),
        /// The node failed at a job, or refused it.
        JobFail(JobFail<'a>),
        /// The node leaves.
        Bye(Bye<'a>),
    }
}

/// The node that a body names; over HTTP it has to name one.
fn required_node(node: Option<&NodeId>) -> Result<&NodeId, RequestError> {
    node.ok_or_else(|| missing_field("node_id"))
}
