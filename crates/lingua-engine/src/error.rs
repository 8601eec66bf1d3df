//! Why the engine refuses jobs and reports.

use lingua_core::job::Refusal;
use lingua_core::{Epoch, Tenant};
use lingua_store::StoreError;
use lingua_store::contract::JOB_BYTES_MAX;

use crate::byte_budget::OverBudget;
use crate::usage_limit::OverLimit;

/// Why a job was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum SubmitError {
    /// The instance runs as many jobs as it may.
    #[error("this instance has {limit} open jobs already; try again later")]
    Overloaded { limit: usize },
    /// Its jobs hold as many bytes as they may.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// Its tenant or token has reached a limit.
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
    /// The instance is stopping.
    #[error("this instance is stopping; send the job to another one")]
    Stopping,
    /// The client's key stands for a job with another body.
    #[error(
        "this Idempotency-Key was used with another body; use a new key for a new job, or send \
         the same body to get the same job"
    )]
    KeyReused,
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] lingua_store::StoreError),
}

impl SubmitError {
    /// The error code that users see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Overloaded { .. } => "RATE_LIMITED",
            Self::OverBudget(error) => error.code(),
            Self::OverLimit(error) => error.code(),
            Self::Stopping => "SCHEDULER_DEPENDENCY_DOWN",
            Self::KeyReused => "IDEMPOTENCY_KEY_REUSED",
            // It will not fit later either.
            Self::Store(StoreError::LimitReached { limit: JOB_BYTES_MAX, .. }) => {
                "PAYLOAD_TOO_LARGE"
            }
            Self::Store(error) => error.code(),
        }
    }
}

/// Why a node's report or heartbeat was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum NodeError {
    /// The node is not registered.
    #[error("this node is not registered here; register again")]
    NotRegistered,
    /// It polls for jobs, but is connected over WebSocket.
    #[error("this node is connected over WebSocket; register over HTTP to poll for jobs")]
    NotPolling,
    /// A later registration of the same node is in force.
    #[error("a later registration of this node is in force (epoch {current}); register again")]
    StaleEpoch { current: Epoch },
    /// There is no place for another node.
    #[error("all {limit} places for nodes are taken; sign nodes off or run a second fleet")]
    FleetFull { limit: usize },
    /// The node belongs to another token.
    #[error(
        "another token registered this node id; use that token, or another id. An id is free again \
         when its record is removed"
    )]
    Taken,
    /// The token has as many nodes as it may.
    #[error("{limit} node ids belong to this token already; sign nodes off or raise its nodes_max")]
    TooMany { limit: usize },
    /// The tenant has as many nodes at this instance as it may.
    #[error(
        "{limit} node ids of tenant {tenant} were registered here already; sign nodes off or raise \
         the tenant's nodes_max"
    )]
    TooManyOfTenant { tenant: Tenant, limit: usize },
    /// There is no such job.
    #[error("there is no such job")]
    NoSuchJob,
    /// The report is not about the job's current attempt.
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
            Self::FleetFull { .. } => "FLEET_FULL",
            Self::Taken => "NODE_ID_TAKEN",
            Self::TooMany { .. } | Self::TooManyOfTenant { .. } => "FORBIDDEN",
            Self::NoSuchJob => "JOB_NOT_FOUND",
            Self::Refused(refusal) => refusal.code(),
            Self::Store(error) => error.code(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_is_too_long_for_the_store_is_too_large_and_not_too_many() {
        let store =
            StoreError::check_limit("a job's specification", JOB_BYTES_MAX + 1, JOB_BYTES_MAX);
        assert_eq!(SubmitError::from(store.unwrap_err()).code(), "PAYLOAD_TOO_LARGE");
        let full = StoreError::LimitReached { what: "the number of open jobs", limit: 50_000 };
        assert_eq!(SubmitError::from(full).code(), "RATE_LIMITED");
    }
}
