//! The JSON Schema of every message, from the types themselves.
//!
//! Start at [`Catalog`]. What the core's values look like stands in `json.rs`.
//!
//! Invariant: a request's schema requires no field that reading does not require, and a response's
//! schema requires every field that writing always gives.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

/// Where a document keeps the schemas that others refer to.
const DEFINITIONS_PATH: &str = "/components/schemas";

/// Gathers the schemas of messages.
///
/// A field that may be left out of what is read can still be in all that is written, so the two are
/// described apart. Types that occur in both have to look the same in both.
#[derive(Debug)]
pub struct Catalog {
    /// For what the scheduler reads.
    pub read: SchemaGenerator,
    /// For what the scheduler writes.
    pub written: SchemaGenerator,
}

impl Default for Catalog {
    fn default() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|s| s.definitions_path = DEFINITIONS_PATH.into())
        };
        Self {
            read: settings().for_deserialize().into_generator(),
            written: settings().for_serialize().into_generator(),
        }
    }
}

impl Catalog {
    /// A reference to the schema of a message that the scheduler reads.
    pub fn request<T: JsonSchema + ?Sized>(&mut self) -> Value {
        self.read.subschema_for::<T>().to_value()
    }

    /// A reference to the schema of a message that the scheduler writes.
    pub fn answer<T: JsonSchema + ?Sized>(&mut self) -> Value {
        self.written.subschema_for::<T>().to_value()
    }

    /// The schemas by name.
    pub fn into_definitions(mut self) -> Map<String, Value> {
        let mut all = self.read.take_definitions(true);
        for (name, schema) in self.written.take_definitions(true) {
            debug_assert!(
                all.get(&name).is_none_or(|known| *known == schema),
                "{name} is read and written, and looks different"
            );
            all.insert(name, schema);
        }
        all
    }
}
