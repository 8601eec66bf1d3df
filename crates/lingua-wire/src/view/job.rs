//! A job as its client sees it.
//!
//! Start at [`JobView`]: the response of `GET /v1/jobs/{id}` and of `POST /v1/translate`.

use lingua_core::job::JobState;
use lingua_core::{Attempt, InstanceId, JobId, Lang, LangPair, NodeId, Source};

use crate::node::JobResult;
use crate::raw::RawJson;
use crate::wire_types::wire_types;

wire_types! {
    /// A job, as its client and operators see it.
    pub struct JobView {
        /// The id that the dispatch replied.
        pub job_id: JobId,
        /// The state of the job.
        pub state: JobState,
        /// The conversation that the job belongs to.
        pub session_id: Option<String>,
        /// Source language, or `auto`.
        pub src_lang: Source,
        /// Language to translate to.
        pub tgt_lang: Lang,
        /// The direction in the tags that the node of the current attempt registered, such as
        /// `zh:en`, if those are not the tags that were asked for.
        pub served_as: Option<LangPair>,
        /// The node of the current attempt.
        pub node_id: Option<NodeId>,
        /// The current attempt.
        pub attempt_id: Attempt,
        /// The instance that runs the job.
        pub instance_id: Option<InstanceId>,
        /// Names the job in all logs.
        pub trace_id: Option<String>,
        /// All attempts, the first one first.
        #[serde(default)]
        pub attempts: Vec<AttemptView>,
        /// How long each part took.
        #[serde(default)]
        pub timings: Timings,
        /// The text that the node has so far; absent after the end of the attempt.
        pub partial: Option<String>,
        /// The result, as the node sent it.
        #[schemars(with = "Option<JobResult<'static>>")]
        pub result: Option<RawJson>,
        /// The error code, if the job failed.
        pub error: Option<String>,
        /// Why the job failed, and what to do.
        pub detail: Option<String>,
        /// When the job was accepted.
        pub created_ms: u64,
        /// When the job last changed its state.
        pub updated_ms: u64,
        /// When the deadline passes, if the job has one.
        pub deadline_at_ms: Option<u64>,
    }

    /// One try of a job.
    pub struct AttemptView {
        /// The number of the try, from 1.
        pub attempt_id: Attempt,
        /// The node, once one was chosen.
        pub node_id: Option<NodeId>,
        /// How far the attempt got, or how it ended.
        pub state: JobState,
        /// Why the attempt failed.
        pub reason: Option<String>,
        /// When a slot was reserved.
        pub reserved_ms: Option<u64>,
        /// When the job was sent to the node.
        pub dispatched_ms: Option<u64>,
        /// When the node acknowledged the job.
        pub acked_ms: Option<u64>,
        /// When the attempt ended.
        pub ended_ms: Option<u64>,
    }

    /// How long the parts of a job took; a part that has not ended is left out.
    #[derive(Copy, Default)]
    pub struct Timings {
        /// Waiting for a slot.
        pub queue_ms: Option<u64>,
        /// From accepting the job to sending it.
        pub dispatch_ms: Option<u64>,
        /// From sending it to the acknowledgement.
        pub ack_ms: Option<u64>,
        /// From the acknowledgement to the result.
        pub run_ms: Option<u64>,
        /// From accepting the job to its end.
        pub total_ms: Option<u64>,
    }

    /// The response of `GET /v1/jobs`.
    #[derive(Default)]
    pub struct JobList {
        /// The jobs, the newest first.
        pub jobs: Vec<JobView>,
        /// Where the next page starts, if there is one.
        pub next: Option<JobId>,
    }
}
