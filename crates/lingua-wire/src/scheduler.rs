//! Messages of the scheduler to nodes.
//!
//! Start at [`SchedulerMessage`]; [`JobAssign`] in `scheduler/assign.rs` is the one that matters.
//! Every struct writes its own `type`, so it can also be written without the enum around it.

use std::borrow::Cow;

use lingua_core::{Attempt, Epoch, JobId, NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ErrorCode;
use crate::json::As;
use crate::message::frames;
use crate::node::JobRef;

mod assign;
mod stream;

pub use assign::{AssignOptions, Bind, JobAssign, NodeJobs};
pub use stream::{AudioEnd, TAG_BYTES, tag, untag};

frames! {
    /// A frame from the scheduler to a node.
    #[expect(clippy::large_enum_variant, reason = "it is written or matched once, never stored")]
    pub enum SchedulerMessage {
        /// The node is registered.
        Registered(Registered),
        /// The response to a heartbeat.
        HeartbeatAck(HeartbeatAck),
        /// A job for the node.
        JobAssign(JobAssign<'a>),
        /// The audio of a streamed job is complete.
        AudioEnd(AudioEnd),
        /// Stop a job.
        JobCancel(JobCancel<'a>),
        /// A result or a failure has arrived.
        JobConfirmed(JobConfirmed),
        /// Finish the jobs that run and accept no more.
        Drain(Drain),
        /// The scheduler refused something.
        Error(ErrorMessage<'a>),
    }
}

/// The node is registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "registered")]
#[schemars(rename = "Registered")]
pub struct Registered {
    /// The node's id from now on.
    #[serde(with = "As::<NodeId>")]
    pub node_id: NodeId,
    /// Number of this incarnation of the node.
    #[serde(with = "As::<Epoch>")]
    pub epoch: Epoch,
    /// How often the node has to send a heartbeat, in milliseconds.
    pub heartbeat_interval_ms: u64,
    /// How many pools of a known source language the node belongs to.
    #[serde(default)]
    pub pairs: u64,
}

/// The response to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "heartbeat_ack")]
#[schemars(rename = "HeartbeatAck")]
pub struct HeartbeatAck {
    /// Attempts that the node should stop: nobody waits for them.
    pub cancel: Vec<JobRef>,
    /// Whether the node should finish its jobs and accept no more.
    pub drain: bool,
}

/// Stop a job: nobody waits for its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "job_cancel")]
#[schemars(rename = "JobCancel")]
pub struct JobCancel<'a> {
    /// The job.
    #[serde(with = "As::<JobId>")]
    pub job_id: JobId,
    /// The try of the job, from 1.
    #[serde(with = "As::<Attempt>")]
    pub attempt_id: Attempt,
    /// For the log and for the handler.
    #[serde(borrow)]
    pub reason: Cow<'a, str>,
}

/// A result or a failure has arrived; the node need not send it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "job_confirmed")]
#[schemars(rename = "JobConfirmed")]
pub struct JobConfirmed {
    /// The job.
    #[serde(with = "As::<JobId>")]
    pub job_id: JobId,
    /// The try of the job, from 1.
    #[serde(with = "As::<Attempt>")]
    pub attempt_id: Attempt,
    /// Whether it counted; false if the job had ended or moved to another attempt.
    pub accepted: bool,
}

/// Finish the jobs that run and accept no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "drain")]
#[schemars(rename = "Drain")]
pub struct Drain {}

/// The scheduler refused a message or closes the connection. Sessions get the same message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "error")]
#[schemars(rename = "ErrorMessage")]
pub struct ErrorMessage<'a> {
    /// The code; text, so that a receiver can read codes newer than itself.
    #[serde(borrow)]
    pub error: Cow<'a, str>,
    /// What is wrong and what to do.
    #[serde(borrow)]
    pub detail: Cow<'a, str>,
    /// Whether the scheduler closes the socket after this message.
    pub fatal: bool,
}

impl ErrorMessage<'_> {
    /// The code, unless this version does not know it.
    pub fn code(&self) -> Option<ErrorCode> {
        ErrorCode::from_name(&self.error)
    }
}

impl<'a> ErrorMessage<'a> {
    /// An error with a code and a sentence that says what is wrong and what to do.
    pub fn new(code: ErrorCode, detail: impl Into<Cow<'a, str>>, fatal: bool) -> Self {
        Self { error: Cow::Borrowed(code.as_str()), detail: detail.into(), fatal }
    }
}
