//! What can go wrong between a caller and a store.
//!
//! A refusal that follows from the state (stale, full, conflict) is an ordinary reply. A
//! [`StoreError`] means that the operation was not carried out, or that its outcome is unknown.

/// Why an operation gave no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum StoreError {
    /// The store was not reached; nothing was changed.
    #[error("the store is unreachable ({detail}); nothing was changed, try again later")]
    Unavailable { detail: String },
    /// The store did not reply in time; the operation may have been carried out.
    #[error("the store did not reply within {waited_ms} ms; the operation may have been done")]
    TimedOut { waited_ms: u64 },
    /// A bound was reached; nothing was changed. `what` is the subject of the message.
    #[error("{what} is limited to {limit}; nothing was changed")]
    LimitReached { what: &'static str, limit: usize },
    /// Another version of the program wrote the store's data; nothing was changed. `found` is 0 if
    /// the data is from before formats had numbers.
    #[error(
        "the store holds data of format {found}, and this program reads format {known}; use \
         another store.key_prefix, delete the keys with this prefix, or run the version that \
         wrote them"
    )]
    OtherFormat { found: u64, known: u64 },
    /// The store holds a record that cannot be read.
    #[error("the store holds a record that cannot be read: {detail}")]
    Corrupt { detail: String },
}

impl StoreError {
    /// The error code that users see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } | Self::TimedOut { .. } | Self::OtherFormat { .. } => {
                "SCHEDULER_DEPENDENCY_DOWN"
            }
            Self::LimitReached { .. } => "RATE_LIMITED",
            Self::Corrupt { .. } => "INTERNAL",
        }
    }

    /// Whether the same call may be made again. Every operation is idempotent (by attempt,
    /// incarnation, token, term or epoch) except for sending on the bus, whose receivers are. So a
    /// call that timed out may be repeated.
    pub fn is_safe_to_retry(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::TimedOut { .. } | Self::OtherFormat { .. })
    }

    /// Refuses `size` above `limit`.
    pub fn check_limit(what: &'static str, size: usize, limit: usize) -> Result<()> {
        match size <= limit {
            true => Ok(()),
            false => Err(Self::LimitReached { what, limit }),
        }
    }
}

/// The result of every operation of a store.
pub type Result<T> = std::result::Result<T, StoreError>;
