//! Messages of nodes: registration, heartbeats, reports about jobs.
//!
//! | file | what it holds |
//! |---|---|
//! | `register.rs` | [`Register`] and its response |
//! | `capability.rs` | what a node can do, in both shapes, and how it becomes a `Profile` |
//! | `services.rs` | which services are on |
//! | `heartbeat.rs` | [`Heartbeat`] and its response |
//! | `job.rs` | [`JobAck`], [`JobPartial`], [`JobDone`], [`JobFail`] |
//! | `result.rs` | [`JobResult`]: what a node made of a job |
//!
//! Start at [`NodeMessage::parse`]. HTTP and WebSocket carry the same bodies. A socket belongs to
//! one node, so there `node_id` may be left out.

use lingua_core::{Health, NodeId};

use crate::error::RequestError;
use crate::message::{frames, missing_field};

mod capability;
mod heartbeat;
mod job;
mod register;
mod result;
mod services;

pub use capability::{CapabilityFields, LanguageLists};
pub use heartbeat::{Heartbeat, HeartbeatResponse, LoadFields};
pub use job::{Bye, JobAck, JobDone, JobFail, JobPartial, JobRef, Offline, OkResponse};
pub use register::{Register, RegisterParts, RegisterResponse};
pub use result::{JobResult, embed_audio};
pub use services::ServiceFlags;

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

/// Every health that a node can report.
pub(crate) const HEALTHS: [Health; 4] =
    [Health::Ready, Health::Registering, Health::Degraded, Health::Draining];

/// The word that stands for a health in JSON.
pub fn health_name(health: Health) -> &'static str {
    match health {
        Health::Ready => "ready",
        Health::Registering => "registering",
        Health::Degraded => "degraded",
        Health::Draining => "draining",
    }
}

/// The node that a body names; over HTTP it has to name one.
fn required_node(node: Option<&NodeId>) -> Result<&NodeId, RequestError> {
    node.ok_or_else(|| missing_field("node_id"))
}
