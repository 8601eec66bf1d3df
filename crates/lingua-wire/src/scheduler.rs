//! Messages of the scheduler to nodes.
//!
//! Start at [`SchedulerMessage`]; [`JobAssign`] is the one that matters. It borrows its texts,
//! because it is written once for every attempt. Every struct writes its own `type`, so it can also
//! be written without the enum around it.
//!
//! The audio of a job may follow while it is being spoken: see [`tag`].

use std::borrow::Cow;

use lingua_core::{Attempt, Epoch, Fence, JobId, Lang, NodeId, NodeLabel, ServiceSet, Source};

use crate::audio::Audio;
use crate::error::ErrorCode;
use crate::json::BoundedList;
use crate::message::frames;
use crate::node::JobRef;
use crate::wire_types::wire_types;

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

wire_types! {
    /// The node is registered.
    #[serde(tag = "type", rename = "registered")]
    #[schemars(rename = "Registered")]
    pub struct Registered {
        /// The node's id from now on.
        pub node_id: NodeId,
        /// Number of this incarnation of the node.
        pub epoch: Epoch,
        /// How often the node has to send a heartbeat, in milliseconds.
        pub heartbeat_interval_ms: u64,
        /// How many pools of a known source language the node belongs to.
        #[serde(default)]
        pub pairs: u64,
    }

    /// The response to a heartbeat.
    #[derive(Default)]
    #[serde(tag = "type", rename = "heartbeat_ack")]
    #[schemars(rename = "HeartbeatAck")]
    pub struct HeartbeatAck {
        /// Attempts that the node should stop, because their results are not needed.
        pub cancel: Vec<JobRef>,
        /// Whether the node should finish its jobs and accept no more.
        pub drain: bool,
    }

    /// A job for the node.
    #[serde(tag = "type", rename = "job_assign")]
    #[schemars(rename = "JobAssign")]
    pub struct JobAssign<'a> {
        /// The same in every attempt of the job.
        pub job_id: JobId,
        /// The try of the job, from 1.
        pub attempt_id: Attempt,
        /// Rises with every assignment; a node refuses a fence that is not above the highest it
        /// saw.
        pub fence: Fence,
        /// The conversation that the job belongs to.
        pub session_id: Cow<'a, str>,
        /// Source language, or `auto`.
        pub src_lang: Source,
        /// Language to translate to.
        pub tgt_lang: Lang,
        /// Address of audio that is stored elsewhere.
        pub audio_ref: Option<Cow<'a, str>>,
        /// Audio inside the message or in the frames that follow.
        pub audio: Option<Audio<'a>>,
        /// Text instead of audio: recognition is skipped.
        pub text: Option<Cow<'a, str>>,
        /// With `auto`: the source is one of these two languages, and the target is the other one.
        #[serde(default, with = "BoundedList::<Lang, 2>")]
        pub two_way: Option<Vec<Lang>>,
        /// Earlier texts of this conversation, the oldest first.
        #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
        pub context: Vec<Cow<'a, str>>,
        /// What the client asked for.
        #[serde(default)]
        pub options: AssignOptions,
        /// How many milliseconds are left. A duration and not a moment, because clocks differ.
        #[serialize_always]
        pub deadline_ms: Option<u64>,
        /// The binding that chose this node.
        pub bind: Option<Bind<'a>>,
        /// Names the job in all logs.
        pub trace_id: Cow<'a, str>,
    }

    /// The options of the client that the node has to know.
    #[derive(Default)]
    #[serde(default)]
    pub struct AssignOptions {
        /// The result must include speech.
        pub require_tts: bool,
        /// Further services that the job needs.
        pub services: ServiceSet,
        /// A higher number is more urgent.
        pub priority: i32,
        /// Labels that the client required.
        #[serde(with = "crate::json::As::<Vec<NodeLabel>>", skip_serializing_if = "Vec::is_empty")]
        pub labels: Vec<NodeLabel>,
    }

    /// Segments with one key go to one node while that is possible.
    pub struct Bind<'a> {
        /// The key that the client gave.
        pub bind_key: Cow<'a, str>,
        /// Whether earlier segments ran on another node, so that their context is not here.
        #[serde(default)]
        pub moved: bool,
    }

    /// The response of `GET /v1/node/{id}/jobs`.
    pub struct NodeJobs<'a> {
        /// Jobs for the node; audio is inside, because no frame can follow.
        #[serde(borrow)]
        pub jobs: Vec<JobAssign<'a>>,
    }

    /// The audio of a streamed job is complete.
    #[derive(Copy)]
    #[serde(tag = "type", rename = "audio_end")]
    #[schemars(rename = "AudioEnd")]
    pub struct AudioEnd {
        /// The job whose audio this is.
        pub job_id: JobId,
        /// The try of the job, from 1.
        pub attempt_id: Attempt,
        /// How many bytes the audio has, without tags.
        #[serde(default)]
        pub bytes: u64,
    }

    /// Stop a job: its result is not needed any more.
    #[serde(tag = "type", rename = "job_cancel")]
    #[schemars(rename = "JobCancel")]
    pub struct JobCancel<'a> {
        /// The job to stop.
        pub job_id: JobId,
        /// The try of the job, from 1.
        pub attempt_id: Attempt,
        /// For the log and for the handler.
        pub reason: Cow<'a, str>,
    }

    /// A result or a failure has arrived; the node need not send it again.
    #[derive(Copy)]
    #[serde(tag = "type", rename = "job_confirmed")]
    #[schemars(rename = "JobConfirmed")]
    pub struct JobConfirmed {
        /// The job that the report was about.
        pub job_id: JobId,
        /// The try of the job, from 1.
        pub attempt_id: Attempt,
        /// Whether it counted; false if the job had ended or moved to another attempt.
        pub accepted: bool,
    }

    /// Finish the jobs that run and accept no more.
    #[derive(Copy, Default)]
    #[serde(tag = "type", rename = "drain")]
    #[schemars(rename = "Drain")]
    pub struct Drain {}

    /// The scheduler refused a message or closes the connection. Sessions get the same message.
    #[serde(tag = "type", rename = "error")]
    #[schemars(rename = "ErrorMessage")]
    pub struct ErrorMessage<'a> {
        /// The code; text, so that a receiver can read codes newer than itself.
        pub error: Cow<'a, str>,
        /// What is wrong and what to do.
        pub detail: Cow<'a, str>,
        /// Whether the scheduler closes the socket after this message.
        pub fatal: bool,
    }
}

/// Bytes before the audio: 16 of the job's number and 4 of the attempt's, both big-endian.
pub const TAG_BYTES: usize = 20;

/// The bytes that a frame of streamed audio begins with, because several jobs may be streamed at
/// once. The audio of a job is all its frames in order, without their tags.
pub fn tag(job: JobRef) -> [u8; TAG_BYTES] {
    let mut tag = [0; TAG_BYTES];
    tag[..16].copy_from_slice(&job.job_id.number().to_be_bytes());
    tag[16..].copy_from_slice(&job.attempt_id.0.to_be_bytes());
    tag
}

/// The attempt that a frame belongs to, and its audio; `None` if the frame is too short for a tag.
pub fn untag(frame: &[u8]) -> Option<(JobRef, &[u8])> {
    let (tag, audio) = frame.split_first_chunk::<TAG_BYTES>()?;
    let (job, attempt) = tag.split_first_chunk::<16>()?;
    let job_id = JobId::new(u128::from_be_bytes(*job));
    let attempt_id = Attempt(u32::from_be_bytes(attempt.try_into().ok()?));
    Some((JobRef { job_id, attempt_id }, audio))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_reads_back_and_a_short_frame_has_none() {
        let job = JobRef { job_id: JobId::new(u128::MAX - 7), attempt_id: Attempt(3) };
        let frame = [&tag(job)[..], b"sound"].concat();
        assert_eq!(untag(&frame), Some((job, &b"sound"[..])));
        assert_eq!(untag(&tag(job)), Some((job, &b""[..])));
        assert_eq!(untag(&frame[..TAG_BYTES - 1]), None);
    }
}
