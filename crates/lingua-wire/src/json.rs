//! How the core's values look in JSON: names and languages as text, epochs and fences as numbers,
//! states as words.
//!
//! The core knows nothing of JSON. A field that holds one of its values is marked
//! `#[serde(with = "As::<JobId>")]`: [`As`] reads the value, writes it and gives its JSON Schema.
//! [`BoundedList`] does the same for lists, and [`text`] reads optional text without a copy.
//!
//! Invariant: what is read is a valid value of the core, or an error that shows what was sent.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use lingua_core::id::NAME_BYTES_MAX;
use lingua_core::job::JobState;
use lingua_core::label::{LABEL_BYTES_MAX, LABELS_MAX};
use lingua_core::lang::{AUTO, LANG_BYTES_MAX};
use lingua_core::{
    Attempt, Epoch, Fence, Health, InstanceId, JobId, Lang, LangPair, NodeId, NodeLabel, NodeState,
    Service, ServiceSet, Source, Term,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::error::shown;
use crate::limits::SERVICES_MAX;
use crate::node::JobRef;

/// How an error about a text that is no job id reads; see [`TextVisitor::visit_str`].
pub(crate) const NO_JOB_ID: &str = " is not a job id: ";

/// A value that has a JSON form.
pub(crate) trait JsonForm: Sized {
    /// Name of its schema; a schema without a name is repeated wherever it is used.
    const NAME: Option<&'static str>;

    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error>;
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error>;
    fn schema(generator: &mut SchemaGenerator) -> Schema;
}

/// Marks a field whose type is `T`: `#[serde(with = "As::<T>")]`.
pub(crate) struct As<T>(T);

impl<T: JsonForm> As<T> {
    pub(crate) fn serialize<S: Serializer>(value: &T, out: S) -> Result<S::Ok, S::Error> {
        value.write(out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        T::read(from)
    }
}

impl<'de, T: JsonForm> Deserialize<'de> for As<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::read(from).map(Self)
    }
}

impl<T: JsonForm> JsonSchema for As<T> {
    fn inline_schema() -> bool {
        T::NAME.is_none()
    }

    fn schema_name() -> Cow<'static, str> {
        T::NAME.unwrap_or_default().into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::schema(generator)
    }
}

struct AsRef<'a, T>(&'a T);

impl<T: JsonForm> Serialize for AsRef<'_, T> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.0.write(out)
    }
}

impl<T: JsonForm> JsonForm for Option<T> {
    const NAME: Option<&'static str> = None;

    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.as_ref().map(AsRef).serialize(out)
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Option::<As<T>>::deserialize(from)?.map(|item| item.0))
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        Option::<As<T>>::json_schema(generator)
    }
}

impl JsonForm for Vec<NodeLabel> {
    const NAME: Option<&'static str> = None;

    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(self.iter().map(AsRef))
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(BoundedList::<NodeLabel, LABELS_MAX>::deserialize(from)?.unwrap_or_default())
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        BoundedList::<NodeLabel, LABELS_MAX>::json_schema(generator)
    }
}

/// Marks an `Option<Vec<T>>` of at most `MAX` entries. Reading stops at the first one too many.
pub(crate) struct BoundedList<T, const MAX: usize>(PhantomData<T>);

impl<T, const MAX: usize> Default for BoundedList<T, MAX> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: JsonForm, const MAX: usize> BoundedList<T, MAX> {
    pub(crate) fn serialize<S: Serializer>(
        list: &Option<Vec<T>>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.collect_seq(list.iter().flatten().map(AsRef))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Vec<T>>, D::Error> {
        from.deserialize_option(Self::default())
    }
}

impl<'de, T: JsonForm, const MAX: usize> Visitor<'de> for BoundedList<T, MAX> {
    type Value = Option<Vec<T>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} entries")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(As(entry)) = seq.next_element()? {
            if list.len() == MAX {
                let what = format_args!("the list has more than {MAX} entries; send at most {MAX}");
                return Err(A::Error::custom(what));
            }
            list.push(entry);
        }
        Ok(Some(list))
    }
}

impl<T: JsonForm, const MAX: usize> JsonSchema for BoundedList<T, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "BoundedList".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<As<T>>();
        json_schema!({"type": ["array", "null"], "items": items, "maxItems": MAX})
    }
}

/// Reads optional text and borrows it from the message where that is possible. serde borrows a
/// `Cow` by itself, but not an `Option` of one.
pub(crate) fn text<'de: 'a, 'a, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Cow<'a, str>>, D::Error> {
    #[derive(serde::Deserialize)]
    struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);

    Ok(Option::<Borrowed<'a>>::deserialize(from)?.map(|text| text.0))
}

fn read_text<'de, T, D: Deserializer<'de>>(
    from: D,
    what: &'static str,
    parse: fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    from.deserialize_str(TextVisitor { what, parse })
}

struct TextVisitor<T> {
    what: &'static str,
    parse: fn(&str) -> Result<T, String>,
}

impl<T> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as text", self.what)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text)
            .map_err(|why| E::custom(format_args!("{} is not {}: {why}", shown(text), self.what)))
    }
}

fn parse<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|why: T::Err| why.to_string())
}

macro_rules! json_form {
    ($Type:ty, $name:expr, |$value:ident, $out:ident| $write:expr, |$from:ident| $read:expr,
     |$generator:pat_param| $schema:expr) => {
        impl JsonForm for $Type {
            const NAME: Option<&'static str> = $name;

            fn write<S: Serializer>(&self, $out: S) -> Result<S::Ok, S::Error> {
                let $value = self;
                $write
            }

            fn read<'de, D: Deserializer<'de>>($from: D) -> Result<Self, D::Error> {
                $read
            }

            fn schema($generator: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

/// Types that serde and schemars know already.
macro_rules! derived {
    ($($Type:ty),*) => {$(json_form!(
        $Type,
        None,
        |value, out| value.serialize(out),
        |from| Self::deserialize(from),
        |generator| generator.subschema_for::<Self>()
    );)*};
}

derived!(String, (String, String), JobRef);

macro_rules! texts {
    ($($Type:ty, $name:literal, $what:literal, $description:literal, {$($bound:tt)*};)*) => {
        $(json_form!(
            $Type,
            Some($name),
            |value, out| out.collect_str(value),
            |from| read_text(from, $what, parse),
            |_| json_schema!({"type": "string", "description": $description, $($bound)*})
        );)*
    };
}

/// Letters, digits and what needs no escaping anywhere; see the core's names.
const NAME_PATTERN: &str = "^[A-Za-z0-9_.:@-]+$";

texts! {
    JobId, "JobId", "a job id", "The id of a job.", {"pattern": "^job-[0-9a-f]{32}$"};
    NodeId, "NodeId", "a node id", "The id of a node.",
        {"pattern": NAME_PATTERN, "maxLength": NAME_BYTES_MAX};
    InstanceId, "InstanceId", "an instance id", "The id of a scheduler process.",
        {"pattern": NAME_PATTERN, "maxLength": NAME_BYTES_MAX};
    NodeLabel, "NodeLabel", "a label", "A label of a node, such as eu or region:eu.",
        {"pattern": NAME_PATTERN, "maxLength": LABEL_BYTES_MAX};
    Lang, "Language", "a language", "A BCP-47 language tag, such as zh or pt-BR.",
        {"maxLength": LANG_BYTES_MAX};
    LangPair, "Pool", "a pool", "zh:en, or *:en for the mixed pool.",
        {"pattern": "^[^:]+:[^:]+$"};
}

json_form!(
    Source,
    Some("SourceLanguage"),
    |value, out| out.serialize_str(match value {
        Self::Known(lang) => lang.as_str(),
        Self::Auto => AUTO,
    }),
    |from| read_text(from, "a language or 'auto'", parse),
    |_| json_schema!({
        "type": "string",
        "description": format!("A BCP-47 language tag, or {AUTO}."),
        "maxLength": LANG_BYTES_MAX,
    })
);

macro_rules! numbers {
    ($($Type:ident, $name:literal, $description:literal;)*) => {$(json_form!(
        $Type,
        Some($name),
        |value, out| out.serialize_u64(value.0),
        |from| u64::deserialize(from).map(Self),
        |_| json_schema!({
            "type": "integer", "format": "uint64", "description": $description, "minimum": 0
        })
    );)*};
}

numbers! {
    Epoch, "Epoch", "Number of a node's incarnation; each registration raises it.";
    Fence, "Fence", "Rises with every assignment.";
    Term, "Term", "Number of a leader's term of office; each election raises it.";
}

json_form!(
    Attempt,
    Some("Attempt"),
    |value, out| out.serialize_u32(value.0),
    |from| {
        let number = u64::deserialize(from)?;
        u32::try_from(number).ok().filter(|&attempt| attempt >= 1).map(Self).ok_or_else(|| {
            D::Error::custom(format_args!("there is no attempt {number}; attempts count from 1"))
        })
    },
    |_| json_schema!({
        "type": "integer",
        "format": "uint32",
        "description": "A try of a job, counted from 1.",
        "minimum": 1,
        "maximum": u32::MAX,
    })
);

macro_rules! words {
    ($($Type:ident, $name:literal, $what:literal, $description:literal;)*) => {$(json_form!(
        $Type,
        Some($name),
        |value, out| out.serialize_str(value.as_str()),
        |from| read_text(from, $what, parse),
        |_| json_schema!({
            "type": "string", "description": $description, "enum": $Type::ALL.map($Type::as_str)
        })
    );)*};
}

words! {
    Health, "Health", "a node's health", "How a node describes its own condition.";
    NodeState, "NodeState", "a node's state", "State of a node.";
    JobState, "JobState", "a job's state", "State of a job.";
    Service, "Service", "a service", "What a node can offer.";
}

json_form!(
    ServiceSet,
    Some("Services"),
    |value, out| out.collect_seq(value.iter().map(Service::as_str)),
    |from| {
        let services = BoundedList::<Service, SERVICES_MAX>::deserialize(from)?;
        Ok(services.into_iter().flatten().collect())
    },
    |generator| json_schema!({
        "type": "array",
        "description": "Services, each of them once.",
        "items": generator.subschema_for::<As<Service>>(),
        "maxItems": SERVICES_MAX,
    })
);
