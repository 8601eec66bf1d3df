//! Translates errors of the client library into those of the contract.
//!
//! Start at [`FailureKind::of`]. What matters is whether the operation may have been carried out: a
//! refusal by the server changed nothing; after a broken connection the outcome is unknown.

use std::time::Duration;

use lingua_store::StoreError;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Why a store could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The client library refuses the settings.
    #[error("the store cannot be used with these settings: {0}")]
    Settings(String),
    /// No server replied.
    #[error("{0}")]
    Unreachable(#[from] StoreError),
}

impl ConnectError {
    /// The error code that users see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Settings(_) => "INVALID_CONFIG",
            Self::Unreachable(error) => error.code(),
        }
    }

    /// Whether another try may succeed.
    pub fn is_safe_to_retry(&self) -> bool {
        matches!(self, Self::Unreachable(_))
    }
}

/// What an error of a command means for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The server does not know the script: send it whole.
    NoScript,
    /// The connection is broken; the command may have been carried out.
    Broken,
    /// No reply in time; the command may have been carried out.
    Silent,
    /// This server is not the master any more; nothing was changed.
    NotMaster,
    /// The server refuses the command for now; nothing was changed.
    Refused,
    /// A bug, or a record that cannot be read.
    Wrong,
}

impl FailureKind {
    pub(crate) fn of(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => Self::NoScript,
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => {
                Self::NotMaster
            }
            ErrorKind::Server(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::Moved
                | ServerErrorKind::Ask
                | ServerErrorKind::NoPerm,
            )
            | ErrorKind::AuthenticationFailed
            | ErrorKind::MasterNameNotFoundBySentinel
            | ErrorKind::ClusterConnectionNotFound => Self::Refused,
            ErrorKind::Io if error.is_timeout() => Self::Silent,
            ErrorKind::Io => Self::Broken,
            _ => match error.code() {
                Some(
                    "OOM" | "MISCONF" | "NOREPLICAS" | "BUSY" | "NOAUTH" | "WRONGPASS"
                    | "UNBLOCKED",
                ) => Self::Refused,
                _ => Self::Wrong,
            },
        }
    }

    /// The error for the caller of an operation.
    pub(crate) fn to_store_error(self, error: &RedisError, waited: Duration) -> StoreError {
        let waited_ms = waited.as_millis() as u64;
        match self {
            Self::Broken | Self::Silent => StoreError::TimedOut { waited_ms },
            Self::NotMaster | Self::Refused => unavailable(error),
            Self::NoScript | Self::Wrong => StoreError::Corrupt { detail: error.to_string() },
        }
    }
}

/// The command was not sent, or the server refused it.
pub(crate) fn unavailable(error: &RedisError) -> StoreError {
    StoreError::Unavailable { detail: error.to_string() }
}
