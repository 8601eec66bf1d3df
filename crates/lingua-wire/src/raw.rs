//! JSON that is passed on as it came.
//!
//! A node's result goes to the client without being taken apart: its extra fields survive, and the
//! scheduler does not pay for them.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::RequestError;

/// A well-formed JSON value as text.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Checks that the text is JSON and takes it.
    pub fn new(text: String) -> Result<Self, RequestError> {
        let raw = RawValue::from_string(text)
            .map_err(|error| RequestError::invalid("", &format!("not JSON: {error}")))?;
        Ok(Self(raw))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The text, to be kept elsewhere.
    pub fn into_text(self) -> Box<str> {
        self.0.into()
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        self.as_str().starts_with('{')
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for RawJson {}
