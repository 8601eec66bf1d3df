//! What can go wrong between a caller and a store.
//!
//! A refusal that follows from the state (stale, full, conflict) is an ordinary reply of its
//! operation; an [`StoreError`] means that the operation was not carried out, or that nobody knows.

/// Why an operation gave no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store was not reached; nothing was changed.
    #[error("the store is unreachable ({detail}); nothing was changed, try again when it is back")]
    Unavailable {
        /// What the connection said.
        detail: String,
    },
    /// The store was asked and did not answer in time; the operation may have been carried out.
    #[error(
        "the store did not answer within {waited_ms} ms; the operation may have been carried out"
    )]
    TimedOut {
        /// How long it was waited for.
        waited_ms: u64,
    },
    /// A bound was reached; nothing was changed.
    #[error("{what} is limited to {limit}; nothing was changed")]
    LimitReached {
        /// What there are too many of.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// The store holds something that cannot be read.
    #[error("the store holds a record that cannot be read: {detail}")]
    Corrupt {
        /// Which, and what is wrong with it.
        detail: String,
    },
}

impl StoreError {
    /// The error code that users see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } | Self::TimedOut { .. } => "SCHEDULER_DEPENDENCY_DOWN",
            Self::LimitReached { .. } => "RATE_LIMITED",
            Self::Corrupt { .. } => "INTERNAL",
        }
    }

    /// Whether the same call may simply be made again. Every operation of the contract is idempotent
    /// (by attempt, incarnation, token, term or epoch) except for sending on the bus, whose
    /// receivers are; so a call that timed out may be repeated.
    pub fn is_safe_to_retry(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::TimedOut { .. })
    }
}

/// What every operation of a store gives.
pub type Result<T> = std::result::Result<T, StoreError>;
