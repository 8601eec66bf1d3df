//! The OpenAPI 3.1 document, made from the table of routes and the types that it names.
//!
//! Start at [`document`]. OpenAPI cannot describe WebSockets and server-sent events: their messages
//! are under `x-messages` and `x-events`.
//!
//! Invariant: every reference in the document leads to a schema in it.

use lingua_wire::node::{Bye, Heartbeat, JobAck, JobDone, JobFail, JobPartial, Register};
use lingua_wire::scheduler::{
    AudioEnd, Drain, ErrorMessage, HeartbeatAck, JobAssign, JobCancel, JobConfirmed, Registered,
};
use lingua_wire::schema::Catalog;
use lingua_wire::session::{
    JobAccepted, SegmentMissing, SegmentResult, SessionEnd, SessionPartial, SessionResume,
    SessionStart, SessionStarted, TextTurn, TurnEnd, TurnStart,
};
use lingua_wire::view::{JobUpdate, LeaderUpdate, NodeUpdate, PoolUpdate};
use lingua_wire::{ErrorBody, Message};
use serde_json::{Map, Value, json};

use crate::route_table::{Content, ROUTES, Route, SchemaOf};

/// Before the name of a schema.
const REFERENCE: &str = "#/components/schemas/";

/// The WebSockets: the route, the name of the peer, what the peer sends, what the scheduler sends.
const SOCKETS: [(&str, &str, Frames, Frames); 2] = [
    ("/v1/node/ws", "node", NODE_FRAMES, SCHEDULER_FRAMES),
    ("/v1/session/ws", "client", CLIENT_FRAMES, SESSION_FRAMES),
];

/// Types of messages with their schemas.
type Frames = &'static [(&'static str, SchemaOf)];

macro_rules! frames {
    ($way:ident: $($Type:ty),*) => {
        &[$((<$Type>::NAME, |catalog| catalog.$way::<$Type>())),*]
    };
}

const NODE_FRAMES: Frames = frames!(
    request: Register, Heartbeat, JobAck, JobPartial<'_>, JobDone<'_>, JobFail<'_>, Bye<'_>
);

const SCHEDULER_FRAMES: Frames = frames!(
    answer: Registered, HeartbeatAck, JobAssign<'_>, AudioEnd, JobCancel<'_>, JobConfirmed,
            Drain, ErrorMessage<'_>
);

/// What clients send on the socket of a session besides audio.
const CLIENT_FRAMES: Frames = frames!(
    request: SessionStart, SessionResume, TurnStart, TurnEnd, TextTurn<'_>, SessionEnd
);

const SESSION_FRAMES: Frames = frames!(
    answer: SessionStarted, JobAccepted, SessionPartial, SegmentResult<'_>, SegmentMissing,
            ErrorMessage<'_>
);

/// The server-sent events.
const EVENTS: &[(&str, SchemaOf)] = &[
    ("node", |catalog| catalog.answer::<NodeUpdate>()),
    ("job", |catalog| catalog.answer::<JobUpdate>()),
    ("pool", |catalog| catalog.answer::<PoolUpdate>()),
    ("leader", |catalog| catalog.answer::<LeaderUpdate>()),
];

pub(crate) fn document() -> Value {
    let mut catalog = Catalog::default();
    let error = catalog.answer::<ErrorBody>();
    let mut paths = Map::new();
    let mut sets = vec![];
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method] = operation(route, &error, &mut catalog);
        if let Some(parameters) = &route.parameters {
            sets.push((route, parameters.place, (parameters.schema)(&mut catalog)));
        }
    }
    for (path, peer, received, sent) in SOCKETS {
        paths[path]["get"]["x-messages"] = json!({
            peer: messages(received, &mut catalog),
            "scheduler": messages(sent, &mut catalog),
        });
    }
    let events = EVENTS.iter().map(|(name, schema)| ((*name).to_owned(), schema(&mut catalog)));
    paths["/v1/events"]["get"]["x-events"] = Value::Object(events.collect());
    let mut schemas = catalog.into_definitions();
    for (route, place, set) in &sets {
        let named =
            schemas.get(name_of(set).unwrap_or_default()).map(|set| as_parameters(place, set));
        if let Some(Value::Array(all)) = paths[route.path][route.method].get_mut("parameters") {
            all.extend(named.into_iter().flatten());
        }
    }
    for (_, _, set) in &sets {
        // Its fields are parameters now.
        schemas.remove(name_of(set).unwrap_or_default());
    }
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
            "schemas": schemas,
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
    let mut operation = json!({
        "summary": route.summary,
        "tags": [route.role],
        "parameters": in_path.collect::<Vec<Value>>(),
        "responses": {"200": success, "default": failure},
    });
    if let Some(body) = &route.body {
        operation["requestBody"] = json!({"required": true, "content": content(body, catalog)});
    }
    if route.role != "open" {
        operation["security"] = json!([{"token": []}]);
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
fn messages(frames: &[(&str, SchemaOf)], catalog: &mut Catalog) -> Vec<Value> {
    let typed = |&(name, schema): &(&str, SchemaOf)| {
        let kind = json!({"properties": {"type": {"const": name}}, "required": ["type"]});
        json!({"allOf": [schema(catalog), kind]})
    };
    frames.iter().map(typed).collect()
}

/// The name of the schema that a reference names.
fn name_of(reference: &Value) -> Option<&str> {
    reference["$ref"].as_str()?.strip_prefix(REFERENCE)
}

/// The fields of a schema as parameters.
fn as_parameters(place: &str, set: &Value) -> Vec<Value> {
    let parameter = |(name, schema): (&String, &Value)| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|fields| fields.remove("description"));
        json!({"name": name, "in": place, "description": description, "schema": schema})
    };
    set["properties"].as_object().into_iter().flatten().map(parameter).collect()
}

#[cfg(test)]
mod tests {
    use lingua_wire::node::NodeMessage;
    use lingua_wire::scheduler::SchedulerMessage;
    use lingua_wire::session::{SessionRequest, SessionUpdate};

    use super::*;

    #[test]
    fn every_route_is_described_once_and_has_json_examples() {
        let document = document();
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
    fn every_json_body_and_response_has_a_schema_and_every_reference_resolves() {
        let document = document();
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
                        assert!(name_of(&json["schema"]).is_some(), "no schema: {json}");
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
        let names = |frames: &[(&'static str, SchemaOf)]| -> Vec<_> {
            frames.iter().map(|(name, _)| *name).collect()
        };
        assert_eq!(names(NODE_FRAMES), NodeMessage::TYPES);
        assert_eq!(names(SCHEDULER_FRAMES), SchedulerMessage::TYPES);
        assert_eq!(names(CLIENT_FRAMES), SessionRequest::TYPES);
        assert_eq!(names(SESSION_FRAMES), SessionUpdate::TYPES);
    }

    #[test]
    fn parameters_outside_the_path_are_described() {
        let document = document();
        let of = |path: &str, method: &str| document["paths"][path][method]["parameters"].clone();
        let wait = of("/v1/jobs/{id}", "get");
        assert_eq!((&wait[0]["name"], &wait[1]["name"]), (&json!("id"), &json!("wait_ms")));
        assert!(wait[1]["description"].is_string(), "{wait:#}");
        let key = of("/v1/translate", "post");
        assert_eq!((&key[0]["name"], &key[0]["in"]), (&json!("Idempotency-Key"), &json!("header")));
        assert!(document["components"]["schemas"].get("Wait").is_none());
    }
}
