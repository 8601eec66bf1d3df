//! What the engine refuses.

use lingua_core::Epoch;
use lingua_core::job::Refusal;

/// Why a job was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Too much to do.
    #[error("this instance has {limit} open jobs already; try again later")]
    Overloaded {
        /// The bound.
        limit: usize,
    },
    /// It is about to stop.
    #[error("this instance is stopping; send the job to another one")]
    Stopping,
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] lingua_store::StoreError),
}

impl SubmitError {
    /// The error code that users see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Overloaded { .. } => "RATE_LIMITED",
            Self::Stopping => "SCHEDULER_DEPENDENCY_DOWN",
            Self::Store(error) => error.code(),
        }
    }
}

/// Why a node's word was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// Nobody here knows it.
    #[error("this node is not registered here; register again")]
    NotRegistered,
    /// It polls for jobs, but is connected over WebSocket.
    #[error("this node is connected over WebSocket; register over HTTP to poll for jobs")]
    NotPolling,
    /// A later registration of the same node is in force.
    #[error("a later registration of this node is in force (epoch {current}); register again")]
    StaleEpoch {
        /// Its epoch.
        current: Epoch,
    },
    /// There is no such job.
    #[error("there is no such job")]
    NoSuchJob,
    /// It speaks of an attempt that is not the job's present one.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] lingua_store::StoreError),
}

impl NodeError {
    /// The error code that users see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotRegistered | Self::NotPolling => "NODE_NOT_REGISTERED",
            Self::StaleEpoch { .. } => "STALE_EPOCH",
            Self::NoSuchJob => "JOB_NOT_FOUND",
            Self::Refused(refusal) => refusal.code(),
            Self::Store(error) => error.code(),
        }
    }
}
