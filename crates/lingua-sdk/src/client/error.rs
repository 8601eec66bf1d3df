//! Why a request failed.
//!
//! Start at [`ClientError`]: each message says what to do, because people read it in a terminal.

use lingua_wire::{ErrorBody, ErrorCode};

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum ClientError {
    /// The address cannot be the address of a scheduler.
    #[error("{url:?} is not usable: {detail}; give an address like http://127.0.0.1:7410")]
    BadUrl { url: String, detail: String },
    /// A token or key has characters that a header cannot carry.
    #[error("the {what} has characters that cannot be sent; use printable ASCII")]
    BadHeader { what: &'static str },
    /// There was no connection, or it broke.
    #[error("cannot reach {url}: {detail}: is `lingua serve` running? give its address with --url")]
    Unreachable { url: String, detail: String },
    /// The certificate of the scheduler is not trusted.
    #[error(
        "the certificate of {url} is not trusted: {detail}; if the scheduler is yours, give the \
         certificate that signed it with --ca FILE"
    )]
    Untrusted { url: String, detail: String },
    /// The file with the trusted certificates cannot be used.
    #[error("cannot trust {detail}; give a PEM file of certificates")]
    BadCa { detail: String },
    /// There was a connection, but no response in time.
    #[error(
        "{url} did not answer within {waited_ms} ms; it may still have carried out the request: \
         check before you repeat it"
    )]
    TimedOut { url: String, waited_ms: u64 },
    /// The scheduler refused the request.
    #[error("{} (status {status}): {}", .body.error, .body.detail)]
    Refused { body: Box<ErrorBody>, status: u16 },
    /// The response is not one of a scheduler.
    #[error(
        "the response of {url} (status {status}) cannot be read: {detail}; \
         is it a Lingua scheduler of this version?"
    )]
    BadResponse { url: String, status: u16, detail: String },
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
            Self::BadResponse { .. } => "BAD_ANSWER",
        }
    }

    /// Whether the same request may succeed later and cannot have been carried out now.
    pub fn is_safe_to_retry(&self) -> bool {
        match self {
            Self::Refused { body, .. } => body.code().is_some_and(ErrorCode::is_safe_to_retry),
            _ => false,
        }
    }

    /// How long to wait before the next try, if the scheduler said so.
    pub fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::Refused { body, .. } => body.retry_after_ms,
            _ => None,
        }
    }
}
