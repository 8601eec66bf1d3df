//! What nodes say: registration, heartbeats, and what becomes of jobs.
//!
//! | file | what |
//! |---|---|
//! | `message.rs` | [`NodeMessage`]: any frame that a node sends |
//! | `register.rs` | [`Register`] and its answer |
//! | `capability.rs` | what a node can do, in both shapes, and how it becomes a `Profile` |
//! | `services.rs` | which services are on |
//! | `heartbeat.rs` | [`Heartbeat`] and its answer |
//! | `job.rs` | [`JobAck`], [`JobPartial`], [`JobDone`], [`JobFail`] |
//! | `result.rs` | [`JobResult`]: what a node made of a job |
//!
//! The same bodies are sent by HTTP and by WebSocket. A socket knows whose it is, so there `node_id`
//! may be left out.

use lingua_core::{Health, NodeId};

use crate::error::RequestError;
use crate::message::missing_field;

mod capability;
mod heartbeat;
mod job;
mod message;
mod register;
mod result;
mod services;

pub use capability::{CapabilityFields, LanguageLists};
pub use heartbeat::{Heartbeat, HeartbeatResponse, LoadFields};
pub use job::{Bye, JobAck, JobDone, JobFail, JobPartial, JobRef, Offline, OkResponse};
pub use message::NodeMessage;
pub use register::{Register, RegisterParts, RegisterResponse};
pub use result::{JobResult, embed_audio};
pub use services::ServiceFlags;

pub(crate) use message::{peek_type, unknown_type};

/// Every health that a node can name.
pub(crate) const HEALTHS: [Health; 4] =
    [Health::Ready, Health::Registering, Health::Degraded, Health::Draining];

/// The word on the wire.
pub fn health_name(health: Health) -> &'static str {
    match health {
        Health::Ready => "ready",
        Health::Registering => "registering",
        Health::Degraded => "degraded",
        Health::Draining => "draining",
    }
}

/// The node that a body names; by HTTP it has to name one.
fn required_node(node: Option<&NodeId>) -> Result<&NodeId, RequestError> {
    node.ok_or_else(|| missing_field("node_id"))
}
