//! Requests of clients, and the short responses.
//!
//! Start at [`Dispatch`]: the body of `POST /v1/dispatch/f2f`, `/v1/translate` and `/v1/explain`.
//! [`Dispatch::into_spec`] in `client/spec.rs` checks it and fills in what was left out. The long
//! responses are in [`view`](crate::view).

use std::borrow::Cow;

use lingua_core::job::JobState;
use lingua_core::{Attempt, JobId, NodeId, NodeLabel, Service};

use crate::audio::Audio;
use crate::json::BoundedList;
use crate::labels::LabelList;
use crate::limits::{CONTEXT_MAX, EXCLUDE_MAX, SERVICES_MAX};
use crate::wire_types::wire_types;

mod spec;

type ContextList = BoundedList<String, CONTEXT_MAX>;
type ExcludedList = BoundedList<NodeId, EXCLUDE_MAX>;
type ServicesList = BoundedList<Service, SERVICES_MAX>;

wire_types! {
    /// A request for a job.
    #[derive(Default)]
    pub struct Dispatch<'a> {
        /// The conversation that the job belongs to.
        pub session_id: Option<Cow<'a, str>>,
        /// Source language, or `auto`.
        pub src_lang: Cow<'a, str>,
        /// Language to translate to, as a BCP 47 tag.
        pub tgt_lang: Cow<'a, str>,
        /// Address of audio that is stored elsewhere.
        pub audio_ref: Option<Cow<'a, str>>,
        /// Audio inside the request.
        pub audio: Option<Audio<'a>>,
        /// Text instead of audio: recognition is skipped.
        pub text: Option<Cow<'a, str>>,
        /// Names the job in all logs; made up if it is left out.
        pub trace_id: Option<Cow<'a, str>>,
        /// With `auto`: the source is one of these two languages, and the target is the other one.
        #[serde(default, with = "BoundedList::<String, 2>")]
        pub two_way: Option<Vec<String>>,
        /// Earlier texts of this conversation, the oldest first.
        #[serde(default, with = "ContextList")]
        pub context: Option<Vec<String>>,
        /// How the job is to be run.
        pub options: Option<DispatchOptions>,
    }

    /// How a job is to be run.
    #[derive(Default)]
    pub struct DispatchOptions {
        /// Whether the result must include speech (false).
        pub require_tts: Option<bool>,
        /// The node that should run the job.
        pub preferred_node_id: Option<NodeId>,
        /// Whether the job fails if the preferred node cannot take it (false).
        pub strict: Option<bool>,
        /// Nodes that must not run the job.
        #[serde(default, with = "ExcludedList")]
        pub exclude_node_ids: Option<Vec<NodeId>>,
        /// Segments with one key go to one node while that is possible.
        pub bind_key: Option<String>,
        /// How long the job may wait for a slot, in milliseconds.
        pub wait_ms: Option<u64>,
        /// How long the job may take altogether, in milliseconds.
        pub deadline_ms: Option<u64>,
        /// A higher number is more urgent (0).
        pub priority: Option<i64>,
        /// Whether any node that accepts public jobs may run the job (true); if false, only nodes
        /// of the caller's own tenant.
        pub public: Option<bool>,
        /// Further services that the node must offer.
        #[serde(default, with = "ServicesList")]
        pub services: Option<Vec<Service>>,
        /// Labels that the node must have; an object such as `{"region": "eu"}` stands for
        /// `["region:eu"]`.
        #[serde(default, with = "LabelList")]
        pub labels: Option<Vec<NodeLabel>>,
    }

    /// The response of `POST /v1/dispatch/f2f`.
    pub struct DispatchResponse {
        /// The new job.
        pub job_id: JobId,
        /// The node that the job was sent to.
        pub node_id: NodeId,
        /// The try of the job, from 1.
        pub attempt_id: Attempt,
    }

    /// The response of `POST /v1/jobs/{id}/cancel`.
    #[derive(Copy)]
    pub struct CancelResponse {
        /// Always true.
        pub ok: bool,
        /// How the job ended: `CANCELLED`, or another end that came first.
        pub state: JobState,
    }
}
