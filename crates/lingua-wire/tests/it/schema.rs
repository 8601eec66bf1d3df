//! Checks JSON against a schema.
//!
//! Start at [`faults`]. It knows the keywords that our schemas use and fails at any other, so that
//! no keyword goes unchecked.

use lingua_wire::client::Dispatch;
use lingua_wire::node::Register;
use lingua_wire::schema::Catalog;
use lingua_wire::view::{JobView, NodeView};
use schemars::JsonSchema;
use serde_json::{Value, json};

/// What is wrong with a value, each with its path.
pub(crate) fn faults(document: &Value, value: &Value) -> Vec<String> {
    let mut found = vec![];
    Check { document, found: &mut found }.hold(document, value, "$");
    found
}

struct Check<'a> {
    document: &'a Value,
    found: &'a mut Vec<String>,
}

impl Check<'_> {
    fn hold(&mut self, schema: &Value, value: &Value, at: &str) {
        let keywords = schema.as_object().expect("a schema is an object");
        for (keyword, wanted) in keywords {
            let holds = match keyword.as_str() {
                "$ref" => {
                    let target = self.target(wanted);
                    self.hold(&target, value, at);
                    true
                }
                "type" => is_of_type(wanted, value),
                "const" => wanted == value,
                "enum" => wanted.as_array().expect("a list").contains(value),
                "anyOf" | "oneOf" => wanted.as_array().expect("a list").iter().any(|one| {
                    let mut found = vec![];
                    Check { document: self.document, found: &mut found }.hold(one, value, at);
                    found.is_empty()
                }),
                "required" => {
                    let mut names = wanted.as_array().expect("a list").iter();
                    names.all(|name| value.get(name.as_str().expect("a name")).is_some())
                }
                "properties" => {
                    for (name, schema) in wanted.as_object().expect("an object") {
                        if let Some(value) = value.get(name) {
                            self.hold(schema, value, &format!("{at}.{name}"));
                        }
                    }
                    true
                }
                "additionalProperties" | "items" => {
                    for value in children(value) {
                        self.hold(wanted, value, &format!("{at}[]"));
                    }
                    true
                }
                "prefixItems" => {
                    let schemas = wanted.as_array().expect("a list");
                    for (schema, value) in schemas.iter().zip(children(value)) {
                        self.hold(schema, value, &format!("{at}[]"));
                    }
                    true
                }
                "minimum" => value.as_f64().is_none_or(|n| n >= wanted.as_f64().expect("a number")),
                "maximum" => value.as_f64().is_none_or(|n| n <= wanted.as_f64().expect("a number")),
                "minItems" => {
                    value.as_array().is_none_or(|list| list.len() as u64 >= count(wanted))
                }
                "maxItems" => {
                    value.as_array().is_none_or(|list| list.len() as u64 <= count(wanted))
                }
                "maxProperties" => {
                    value.as_object().is_none_or(|map| map.len() as u64 <= count(wanted))
                }
                "maxLength" => {
                    value.as_str().is_none_or(|text| text.chars().count() as u64 <= count(wanted))
                }
                "pattern" => value.as_str().is_none_or(|text| matches(wanted, text)),
                "components" | "description" | "default" | "format" => true,
                other => panic!("{at}: the keyword {other} is not checked"),
            };
            if !holds {
                self.found.push(format!("{at}: {value} is not {keyword} {wanted}"));
            }
        }
    }

    fn target(&self, reference: &Value) -> Value {
        let pointer = reference.as_str().and_then(|text| text.strip_prefix('#'));
        let found = pointer.and_then(|pointer| self.document.pointer(pointer));
        found.unwrap_or_else(|| panic!("{reference} leads nowhere")).clone()
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(list) => list.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => vec![],
    }
}

fn count(wanted: &Value) -> u64 {
    wanted.as_u64().expect("a count")
}

fn is_of_type(wanted: &Value, value: &Value) -> bool {
    let is = |name: &Value| match name.as_str().expect("a name") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no such type: {other}"),
    };
    match wanted {
        Value::Array(any) => any.iter().any(is),
        one => is(one),
    }
}

/// The patterns that there are, in words.
fn matches(pattern: &Value, text: &str) -> bool {
    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    match pattern.as_str().expect("a text") {
        "^[A-Za-z0-9_.:@-]+$" => {
            !text.is_empty()
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.:@-".contains(c))
        }
        "^job-[0-9a-f]{32}$" => {
            text.strip_prefix("job-").is_some_and(|id| id.len() == 32 && id.chars().all(hex))
        }
        "^[^:]+:[^:]+$" => {
            text.split_once(':').is_some_and(|(src, tgt)| !src.is_empty() && !tgt.is_empty())
        }
        other => panic!("unknown pattern {other}"),
    }
}

/// A schema with all that it refers to.
fn document(schema: impl Fn(&mut Catalog) -> Value) -> Value {
    let mut catalog = Catalog::default();
    let mut document = schema(&mut catalog);
    document["components"] = json!({"schemas": catalog.into_definitions()});
    document
}

fn of<T: JsonSchema>(document: &Value) -> &Value {
    let name = T::schema_name();
    document["components"]["schemas"].get(&*name).expect("its schema")
}

#[test]
fn a_schema_refuses_what_the_reader_refuses() {
    let dispatch = document(|catalog| catalog.request::<Dispatch<'_>>());
    let good = json!({"src_lang": "auto", "tgt_lang": "en", "text": "hi", "unknown": 1});
    assert_eq!(faults(&dispatch, &good), Vec::<String>::new());
    for (field, bad) in [
        ("tgt_lang", Value::Null),
        ("src_lang", json!(7)),
        ("audio", json!({"sample_rate": 16_000})),
        ("options", json!({"priority": "high"})),
        ("options", json!({"preferred_node_id": "no spaces"})),
        ("options", json!({"services": ["cooking"]})),
        ("options", json!({"wait_ms": -1})),
    ] {
        let mut body = good.clone();
        body[field] = bad;
        assert_ne!(faults(&dispatch, &body), Vec::<String>::new(), "{body}");
    }
    assert!(!faults(&dispatch, &json!({"src_lang": "en"})).is_empty(), "a language is missing");
}

#[test]
fn both_shapes_of_a_registration_are_in_its_schema_and_bounded() {
    let register = document(|catalog| catalog.request::<Register>());
    let fields = &of::<Register>(&register)["properties"];
    for flat in ["asr_langs", "semantic_langs", "tts_langs", "nmt_pairs"] {
        assert!(fields[flat]["maxItems"].is_u64(), "{flat}: {}", fields[flat]);
    }
    assert!(fields["language_capabilities"]["anyOf"][0]["$ref"].is_string(), "{fields:#}");
    assert_eq!(of::<Register>(&register).get("required"), None, "every field may be left out");
}

#[test]
fn an_answer_asks_for_what_is_always_there_and_describes_every_field() {
    let view = document(|catalog| catalog.answer::<JobView>());
    let required = of::<JobView>(&view)["required"].as_array().expect("a list");
    for always in ["job_id", "state", "attempts", "timings", "created_ms"] {
        assert!(required.contains(&json!(always)), "{always}: {required:?}");
    }
    assert!(!required.contains(&json!("result")), "there is none before the end");
    for document in [view, document(|catalog| catalog.answer::<NodeView>())] {
        for (name, schema) in document["components"]["schemas"].as_object().expect("schemas") {
            assert!(schema["description"].is_string(), "{name} is not described");
            for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
                assert!(schema["description"].is_string(), "{name}.{field} is not described");
            }
        }
    }
}
