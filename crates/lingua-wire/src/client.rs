//! Requests of clients, and the short responses.
//!
//! | file | what it holds |
//! |---|---|
//! | `dispatch.rs` | [`Dispatch`]: the body of a request for a job |
//! | `spec.rs` | [`Dispatch::into_spec`]: checks it and makes a `JobSpec` |
//!
//! The long responses are in [`view`](crate::view).

use lingua_core::job::JobState;
use lingua_core::{Attempt, JobId, NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::As;

mod dispatch;
mod spec;

pub use dispatch::{Dispatch, DispatchOptions};

/// The response of `POST /v1/dispatch/f2f`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DispatchResponse {
    /// The new job.
    #[serde(with = "As::<JobId>")]
    pub job_id: JobId,
    /// The node that the job was sent to.
    #[serde(with = "As::<NodeId>")]
    pub node_id: NodeId,
    /// The try of the job, from 1.
    #[serde(with = "As::<Attempt>")]
    pub attempt_id: Attempt,
}

/// The response of `POST /v1/jobs/{id}/cancel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CancelResponse {
    /// Always true.
    pub ok: bool,
    /// How the job ended: `CANCELLED`, or another end that came first.
    #[serde(with = "As::<JobState>")]
    pub state: JobState,
}
