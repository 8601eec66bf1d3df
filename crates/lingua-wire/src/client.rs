//! What clients ask for, and the short answers.
//!
//! | file | what |
//! |---|---|
//! | `dispatch.rs` | [`Dispatch`]: the body as it comes |
//! | `order.rs` | [`Order`]: the same, checked and in the core's words |
//!
//! The long answers are in [`view`](crate::view).

use lingua_core::job::JobState;
use lingua_core::{Attempt, JobId, NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::message::Message;
use crate::plain;
use crate::schema::Shown;

mod dispatch;
mod order;

pub use dispatch::{Dispatch, DispatchOptions};
pub use order::{Ask, Order, OrderOptions, Payload};

/// The answer of `POST /v1/dispatch/f2f`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DispatchResponse {
    /// Which job.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<JobId>")]
    pub job_id: JobId,
    /// Where it was sent.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<NodeId>")]
    pub node_id: NodeId,
    /// Which try that was.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<Attempt>")]
    pub attempt_id: Attempt,
}

impl Message for DispatchResponse {
    const NAME: &'static str = "dispatch_response";
}

/// The answer of `POST /v1/jobs/{id}/cancel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CancelResponse {
    /// Always true.
    pub ok: bool,
    /// How the job ended: `CANCELLED`, or another end that came first.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<JobState>")]
    pub state: JobState,
}

impl Message for CancelResponse {
    const NAME: &'static str = "cancel_response";
}
