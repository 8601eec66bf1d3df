//! Reports of a node about an attempt.
//!
//! Start at [`JobDone`]. The bodies of `POST /v1/job/ack`, `/done` and `/fail` are the frames
//! `job_ack`, `job_done` and `job_fail`.

use std::borrow::Cow;

use lingua_core::job::AttemptReport;
use lingua_core::{Attempt, Fence, JobId, NodeId};

use super::{JobResult, required_node};
use crate::error::{RequestError, invalid, shown};
use crate::limits::{DETAIL_CHARS_MAX, REASON_BYTES_MAX, TEXT_BYTES_MAX};
use crate::message::{at_most, check_label};
use crate::raw::RawJson;
use crate::wire_types::wire_types;

wire_types! {
    /// One attempt of one job.
    #[derive(Copy, Hash)]
    pub struct JobRef {
        /// The id from `job_assign`.
        pub job_id: JobId,
        /// The try of the job, from 1.
        pub attempt_id: Attempt,
    }

    /// The node leaves; its open jobs are retried elsewhere.
    #[derive(Default)]
    #[serde(tag = "type", rename = "bye")]
    #[schemars(rename = "Bye")]
    pub struct Bye<'a> {
        /// For the log.
        pub reason: Option<Cow<'a, str>>,
    }

    /// The body of `POST /v1/node/offline`.
    pub struct Offline {
        /// The node that leaves.
        pub node_id: NodeId,
    }

    /// The response to a request that only succeeds or fails.
    #[derive(Copy)]
    pub struct OkResponse {
        /// Always true.
        pub ok: bool,
    }
}

macro_rules! job_message {
    ($(#[$meta:meta])* $Name:ident $(<$life:lifetime>)? { $($fields:tt)* }) => {
        wire_types! {
            $(#[$meta])*
            pub struct $Name $(<$life>)? {
                /// The id from `job_assign`.
                pub job_id: JobId,
                /// The try of the job, from 1.
                pub attempt_id: Attempt,
                /// The node that reports; a socket knows it already.
                pub node_id: Option<NodeId>,
                /// The fence that came with the job.
                pub fence: Option<Fence>,
                $($fields)*
            }
        }

        impl $(<$life>)? $Name $(<$life>)? {
            /// The attempt that the report is about.
            pub fn job_ref(&self) -> JobRef {
                JobRef { job_id: self.job_id, attempt_id: self.attempt_id }
            }

            /// The node that reports; an error if the message names none.
            pub fn node(&self) -> Result<&NodeId, RequestError> {
                required_node(self.node_id.as_ref())
            }

            /// The report as a value of the core, made by this node.
            pub fn report(&self, node: NodeId) -> AttemptReport {
                AttemptReport { attempt: self.attempt_id, node, fence: self.fence }
            }
        }
    };
}

job_message! {
    /// The node has received the job.
    #[serde(tag = "type", rename = "job_ack")]
    #[schemars(rename = "JobAck")]
    JobAck {}
}

job_message! {
    /// The text that the node has so far.
    #[serde(tag = "type", rename = "job_partial")]
    #[schemars(rename = "JobPartial")]
    JobPartial<'a> {
        /// Replaces the text that was sent before.
        pub text: Cow<'a, str>,
    }
}

job_message! {
    /// The job is done.
    #[serde(tag = "type", rename = "job_done")]
    #[schemars(rename = "JobDone")]
    JobDone<'a> {
        /// `ok`, or left out.
        pub status: Option<Cow<'a, str>>,
        /// The result, which reaches the client unchanged. [`JobResult`] has the known fields.
        #[schemars(with = "Option<JobResult<'static>>")]
        pub result: Option<RawJson>,
    }
}

job_message! {
    /// The job failed on this node, or the node refused it.
    #[serde(tag = "type", rename = "job_fail")]
    #[schemars(rename = "JobFail")]
    JobFail<'a> {
        /// `error`, or left out.
        pub status: Option<Cow<'a, str>>,
        /// The reason as one word, such as `MODEL_LOAD_FAILED`.
        pub reason: Cow<'a, str>,
        /// The reason as a sentence, for people.
        pub detail: Option<Cow<'a, str>>,
        /// Whether another node might succeed; true if it is left out.
        pub retryable: Option<bool>,
    }
}

impl JobFail<'_> {
    /// The node had no free slot.
    pub const BUSY: &'static str = "BUSY";
    /// The node has seen a newer fence.
    pub const STALE_FENCE: &'static str = "STALE_FENCE";

    /// Whether another node might succeed.
    pub fn is_retryable(&self) -> bool {
        self.retryable.unwrap_or(true)
    }

    pub(crate) fn check_bounds(&self) -> Result<(), RequestError> {
        check_status(self.status.as_deref(), "error", "report a finished job with job_done")?;
        at_most("reason", &self.reason, REASON_BYTES_MAX)?;
        check_label("reason", &self.reason)?;
        at_most("detail", self.detail.as_deref().unwrap_or_default(), 4 * DETAIL_CHARS_MAX)
    }
}

impl JobPartial<'_> {
    pub(crate) fn check_bounds(&self) -> Result<(), RequestError> {
        at_most("text", &self.text, TEXT_BYTES_MAX)
    }
}

impl JobDone<'_> {
    /// The known fields of the result.
    pub fn result(&self) -> Result<Option<JobResult<'_>>, RequestError> {
        self.result.as_ref().map(JobResult::read).transpose()
    }

    pub(crate) fn check_bounds(&self) -> Result<(), RequestError> {
        check_status(self.status.as_deref(), "ok", "report a failed job with job_fail")?;
        match &self.result {
            Some(result) if !result.is_object() => {
                Err(invalid!("result", "{} is not a JSON object; send one", shown(result.as_str())))
            }
            _ => Ok(()),
        }
    }
}

fn check_status(status: Option<&str>, expected: &str, hint: &str) -> Result<(), RequestError> {
    match status {
        Some(status) if status != expected => {
            Err(invalid!("status", "{} is not {expected:?}; {hint}", shown(status)))
        }
        _ => Ok(()),
    }
}

impl Bye<'_> {
    pub(crate) fn check_bounds(&self) -> Result<(), RequestError> {
        at_most("reason", self.reason.as_deref().unwrap_or_default(), REASON_BYTES_MAX)
    }
}

impl OkResponse {
    /// The only value that is ever sent.
    pub const OK: Self = Self { ok: true };
}
