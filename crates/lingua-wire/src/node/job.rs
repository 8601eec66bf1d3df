//! What a node says about an attempt.
//!
//! Start at [`JobDone`]. The bodies of `POST /v1/job/ack`, `/done` and `/fail` are the frames
//! `job_ack`, `job_done` and `job_fail`.

use std::borrow::Cow;

use lingua_core::job::Report;
use lingua_core::{Attempt, Fence, JobId, NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{JobResult, required_node};
use crate::error::{RequestError, shown};
use crate::limits::{DETAIL_CHARS_MAX, REASON_BYTES_MAX, TEXT_BYTES_MAX};
use crate::message::{Message, at_most, check_label};
use crate::raw::RawJson;
use crate::schema::Shown;
use crate::{plain, text};

/// Names an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct JobRef {
    /// Which job.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<JobId>")]
    pub job_id: JobId,
    /// Which try.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<Attempt>")]
    pub attempt_id: Attempt,
}

macro_rules! job_message {
    ($(#[$meta:meta])* $Name:ident $(<$life:lifetime>)? { $($fields:tt)* }) => {
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        $(#[$meta])*
        pub struct $Name $(<$life>)? {
            /// Which job.
            #[serde(with = "plain")]
            #[schemars(with = "Shown<JobId>")]
            pub job_id: JobId,
            /// Which try.
            #[serde(with = "plain")]
            #[schemars(with = "Shown<Attempt>")]
            pub attempt_id: Attempt,
            /// Who says it; a socket knows.
            #[serde(with = "plain::option", default, skip_serializing_if = "Option::is_none")]
            #[schemars(with = "Option<Shown<NodeId>>")]
            pub node_id: Option<NodeId>,
            /// The fence that came with the job.
            #[serde(with = "plain::option", default, skip_serializing_if = "Option::is_none")]
            #[schemars(with = "Option<Shown<Fence>>")]
            pub fence: Option<Fence>,
            $($fields)*
        }

        impl $(<$life>)? $Name $(<$life>)? {
            /// Which attempt it is about.
            pub fn job_ref(&self) -> JobRef {
                JobRef { job_id: self.job_id, attempt_id: self.attempt_id }
            }

            /// Who says it; an error if it does not say.
            pub fn node(&self) -> Result<&NodeId, RequestError> {
                required_node(self.node_id.as_ref())
            }

            /// In the core's words, said by this node.
            pub fn report(&self, node: NodeId) -> Report {
                Report { attempt: self.attempt_id, node, fence: self.fence }
            }
        }
    };
}

job_message! {
    /// The node has the job.
    #[serde(tag = "type", rename = "job_ack")]
    #[schemars(rename = "JobAck")]
    JobAck {}
}

job_message! {
    /// What the node has so far.
    #[serde(tag = "type", rename = "job_partial")]
    #[schemars(rename = "JobPartial")]
    JobPartial<'a> {
        /// The text so far.
        #[serde(borrow)]
        pub text: Cow<'a, str>,
    }
}

job_message! {
    /// The node is done.
    #[serde(tag = "type", rename = "job_done")]
    #[schemars(rename = "JobDone")]
    JobDone<'a> {
        /// `ok`, if it is given at all.
        #[serde(
            borrow,
            default,
            deserialize_with = "text::option",
            skip_serializing_if = "Option::is_none"
        )]
        pub status: Option<Cow<'a, str>>,
        /// What came of it, passed on as it is. See [`JobResult`] for what it has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<JobResult<'static>>")]
        pub result: Option<RawJson>,
    }
}

job_message! {
    /// The node gave up, or never started.
    #[serde(tag = "type", rename = "job_fail")]
    #[schemars(rename = "JobFail")]
    JobFail<'a> {
        /// `error`, if it is given at all.
        #[serde(
            borrow,
            default,
            deserialize_with = "text::option",
            skip_serializing_if = "Option::is_none"
        )]
        pub status: Option<Cow<'a, str>>,
        /// Why, in one word.
        #[serde(borrow)]
        pub reason: Cow<'a, str>,
        /// Why, in a sentence.
        #[serde(
            borrow,
            default,
            deserialize_with = "text::option",
            skip_serializing_if = "Option::is_none"
        )]
        pub detail: Option<Cow<'a, str>>,
        /// Whether another try could help; yes unless it says no.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub retryable: Option<bool>,
    }
}

impl JobDone<'_> {
    /// What the scheduler understands of the result.
    pub fn result(&self) -> Result<Option<JobResult<'_>>, RequestError> {
        self.result.as_ref().map(JobResult::read).transpose()
    }
}

impl JobFail<'_> {
    /// The node had no room.
    pub const BUSY: &'static str = "BUSY";
    /// The node has seen a newer fence.
    pub const STALE_FENCE: &'static str = "STALE_FENCE";

    /// Whether the node refused the job instead of failing at it.
    pub fn is_refusal(&self) -> bool {
        [Self::BUSY, Self::STALE_FENCE].contains(&self.reason.as_ref())
    }

    /// Whether another try could help.
    pub fn is_retryable(&self) -> bool {
        self.retryable.unwrap_or(true)
    }
}

impl Message for JobAck {
    const NAME: &'static str = "job_ack";
}

impl Message for JobPartial<'_> {
    const NAME: &'static str = "job_partial";

    fn check(&self) -> Result<(), RequestError> {
        at_most("text", &self.text, TEXT_BYTES_MAX)
    }
}

impl Message for JobDone<'_> {
    const NAME: &'static str = "job_done";

    fn check(&self) -> Result<(), RequestError> {
        check_status(self.status.as_deref(), "ok", "a job that failed is reported as job_fail")?;
        match &self.result {
            Some(result) if !result.is_object() => {
                let what = format!("{} is not an object", shown(result.as_str()));
                Err(RequestError::invalid("result", &what))
            }
            _ => Ok(()),
        }
    }
}

impl Message for JobFail<'_> {
    const NAME: &'static str = "job_fail";

    fn check(&self) -> Result<(), RequestError> {
        check_status(self.status.as_deref(), "error", "a finished job is reported as job_done")?;
        at_most("reason", &self.reason, REASON_BYTES_MAX)?;
        check_label("reason", &self.reason)?;
        at_most("detail", self.detail.as_deref().unwrap_or_default(), 4 * DETAIL_CHARS_MAX)
    }
}

fn check_status(status: Option<&str>, expected: &str, hint: &str) -> Result<(), RequestError> {
    match status {
        Some(status) if status != expected => {
            let what = format!("{} is not {expected:?}; {hint}", shown(status));
            Err(RequestError::invalid("status", &what))
        }
        _ => Ok(()),
    }
}

/// The node leaves; it will not come back to its jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "bye")]
#[schemars(rename = "Bye")]
pub struct Bye<'a> {
    /// Why.
    #[serde(
        borrow,
        default,
        deserialize_with = "text::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub reason: Option<Cow<'a, str>>,
}

impl Message for Bye<'_> {
    const NAME: &'static str = "bye";

    fn check(&self) -> Result<(), RequestError> {
        at_most("reason", self.reason.as_deref().unwrap_or_default(), REASON_BYTES_MAX)
    }
}

/// The body of `POST /v1/node/offline`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Offline {
    /// Who leaves.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<NodeId>")]
    pub node_id: NodeId,
}

impl Message for Offline {
    const NAME: &'static str = "offline";
}

/// The answer of requests that have nothing else to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OkResponse {
    /// Always true.
    pub ok: bool,
}

impl OkResponse {
    /// Yes.
    pub const OK: Self = Self { ok: true };
}

impl Message for OkResponse {
    const NAME: &'static str = "ok_response";
}
