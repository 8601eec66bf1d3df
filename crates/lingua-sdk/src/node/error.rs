//! Why a node stops by itself.
//!
//! Start at [`NodeRunError`]. A lost connection is not among them: the node connects again.

use lingua_core::NodeId;
use lingua_wire::scheduler::ErrorMessage;
use lingua_wire::{ErrorCode, RequestError};

use crate::connect::ConnectionError;

/// What another try to connect would not cure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum NodeRunError {
    /// No scheduler would accept a node with these options.
    #[error("the node's options are not valid: {0}")]
    BadOptions(RequestError),
    /// The address, the token or the certificates are wrong, or the scheduler refused the node.
    #[error(transparent)]
    Connect(#[from] ConnectionError),
    /// Another process registered with the same id.
    #[error(
        "another process registered as {node_id} and took over: {detail}; \
         stop one of the two, or give them different ids"
    )]
    TakenOver { node_id: NodeId, detail: String },
}

impl NodeRunError {
    /// The error code that users see.
    pub fn code(&self) -> &str {
        match self {
            Self::BadOptions(error) => error.code(),
            Self::Connect(error) => error.code(),
            Self::TakenOver { .. } => ErrorCode::StaleEpoch.as_str(),
        }
    }
}

/// Why a connection has ended.
#[derive(Debug)]
pub(super) enum Disconnect {
    /// The next connection may work.
    Lost(String),
    /// No other connection will.
    Fatal(NodeRunError),
}

impl Disconnect {
    pub(super) fn lost(why: impl Into<String>) -> Self {
        Self::Lost(why.into())
    }

    /// The scheduler answered a registration with an error.
    pub(super) fn at_registration(error: ErrorMessage<'_>) -> Self {
        let is_fatal = error.code().is_some_and(|code| {
            is_about_credentials(code)
                || matches!(code.status(), 400 | 422)
                || code == ErrorCode::PayloadTooLarge
        });
        Self::of_message(error, is_fatal)
    }

    /// The scheduler ended the connection of a registered node with an error.
    pub(super) fn after_registration(error: ErrorMessage<'_>, node_id: &NodeId) -> Self {
        if error.code() == Some(ErrorCode::StaleEpoch) {
            let (node_id, detail) = (node_id.clone(), error.detail.into_owned());
            return Self::Fatal(NodeRunError::TakenOver { node_id, detail });
        }
        let is_fatal = error.code().is_some_and(is_about_credentials);
        Self::of_message(error, is_fatal)
    }

    fn of_message(error: ErrorMessage<'_>, is_fatal: bool) -> Self {
        match is_fatal {
            true => Self::Fatal(ConnectionError::from(error).into()),
            false => Self::Lost(format!("{}: {}", error.error, error.detail)),
        }
    }
}

impl From<ConnectionError> for Disconnect {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::Unreachable { .. } => Self::Lost(error.to_string()),
            error => Self::Fatal(error.into()),
        }
    }
}

fn is_about_credentials(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::Unauthorized | ErrorCode::Forbidden)
}
