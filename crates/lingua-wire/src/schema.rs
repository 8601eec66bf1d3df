//! The JSON Schema of every message, from the types themselves.
//!
//! Start at [`Catalog`]. Fields that hold values of the core are marked `with = "Shown<…>"`, because the
//! core knows nothing of JSON; what those values look like is said once, in `Described`.
//!
//! Invariant: a request's schema asks for no field that reading does not ask for, and an answer's schema
//! asks for every field that writing always gives.

use std::borrow::Cow;
use std::marker::PhantomData;

use lingua_core::id::NAME_BYTES_MAX;
use lingua_core::job::JobState;
use lingua_core::lang::{AUTO, LANG_BYTES_MAX};
use lingua_core::{
    Attempt, Epoch, Fence, Health, InstanceId, JobId, Lang, LangPair, NodeId, NodeState, Service,
    ServiceSet, Source, Term,
};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use crate::error::ErrorCode;
use crate::limits::SERVICES_MAX;
use crate::node::{HEALTHS, health_name};

/// Where a document keeps the schemas that others refer to.
const PLACE: &str = "/components/schemas";

/// Gathers the schemas of messages.
///
/// A field that may be left out of what is read can still be in all that is written, so the two are
/// described apart. Types that occur in both have to look the same in both.
#[derive(Debug)]
pub struct Catalog {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

impl Default for Catalog {
    fn default() -> Self {
        let settings =
            || SchemaSettings::draft2020_12().with(|s| s.definitions_path = PLACE.into());
        Self {
            read: settings().for_deserialize().into_generator(),
            written: settings().for_serialize().into_generator(),
        }
    }
}

impl Catalog {
    /// A reference to the schema of what others send.
    pub fn request<T: JsonSchema + ?Sized>(&mut self) -> Value {
        self.read.subschema_for::<T>().to_value()
    }

    /// A reference to the schema of what is answered.
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

/// Stands for a value of the core in a schema.
pub(crate) struct Shown<T>(PhantomData<T>);

/// What a value of the core looks like in JSON.
pub(crate) trait Described {
    /// Its name among the schemas.
    const NAME: &'static str;

    fn schema() -> Schema;
}

impl<T: Described> JsonSchema for Shown<T> {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed(T::NAME)
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        T::schema()
    }
}

/// Letters, digits and what needs no escaping anywhere; see the core's names.
fn name(what: &str) -> Schema {
    json_schema!({
        "type": "string",
        "description": what,
        "pattern": "^[A-Za-z0-9_.:@-]+$",
        "maxLength": NAME_BYTES_MAX,
    })
}

fn number(what: &str, minimum: u64) -> Schema {
    json_schema!({"type": "integer", "format": "uint64", "description": what, "minimum": minimum})
}

fn word<'a>(what: &str, words: impl IntoIterator<Item = &'a str>) -> Schema {
    let words: Vec<&str> = words.into_iter().collect();
    json_schema!({"type": "string", "description": what, "enum": words})
}

macro_rules! described {
    ($($Type:ty, $name:literal, $schema:expr;)*) => {$(
        impl Described for $Type {
            const NAME: &'static str = $name;

            fn schema() -> Schema {
                $schema
            }
        }
    )*};
}

described! {
    NodeId, "NodeId", name("The name of a node.");
    InstanceId, "InstanceId", name("The name of a scheduler process.");
    JobId, "JobId", json_schema!({
        "type": "string",
        "description": "The name of a job.",
        "pattern": "^job-[0-9a-f]{32}$",
    });
    Lang, "Language", json_schema!({
        "type": "string",
        "description": "A BCP-47 language tag, such as zh or pt-BR.",
        "maxLength": LANG_BYTES_MAX,
    });
    Source, "SourceLanguage", json_schema!({
        "type": "string",
        "description": format!("A BCP-47 language tag, or {AUTO}."),
        "maxLength": LANG_BYTES_MAX,
    });
    LangPair, "Pool", json_schema!({
        "type": "string",
        "description": "zh:en, or *:en for the mixed pool.",
        "pattern": "^[^:]+:[^:]+$",
    });
    Attempt, "Attempt", json_schema!({
        "type": "integer",
        "format": "uint32",
        "description": "A try of a job, counted from 1.",
        "minimum": 1,
        "maximum": u32::MAX,
    });
    Epoch, "Epoch", number("Number of a node's incarnation; rises with every registration.", 0);
    Fence, "Fence", number("Rises with every assignment.", 0);
    Term, "Term", number("Number of a leader's reign.", 0);
    Health, "Health", word("What a node says of itself.", HEALTHS.map(health_name));
    NodeState, "NodeState", word("Where a node stands.", NodeState::ALL.map(NodeState::as_str));
    JobState, "JobState", word("Where a job stands.", JobState::ALL.map(JobState::as_str));
    Service, "Service", word("What a node can offer.", Service::ALL.map(Service::as_str));
    ServiceSet, "Services", json_schema!({
        "type": "array",
        "description": "Services, each of them once.",
        "items": word("A service.", Service::ALL.map(Service::as_str)),
        "maxItems": SERVICES_MAX,
    });
    ErrorCode, "ErrorCode", word(
        "What went wrong. A later version may know further codes.",
        ErrorCode::ALL.iter().map(|code| code.as_str()),
    );
}
