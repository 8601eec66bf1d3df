//! Why a request came to nothing.
//!
//! Start at [`ClientError`]: each variant says what to do, because people read it in a terminal.

use lingua_wire::{ErrorBody, ErrorCode};

/// Why a request came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The address is no address.
    #[error("{url:?} is not usable: {detail}; give an address like http://127.0.0.1:7410")]
    BadUrl {
        /// The address.
        url: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A header's value cannot be sent.
    #[error("the {what} has characters that cannot be sent; use printable ASCII")]
    BadHeader {
        /// Which value.
        what: &'static str,
    },
    /// Nobody answered.
    #[error("cannot reach {url}: {detail}: is `lingua serve` running? give its address with --url")]
    Unreachable {
        /// The address.
        url: String,
        /// What happened.
        detail: String,
    },
    /// Somebody answered who may be somebody else.
    #[error(
        "{url} is not trusted: {detail}; if it is yours, give the certificate that vouches for it \
         with --ca FILE"
    )]
    Untrusted {
        /// The address.
        url: String,
        /// Why not.
        detail: String,
    },
    /// The file with the certificates to trust cannot be used.
    #[error("cannot trust {detail}; give a PEM file of certificates")]
    BadCa {
        /// Which file, and what is wrong with it.
        detail: String,
    },
    /// The connection was there, but the answer did not come in time.
    #[error(
        "{url} did not answer within {waited_ms} ms; it may still have done what was asked: \
         look before you ask again"
    )]
    TimedOut {
        /// The address.
        url: String,
        /// How long the client waited.
        waited_ms: u64,
    },
    /// The scheduler said no, and why.
    #[error("{} (status {status}): {}", .body.error, .body.detail)]
    Refused {
        /// What it said.
        body: Box<ErrorBody>,
        /// The status of the answer.
        status: u16,
    },
    /// What answered does not speak as a scheduler does.
    #[error(
        "{url} answered (status {status}) with something else than expected: {detail}; \
         is it a Lingua scheduler of this version?"
    )]
    BadAnswer {
        /// The address.
        url: String,
        /// The status of the answer.
        status: u16,
        /// What is wrong with it.
        detail: String,
    },
}

impl ClientError {
    /// The error code that users see.
    pub fn code(&self) -> &str {
        match self {
            Self::BadUrl { .. } | Self::BadHeader { .. } | Self::BadCa { .. } => {
                ErrorCode::InvalidRequest.as_str()
            }
            Self::Unreachable { .. } => "UNREACHABLE",
            Self::Untrusted { .. } => "UNTRUSTED",
            Self::TimedOut { .. } => "TIMED_OUT",
            Self::Refused { body, .. } => &body.error,
            Self::BadAnswer { .. } => "BAD_ANSWER",
        }
    }

    /// Whether the same request may succeed later and cannot have been carried out now.
    pub fn is_safe_to_retry(&self) -> bool {
        match self {
            Self::Refused { body, .. } => body.code().is_some_and(ErrorCode::is_safe_to_retry),
            _ => false,
        }
    }

    /// How long the scheduler asks to wait before the next try.
    pub fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::Refused { body, .. } => body.retry_after_ms,
            _ => None,
        }
    }
}
