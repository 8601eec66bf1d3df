//! The table of routes. The router and its description (`/openapi.json`) are made from the same lines,
//! so that neither can have a route that the other has not.
//!
//! Examples in the description are the golden files of the wire.

use axum::Router;
use axum::routing::{get, post};
use lingua_engine::Timer;
use lingua_store::Store;
use lingua_wire::ErrorCode;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::{routes, socket};

/// A route, as it is described.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) role: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) body: Option<&'static str>,
    pub(crate) answer: Option<&'static str>,
}

macro_rules! golden {
    (-) => {
        None
    };
    ($name:literal) => {
        Some(include_str!(concat!("../../lingua-wire/golden/", $name, ".json")))
    };
}

/// One group of routes for each role: a function that gives the router, and lines that describe it.
macro_rules! routes {
    ($($role:ident { $($method:ident $path:literal $handler:path, $body:tt => $answer:tt, $summary:literal;)* })*) => {
        $(
            pub(crate) fn $role<S: Store, T: Timer>() -> Router<App<S, T>> {
                Router::new()$(.route($path, $method($handler)))*
            }
        )*

        pub(crate) const ROUTES: &[Route] = &[
            $($(Route {
                method: stringify!($method),
                path: $path,
                role: stringify!($role),
                summary: $summary,
                body: golden!($body),
                answer: golden!($answer),
            },)*)*
        ];
    };
}

routes! {
    node {
        post "/v1/node/register" routes::nodes::register, "register.contract" => "register_reply",
            "Register a node that will fetch its jobs by long poll.";
        post "/v1/node/heartbeat" routes::nodes::heartbeat, "heartbeat.full" => "heartbeat_reply",
            "Give a sign of life; may change capabilities.";
        post "/v1/node/offline" routes::nodes::offline, "offline" => "ok_reply",
            "Sign off; open jobs are retried at once.";
        get "/v1/node/{id}/jobs" routes::nodes::jobs, - => "node_jobs",
            "Wait for jobs (wait_ms, 30 s by default).";
        get "/v1/node/ws" socket::upgrade, - => -,
            "The node WebSocket.";
        post "/v1/job/ack" routes::nodes::ack, "job_ack.contract" => "ok_reply",
            "The node has the job.";
        post "/v1/job/done" routes::nodes::done, "job_done.contract" => "ok_reply",
            "The node gives a result.";
        post "/v1/job/fail" routes::nodes::fail, "job_fail.contract" => "ok_reply",
            "The node gives up, or refuses (BUSY, STALE_FENCE).";
    }
    client {
        post "/v1/dispatch/f2f" routes::jobs::dispatch, "dispatch.contract" => "dispatch_reply",
            "Submit a job; answers once it was sent to a node. Idempotency-Key makes it safe to repeat.";
        post "/v1/translate" routes::jobs::translate_routed, "dispatch.text_minimal" => "job_view.done",
            "Submit a job and wait for its end.";
        get "/v1/jobs/{id}" routes::jobs::show, - => "job_view.done",
            "A job; wait_ms waits for its end.";
        post "/v1/jobs/{id}/cancel" routes::jobs::cancel, - => "cancel_reply",
            "Call a job off.";
        get "/v1/jobs" routes::jobs::list, - => "job_list",
            "Jobs, by state and up to a limit.";
        get "/v1/nodes" routes::operators::nodes, - => "node_list",
            "All nodes.";
        get "/v1/nodes/{id}" routes::operators::node, - => "node_view",
            "One node.";
        get "/v1/pools" routes::operators::pools, - => "pool_list",
            "The pool table.";
        get "/v1/pools/{pair}" routes::operators::pool, - => "pool_view",
            "One pool, counted now: zh:en, or *:en for the mixed one.";
        get "/v1/cluster" routes::operators::cluster, - => "cluster_view",
            "Instances, leader, term, table version.";
        post "/v1/explain" routes::operators::explain, "dispatch.explain" => "explain_reply",
            "Why each node would or would not get this job now.";
        get "/v1/events" routes::operators::events, - => -,
            "What happens, as server-sent events: node, job, pool, leader.";
    }
    admin {
        post "/v1/nodes/{id}/drain" routes::operators::drain, - => "node_view",
            "Let a node finish what it has and give it nothing new.";
        post "/v1/nodes/{id}/resume" routes::operators::resume, - => "node_view",
            "Let it take jobs again.";
        get "/metrics" routes::operators::metrics, - => -,
            "Metrics, for Prometheus.";
    }
    open {
        get "/healthz" routes::operators::healthz, - => -,
            "The process answers.";
        get "/readyz" routes::operators::readyz, - => -,
            "The store answers, so jobs can be taken.";
        get "/openapi.json" routes::operators::openapi, - => -,
            "This description.";
        get "/docs" routes::operators::docs, - => -,
            "This description, for people.";
    }
}

/// The description of all routes.
pub(crate) fn openapi() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method] = operation(route);
    }
    let codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
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
            "schemas": {"Error": {
                "type": "object",
                "required": ["error", "detail"],
                "properties": {
                    "error": {"type": "string", "enum": codes},
                    "detail": {"type": "string", "description": "What is wrong and what to do."},
                    "retry_after_ms": {"type": "integer"},
                },
            }},
        },
    })
}

fn operation(route: &Route) -> Value {
    let content = |example: &'static str| {
        let example: Value = serde_json::from_str(example).unwrap_or(Value::Null);
        json!({"application/json": {"schema": {"type": "object"}, "example": example}})
    };
    let answer = match route.answer {
        Some(example) => json!({"description": "Done.", "content": content(example)}),
        None => json!({"description": "Done."}),
    };
    let error = json!({
        "description": "What is wrong.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    });
    let mut operation = json!({
        "summary": route.summary,
        "tags": [route.role],
        "responses": {"200": answer, "default": error},
    });
    if let Some(example) = route.body {
        operation["requestBody"] = json!({"required": true, "content": content(example)});
    }
    if route.role != "open" {
        operation["security"] = json!([{"token": []}]);
    }
    let named = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameters: Vec<Value> = named
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    operation
}

/// The description as a page that needs nothing from anywhere else.
pub(crate) fn docs() -> String {
    let mut page = String::from(PAGE_HEAD);
    for role in ["client", "node", "admin", "open"] {
        page += &format!("<h2>{role}</h2>");
        for route in ROUTES.iter().filter(|route| route.role == role) {
            let (method, path, summary) = (route.method, route.path, route.summary);
            page += &format!(
                "<details><summary><b class={method}>{method}</b> <code>{path}</code> {summary}</summary>"
            );
            for (title, example) in [("body", route.body), ("answer", route.answer)] {
                if let Some(example) = example {
                    page += &format!("<h4>{title}</h4><pre>{}</pre>", escape(example));
                }
            }
            page += "</details>";
        }
    }
    page + "</main>"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const PAGE_HEAD: &str = "<!doctype html><html lang=en><meta charset=utf-8>\
<meta name=viewport content='width=device-width'><title>Lingua: routes</title><style>\
body{font:16px/1.5 system-ui,sans-serif;margin:0;background:#fafafa;color:#222}\
main{max-width:56rem;margin:2rem auto;padding:0 1rem}\
details{background:#fff;border:1px solid #ddd;border-radius:6px;margin:.4rem 0;padding:.5rem .8rem}\
summary{cursor:pointer}b{display:inline-block;width:3.2rem;text-transform:uppercase;font-size:.8rem}\
.get{color:#0a6}.post{color:#06c}pre{background:#f4f4f6;padding:.6rem;overflow:auto;border-radius:4px}\
@media(prefers-color-scheme:dark){body{background:#16181d;color:#ddd}details{background:#1e2127;\
border-color:#333}pre{background:#16181d}}</style><main><h1>Lingua</h1>\
<p>Every route, with examples. For machines: <a href=/openapi.json>openapi.json</a>.</p>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_is_json_and_every_route_is_described_once() {
        let described = openapi();
        let paths = described["paths"].as_object().unwrap();
        let operations: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(operations, ROUTES.len());
        for route in ROUTES {
            for example in route.body.iter().chain(&route.answer) {
                assert!(serde_json::from_str::<Value>(example).is_ok(), "{}", route.path);
            }
            assert!(docs().contains(route.path));
        }
    }

    #[test]
    fn the_page_asks_nobody_else() {
        let page = docs();
        assert!(!page.contains("http://") && !page.contains("https://"), "it loads something");
    }
}
