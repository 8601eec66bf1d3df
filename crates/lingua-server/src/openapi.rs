//! The OpenAPI 3.1 document, made from the table of routes and the types that it names.
//!
//! Start at [`document`]. OpenAPI cannot describe WebSockets and server-sent events: their messages
//! are under `x-messages` and `x-events`.
//!
//! Invariant: every reference in the document leads to a schema in it.

use lingua_wire::ErrorBody;
use lingua_wire::node::NodeMessage;
use lingua_wire::scheduler::SchedulerMessage;
use lingua_wire::schema::Catalog;
use lingua_wire::session::{SessionRequest, SessionUpdate};
use lingua_wire::view::{JobUpdate, LeaderUpdate, NodeUpdate, PoolUpdate};
use schemars::Schema;
use serde_json::{Map, Value, json};

use crate::route_table::{Content, Parameters, ROUTES, Route};

/// The document; a server without tokens (`is_open`) asks for none.
pub(crate) fn document(is_open: bool) -> Value {
    let mut catalog = Catalog::default();
    let error = catalog.answer::<ErrorBody>();
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method] = operation(route, &error, &mut catalog);
        if route.access != "open" && !is_open {
            path[route.method]["security"] = json!([{"token": []}]);
        }
    }
    paths["/v1/node/ws"]["get"]["x-messages"] = json!({
        "node": messages(NodeMessage::schemas(&mut catalog.read)),
        "scheduler": messages(SchedulerMessage::schemas(&mut catalog.written)),
    });
    paths["/v1/session/ws"]["get"]["x-messages"] = json!({
        "client": messages(SessionRequest::schemas(&mut catalog.read)),
        "scheduler": messages(SessionUpdate::schemas(&mut catalog.written)),
    });
    paths["/v1/events"]["get"]["x-events"] = json!({
        "node": catalog.answer::<NodeUpdate>(),
        "job": catalog.answer::<JobUpdate>(),
        "pool": catalog.answer::<PoolUpdate>(),
        "leader": catalog.answer::<LeaderUpdate>(),
    });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Lingua",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A scheduler for live speech translation.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": catalog.into_definitions(),
        },
    })
}

fn operation(route: &Route, error: &Value, catalog: &mut Catalog) -> Value {
    let mut success = json!({"description": "Success."});
    if let Some(response) = &route.response {
        success["content"] = content(response, catalog);
    }
    let failure = json!({
        "description": "An error: what is wrong and what to do.",
        "content": {"application/json": {"schema": error}},
    });
    let named = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = named.map(
        |name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}),
    );
    let parameters = in_path.chain(route.parameters.iter().flat_map(parameters));
    let mut operation = json!({
        "summary": route.summary,
        "tags": [route.access],
        "parameters": parameters.collect::<Vec<Value>>(),
        "responses": {"200": success, "default": failure},
    });
    if let Some(body) = &route.body {
        operation["requestBody"] = json!({"required": true, "content": content(body, catalog)});
    }
    operation
}

fn content(content: &Content, catalog: &mut Catalog) -> Value {
    match content {
        Content::Json { schema, example } => {
            let example: Value = serde_json::from_str(example).unwrap_or(Value::Null);
            json!({"application/json": {"schema": schema(catalog), "example": example}})
        }
        Content::Other(kind) => json!({*kind: {}}),
    }
}

/// Messages with their `type`.
fn messages(frames: Vec<(&str, Schema)>) -> Vec<Value> {
    let typed = |(name, schema)| {
        let kind = json!({"properties": {"type": {"const": name}}, "required": ["type"]});
        json!({"allOf": [schema, kind]})
    };
    frames.into_iter().map(typed).collect()
}

/// The fields of a type as parameters.
fn parameters(Parameters { place, schema }: &Parameters) -> Vec<Value> {
    let parameter = |(name, schema): (&String, &Value)| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|fields| fields.remove("description"));
        json!({"name": name, "in": place, "description": description, "schema": schema})
    };
    let fields = schema().to_value();
    fields["properties"].as_object().into_iter().flatten().map(parameter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_described_once_and_has_json_examples() {
        let document = document(false);
        let paths = document["paths"].as_object().unwrap();
        let operations: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(operations, ROUTES.len());
        for route in ROUTES {
            for content in route.body.iter().chain(&route.response) {
                if let Content::Json { example, .. } = content {
                    assert!(serde_json::from_str::<Value>(example).is_ok(), "{}", route.path);
                }
            }
        }
    }

    #[test]
    fn a_server_without_tokens_asks_for_none() {
        let asks = |is_open| document(is_open).to_string().contains("\"security\":");
        assert!(asks(false) && !asks(true));
    }

    #[test]
    fn every_json_body_and_response_has_a_schema_and_every_reference_resolves() {
        let document = document(false);
        let mut pending = vec![&document];
        let mut references = 0;
        while let Some(value) = pending.pop() {
            match value {
                Value::Object(fields) => {
                    if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
                        let pointer = reference.strip_prefix('#').expect("inside the document");
                        let found = document.pointer(pointer);
                        assert!(found.is_some_and(Value::is_object), "{reference} leads nowhere");
                        references += 1;
                    }
                    if let Some(json) = fields.get("application/json").filter(|j| **j != json!({}))
                    {
                        assert!(json["schema"]["$ref"].is_string(), "no schema: {json}");
                    }
                    pending.extend(fields.values());
                }
                Value::Array(list) => pending.extend(list),
                _ => {}
            }
        }
        assert!(references > 100, "only {references} references");
    }

    #[test]
    fn the_sockets_have_every_message() {
        let document = document(false);
        let names = |socket: &str, peer: &str| -> Vec<String> {
            let messages = &document["paths"][socket]["get"]["x-messages"][peer];
            let name = |message: &Value| message["allOf"][1]["properties"]["type"]["const"].clone();
            let names = messages.as_array().unwrap().iter().map(name);
            names.map(|name| name.as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names("/v1/node/ws", "node"), NodeMessage::TYPES);
        assert_eq!(names("/v1/node/ws", "scheduler"), SchedulerMessage::TYPES);
        assert_eq!(names("/v1/session/ws", "client"), SessionRequest::TYPES);
        assert_eq!(names("/v1/session/ws", "scheduler"), SessionUpdate::TYPES);
    }

    #[test]
    fn parameters_outside_the_path_are_described() {
        let document = document(false);
        let of = |path: &str, method: &str| document["paths"][path][method]["parameters"].clone();
        let wait = of("/v1/jobs/{id}", "get");
        assert_eq!((&wait[0]["name"], &wait[1]["name"]), (&json!("id"), &json!("wait_ms")));
        assert!(wait[1]["description"].is_string(), "{wait:#}");
        let key = of("/v1/translate", "post");
        assert_eq!((&key[0]["name"], &key[0]["in"]), (&json!("Idempotency-Key"), &json!("header")));
        assert!(document["components"]["schemas"].get("Wait").is_none());
    }
}
