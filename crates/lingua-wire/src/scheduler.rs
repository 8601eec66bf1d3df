//! What the scheduler says to nodes.
//!
//! Start at [`SchedulerMessage`]; [`JobAssign`] in `scheduler/assign.rs` is the one that matters.
//! Every struct writes its own `type`, so the hot ones can be written without the enum around them.

use std::borrow::Cow;

use lingua_core::{Attempt, Epoch, JobId, NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ErrorCode, RequestError};
use crate::message::{Message, parse_text};
use crate::node::{JobRef, peek_type, unknown_type};
use crate::plain;
use crate::schema::Shown;

mod assign;
mod stream;

pub use assign::{AssignOptions, Bind, JobAssign, NodeJobs};
pub use stream::{AudioEnd, TAG_BYTES, tag, untag};

/// A frame from the scheduler to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[expect(clippy::large_enum_variant, reason = "it is written or looked at once and never kept")]
pub enum SchedulerMessage<'a> {
    /// The registration was taken.
    Registered(Registered),
    /// The heartbeat was taken.
    HeartbeatAck(HeartbeatAck),
    /// A job to do.
    JobAssign(JobAssign<'a>),
    /// The audio of a job is whole.
    AudioEnd(AudioEnd),
    /// A job to stop.
    JobCancel(JobCancel<'a>),
    /// A result has arrived.
    JobConfirmed(JobConfirmed),
    /// Finish what you have.
    Drain(Drain),
    /// Something was wrong.
    Error(ErrorMessage<'a>),
}

impl<'a> SchedulerMessage<'a> {
    /// The types that there are.
    pub const TYPES: [&'static str; 8] = [
        Registered::NAME,
        HeartbeatAck::NAME,
        JobAssign::NAME,
        AudioEnd::NAME,
        JobCancel::NAME,
        JobConfirmed::NAME,
        Drain::NAME,
        ErrorMessage::NAME,
    ];

    /// Reads a frame.
    pub fn parse(text: &'a str) -> Result<Self, RequestError> {
        let kind = peek_type(text)?;
        match kind.as_ref() {
            Registered::NAME => parse_text(text).map(Self::Registered),
            HeartbeatAck::NAME => parse_text(text).map(Self::HeartbeatAck),
            JobAssign::NAME => parse_text(text).map(Self::JobAssign),
            AudioEnd::NAME => parse_text(text).map(Self::AudioEnd),
            JobCancel::NAME => parse_text(text).map(Self::JobCancel),
            JobConfirmed::NAME => parse_text(text).map(Self::JobConfirmed),
            Drain::NAME => parse_text(text).map(Self::Drain),
            ErrorMessage::NAME => parse_text(text).map(Self::Error),
            unknown => Err(unknown_type(unknown, &Self::TYPES)),
        }
    }

    /// The frame as text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a message has text keys and writes into memory")
    }
}

/// The registration was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "registered")]
#[schemars(rename = "Registered")]
pub struct Registered {
    /// Its name from now on.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<NodeId>")]
    pub node_id: NodeId,
    /// Number of this incarnation.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<Epoch>")]
    pub epoch: Epoch,
    /// How often it has to say that it is alive.
    pub heartbeat_interval_ms: u64,
    /// How many exact pools it belongs to.
    #[serde(default)]
    pub pairs: u64,
}

impl Message for Registered {
    const NAME: &'static str = "registered";
}

/// The heartbeat was taken.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "heartbeat_ack")]
#[schemars(rename = "HeartbeatAck")]
pub struct HeartbeatAck {
    /// Attempts that it should stop: nobody waits for them.
    pub cancel: Vec<JobRef>,
    /// Whether it should finish what it has and take no more.
    pub drain: bool,
}

impl Message for HeartbeatAck {
    const NAME: &'static str = "heartbeat_ack";
}

/// A job to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "job_cancel")]
#[schemars(rename = "JobCancel")]
pub struct JobCancel<'a> {
    /// Which job.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<JobId>")]
    pub job_id: JobId,
    /// Which try.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<Attempt>")]
    pub attempt_id: Attempt,
    /// Why.
    #[serde(borrow)]
    pub reason: Cow<'a, str>,
}

impl Message for JobCancel<'_> {
    const NAME: &'static str = "job_cancel";
}

/// A result or a failure has arrived; the node may forget it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "job_confirmed")]
#[schemars(rename = "JobConfirmed")]
pub struct JobConfirmed {
    /// Which job.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<JobId>")]
    pub job_id: JobId,
    /// Which try.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<Attempt>")]
    pub attempt_id: Attempt,
    /// Whether it was used; if not, the job had moved on.
    pub accepted: bool,
}

impl Message for JobConfirmed {
    const NAME: &'static str = "job_confirmed";
}

/// Finish what you have and take no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "drain")]
#[schemars(rename = "Drain")]
pub struct Drain {}

impl Message for Drain {
    const NAME: &'static str = "drain";
}

/// Something was wrong with what the node said, or with the node being there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "error")]
#[schemars(rename = "ErrorMessage")]
pub struct ErrorMessage<'a> {
    /// The code; a text, so that a node can read codes that are newer than itself.
    #[serde(borrow)]
    pub error: Cow<'a, str>,
    /// What happened and what to do.
    #[serde(borrow)]
    pub detail: Cow<'a, str>,
    /// Whether the socket will be closed.
    pub fatal: bool,
}

impl ErrorMessage<'_> {
    /// The code, unless it is one that this version does not know.
    pub fn code(&self) -> Option<ErrorCode> {
        ErrorCode::from_name(&self.error)
    }
}

impl<'a> ErrorMessage<'a> {
    /// An error with a code and a sentence.
    pub fn new(code: ErrorCode, detail: impl Into<Cow<'a, str>>, fatal: bool) -> Self {
        Self { error: Cow::Borrowed(code.as_str()), detail: detail.into(), fatal }
    }
}

impl Message for ErrorMessage<'_> {
    const NAME: &'static str = "error";
}
