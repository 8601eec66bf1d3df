//! Why a node stops although nobody asked it to.
//!
//! Start at [`Error`]. A lost connection is not among them: that is tried again for ever.

use lingua_core::NodeId;
use lingua_wire::scheduler::ErrorMessage;
use lingua_wire::{ErrorCode, RequestError};

/// What another try to connect would not cure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The options describe no node that a scheduler would take.
    #[error("the node's options are not valid: {0}")]
    BadOptions(RequestError),
    /// The address is no address of a scheduler.
    #[error("{url:?} is not usable: {detail}; give an address like ws://127.0.0.1:7410/v1/node/ws")]
    BadUrl {
        /// The address.
        url: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The token has characters that no header may have.
    #[error("the token has characters that cannot be sent; use printable ASCII")]
    BadToken,
    /// The file with the certificates to trust cannot be used.
    #[error("cannot trust {detail}; give a PEM file of certificates")]
    BadCa {
        /// Which file, and what is wrong with it.
        detail: String,
    },
    /// Another process registered with the same name.
    #[error(
        "another process registered as {node_id} and took over: {detail}; \
         stop one of the two, or give them different names"
    )]
    TakenOver {
        /// The name.
        node_id: NodeId,
        /// What the scheduler said.
        detail: String,
    },
    /// The scheduler wants other credentials.
    #[error("the scheduler refused the credentials: {detail}; check the token")]
    Unauthorized {
        /// The code: `UNAUTHORIZED` or `FORBIDDEN`.
        code: ErrorCode,
        /// What the scheduler said.
        detail: String,
    },
    /// The scheduler does not take such a node.
    #[error("the scheduler refused the registration ({code}): {detail}")]
    Refused {
        /// The code.
        code: String,
        /// What the scheduler said.
        detail: String,
    },
}

impl Error {
    /// The error code that users see.
    pub fn code(&self) -> &str {
        match self {
            Self::BadOptions(error) => error.code(),
            Self::BadUrl { .. } | Self::BadToken | Self::BadCa { .. } => {
                ErrorCode::InvalidRequest.as_str()
            }
            Self::TakenOver { .. } => ErrorCode::StaleEpoch.as_str(),
            Self::Unauthorized { code, .. } => code.as_str(),
            Self::Refused { code, .. } => code,
        }
    }

    /// Never: somebody has to change something first.
    pub fn is_safe_to_retry(&self) -> bool {
        false
    }
}

/// Why a connection is over.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The next one may work.
    Lost(String),
    /// No other will.
    Fatal(Error),
}

impl Trouble {
    pub(super) fn lost(why: impl Into<String>) -> Self {
        Self::Lost(why.into())
    }

    /// What an answer to a registration that is an error means.
    pub(super) fn of_registration(error: &ErrorMessage<'_>) -> Self {
        let detail = error.detail.to_string();
        match error.code() {
            Some(code @ (ErrorCode::Unauthorized | ErrorCode::Forbidden)) => {
                Self::Fatal(Error::Unauthorized { code, detail })
            }
            // The statuses of what the client did wrong, save that it came too early.
            Some(code)
                if matches!(code.status(), 400 | 422) || code == ErrorCode::PayloadTooLarge =>
            {
                Self::Fatal(Error::Refused { code: code.as_str().to_owned(), detail })
            }
            _ => Self::Lost(format!("{}: {detail}", error.error)),
        }
    }

    /// What an error that ends the connection of a registered node means.
    pub(super) fn of_fatal(error: &ErrorMessage<'_>, node_id: &NodeId) -> Self {
        let detail = error.detail.to_string();
        match error.code() {
            Some(ErrorCode::StaleEpoch) => {
                Self::Fatal(Error::TakenOver { node_id: node_id.clone(), detail })
            }
            Some(code @ (ErrorCode::Unauthorized | ErrorCode::Forbidden)) => {
                Self::Fatal(Error::Unauthorized { code, detail })
            }
            _ => Self::Lost(format!("{}: {detail}", error.error)),
        }
    }
}
