//! Labels in JSON: a list of texts, or an object whose entries stand for `key:value`.
//!
//! Start at [`LabelList`]. Invariant: a list is refused at its first entry too many.

use std::fmt;

use lingua_core::label::{LABELS_MAX, LabelsError};
use lingua_core::{NodeLabel, RequiredLabels};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::Serializer;

use crate::error::{RequestError, invalid};
use crate::json::{As, BoundedList};

type Texts = BoundedList<NodeLabel, LABELS_MAX>;

/// Marks an `Option<Vec<NodeLabel>>`. It is written as a list.
pub(crate) struct LabelList;

impl LabelList {
    #[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
    pub(crate) fn serialize<S: Serializer>(
        list: &Option<Vec<NodeLabel>>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        Texts::serialize(list, out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Vec<NodeLabel>>, D::Error> {
        from.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for LabelList {
    type Value = Option<Vec<NodeLabel>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list or an object of at most {LABELS_MAX} labels")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        Texts::default().visit_seq(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some((key, value)) = map.next_entry::<String, String>()? {
            if list.len() == LABELS_MAX {
                let what = format_args!("there are more than {LABELS_MAX} labels");
                return Err(A::Error::custom(what));
            }
            list.push(NodeLabel::new(&format!("{key}:{value}")).map_err(A::Error::custom)?);
        }
        Ok(Some(list))
    }
}

impl JsonSchema for LabelList {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "LabelList".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let label = generator.subschema_for::<As<NodeLabel>>();
        json_schema!({
            "type": ["array", "object", "null"],
            "items": label,
            "maxItems": LABELS_MAX,
            "additionalProperties": { "type": "string" },
            "maxProperties": LABELS_MAX,
        })
    }
}

/// The labels that a node must have, from this field.
pub(crate) fn required(
    field: &str,
    labels: Option<Vec<NodeLabel>>,
) -> Result<RequiredLabels, RequestError> {
    let labels = RequiredLabels::new(labels.into_iter().flatten());
    labels.map_err(|why: LabelsError| invalid!(field, "{why}"))
}
