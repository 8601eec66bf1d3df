//! From what the client library says to what the contract knows.
//!
//! Start at [`FailureKind::of`]. The question that matters is whether the operation may have been carried
//! out: a refusal by the server changed nothing; a connection that broke while waiting leaves it open.

use std::time::Duration;

use lingua_store::StoreError;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Why a store could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The settings make no sense to the client library.
    #[error("the store cannot be used with these settings: {0}")]
    Settings(String),
    /// No server answered.
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

    /// Whether trying again may help by itself.
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
    /// The server cannot do it at present; nothing was changed.
    Refused,
    /// A mistake of ours or a record that makes no sense.
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

    /// What the caller of an operation is told.
    pub(crate) fn tell(self, error: &RedisError, waited: Duration) -> StoreError {
        let waited_ms = waited.as_millis() as u64;
        match self {
            Self::Broken | Self::Silent => StoreError::TimedOut { waited_ms },
            Self::NotMaster | Self::Refused => unavailable(error),
            Self::NoScript | Self::Wrong => StoreError::Corrupt { detail: error.to_string() },
        }
    }
}

/// Nothing was sent, or the server refused it.
pub(crate) fn unavailable(error: &RedisError) -> StoreError {
    StoreError::Unavailable { detail: error.to_string() }
}
