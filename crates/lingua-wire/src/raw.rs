//! JSON that is passed on unread.
//!
//! The result of a node goes to the client without being parsed: further fields survive, and the
//! scheduler spends no time on them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::{RequestError, invalid};

/// A well-formed JSON value as text, cheap to clone.
#[derive(Clone)]
pub struct RawJson(Arc<RawValue>);

impl RawJson {
    /// Checks that the text is JSON and takes it.
    pub fn new(text: String) -> Result<Self, RequestError> {
        let raw = RawValue::from_string(text);
        let raw = raw.map_err(|error| invalid!("", "not JSON: {error}; send a JSON value"))?;
        Ok(Self(raw.into()))
    }

    /// Writes a value as JSON.
    pub fn of(value: &impl Serialize) -> Result<Self, RequestError> {
        let raw = serde_json::value::to_raw_value(value)
            .map_err(|error| invalid!("", "no JSON form: {error}"))?;
        Ok(Self(raw.into()))
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The value, to be stored elsewhere.
    pub fn into_raw(self) -> Arc<RawValue> {
        self.0
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        self.as_str().starts_with('{')
    }
}

impl From<Arc<RawValue>> for RawJson {
    fn from(raw: Arc<RawValue>) -> Self {
        Self(raw)
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(out)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(Box::<RawValue>::deserialize(from)?.into()))
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
