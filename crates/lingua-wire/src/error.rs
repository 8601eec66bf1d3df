//! What is wrong with a request, and the body of the response.
//!
//! Start at [`RequestError`]: a code, the field, and a sentence that says what is wrong and what to
//! do. [`ErrorBody`] is its JSON. The codes are in `error/code.rs`.
//!
//! Invariant: an error is small, however big the input was that caused it; texts are cut between
//! characters, never between bytes.

use std::fmt;

use lingua_core::JobId;

use crate::limits::{DETAIL_CHARS_MAX, LABEL_BYTES_MAX, SHOWN_CHARS_MAX};
use crate::wire_types::wire_types;

mod code;

pub use code::ErrorCode;

/// Why a message is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct RequestError {
    /// The code that users see.
    pub code: ErrorCode,
    /// The field that is wrong; empty if it is the message as a whole.
    pub field: String,
    /// What is wrong and what to do; names the field.
    pub detail: String,
}

impl RequestError {
    /// An error about a field (`""` for the message as a whole).
    pub fn new(code: ErrorCode, field: &str, what: &str) -> Self {
        let field = cut(field, LABEL_BYTES_MAX);
        let detail = match field.as_str() {
            "" => cut(what, DETAIL_CHARS_MAX),
            field => cut(&format!("{field}: {what}"), DETAIL_CHARS_MAX),
        };
        Self { code, field, detail }
    }

    /// An `INVALID_REQUEST` about a field.
    pub fn invalid(field: &str, what: &str) -> Self {
        Self::new(ErrorCode::InvalidRequest, field, what)
    }

    /// An error of the core about a field; the core gives its codes as text.
    pub(crate) fn of_core(code: &str, field: &str, why: &impl fmt::Display) -> Self {
        let code = ErrorCode::from_name(code).unwrap_or(ErrorCode::Internal);
        Self::new(code, field, &why.to_string())
    }

    /// The error code that users see.
    pub fn code(&self) -> &'static str {
        self.code.as_str()
    }
}

/// An `INVALID_REQUEST` about a field, with a formatted sentence.
macro_rules! invalid {
    ($field:expr, $($sentence:tt)+) => {
        $crate::error::RequestError::invalid($field, &format!($($sentence)+))
    };
}

pub(crate) use invalid;

wire_types! {
    /// The body of every HTTP response that is not a success.
    pub struct ErrorBody {
        /// The code; text, so that a client can read codes newer than itself.
        #[schemars(with = "ErrorCode")]
        pub error: String,
        /// What is wrong and what to do.
        pub detail: String,
        /// The field that is wrong.
        pub field: Option<String>,
        /// How long to wait before the next try, in milliseconds.
        pub retry_after_ms: Option<u64>,
        /// The job that the error is about; it may still run.
        pub job_id: Option<JobId>,
    }
}

impl ErrorBody {
    /// A body with a code and a sentence that says what is wrong and what to do.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        let (error, detail) = (code.as_str().to_owned(), detail.into());
        Self { error, detail, field: None, retry_after_ms: None, job_id: None }
    }

    /// The code, unless this version does not know it.
    pub fn code(&self) -> Option<ErrorCode> {
        ErrorCode::from_name(&self.error)
    }
}

impl From<RequestError> for ErrorBody {
    fn from(error: RequestError) -> Self {
        let field = Some(error.field).filter(|field| !field.is_empty());
        Self { field, ..Self::new(error.code, error.detail) }
    }
}

/// A value as an error repeats it: quoted, escaped, not too long.
pub(crate) fn shown(value: &str) -> String {
    format!("{:?}", cut(value, SHOWN_CHARS_MAX))
}

/// The first characters of a text.
fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut_between_characters() {
        let huge = "语".repeat(1_000_000);
        let error = RequestError::invalid(&huge, &huge);
        assert!(error.field.chars().count() <= LABEL_BYTES_MAX + 1);
        assert!(error.detail.chars().count() <= DETAIL_CHARS_MAX + 1);
        assert_eq!(shown(&huge).chars().count(), SHOWN_CHARS_MAX + 3);
    }

    #[test]
    fn codes_read_back_and_have_an_error_status() {
        for &code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_name(code.as_str()), Some(code));
            assert!((400..600).contains(&code.status()));
        }
    }
}
