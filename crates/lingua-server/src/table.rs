//! The table of routes. The router, `/openapi.json` and `/docs` are made from the same lines, so that none
//! can have a route that another has not.
//!
//! A line names the types of what is sent and answered, which give the schemas, and a golden file of the
//! wire for each, which is the example.

use axum::Router;
use axum::routing::{get, post};
use lingua_engine::Timer;
use lingua_store::Store;
use lingua_wire::client::{CancelResponse, Dispatch, DispatchResponse};
use lingua_wire::node::{
    Heartbeat, HeartbeatResponse, JobAck, JobDone, JobFail, JobPartial, Offline, OkResponse,
    Register, RegisterResponse,
};
use lingua_wire::scheduler::NodeJobs;
use lingua_wire::schema::Catalog;
use lingua_wire::view::{
    ClusterView, ExplainResponse, JobList, JobView, NodeList, NodeView, PoolList, PoolView,
};
use serde_json::Value;

use crate::app::App;
use crate::routes::jobs::{Key, List, Wait};
use crate::routes::nodes::Poll;
use crate::{routes, session, socket};

/// A route, as it is described.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) role: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) parameters: Option<Parameters>,
    pub(crate) body: Option<Content>,
    pub(crate) answer: Option<Content>,
}

/// Gives a reference to a schema.
pub(crate) type SchemaOf = fn(&mut Catalog) -> Value;

/// Parameters outside of the path: the fields of a type.
#[derive(Debug)]
pub(crate) struct Parameters {
    /// `query` or `header`.
    pub(crate) place: &'static str,
    pub(crate) schema: SchemaOf,
}

/// What is sent or answered.
#[derive(Debug)]
pub(crate) enum Content {
    /// A message, with an example.
    Json { schema: SchemaOf, example: &'static str },
    /// Something else.
    Other(&'static str),
}

macro_rules! content {
    ($way:ident -) => {
        None
    };
    ($way:ident $kind:literal) => {
        Some(Content::Other($kind))
    };
    ($way:ident [$Type:ty, $golden:literal]) => {
        Some(Content::Json {
            schema: |catalog| catalog.$way::<$Type>(),
            example: include_str!(concat!("../../lingua-wire/golden/", $golden, ".json")),
        })
    };
}

macro_rules! parameters {
    (-) => {
        None
    };
    ([$place:ident $Type:ty]) => {
        Some(Parameters { place: stringify!($place), schema: |catalog| catalog.request::<$Type>() })
    };
}

/// One group of routes for each role: a function that gives the router, and lines that describe it.
macro_rules! routes {
    ($($role:ident { $(
        $method:ident $path:literal $handler:path, $parameters:tt, $body:tt => $answer:tt, $summary:literal;
    )* })*) => {
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
                parameters: parameters!($parameters),
                body: content!(request $body),
                answer: content!(answer $answer),
            },)*)*
        ];
    };
}

routes! {
    node {
        post "/v1/node/register" routes::nodes::register, -,
            [Register, "register.contract"] => [RegisterResponse, "register_response"],
            "Register a node that will fetch its jobs by long poll.";
        post "/v1/node/heartbeat" routes::nodes::heartbeat, -,
            [Heartbeat, "heartbeat.full"] => [HeartbeatResponse, "heartbeat_response"],
            "Give a sign of life; may change capabilities.";
        post "/v1/node/offline" routes::nodes::offline, -,
            [Offline, "offline"] => [OkResponse, "ok_response"],
            "Sign off; open jobs are retried at once.";
        get "/v1/node/{id}/jobs" routes::nodes::jobs, [query Poll],
            - => [NodeJobs<'_>, "node_jobs"],
            "Wait for jobs.";
        get "/v1/node/ws" socket::upgrade, -,
            - => -,
            "The node WebSocket.";
        post "/v1/job/ack" routes::nodes::ack, -,
            [JobAck, "job_ack.contract"] => [OkResponse, "ok_response"],
            "The node has the job.";
        post "/v1/job/partial" routes::nodes::partial, -,
            [JobPartial<'_>, "job_partial"] => [OkResponse, "ok_response"],
            "The node has a part of the text.";
        post "/v1/job/done" routes::nodes::done, -,
            [JobDone<'_>, "job_done.contract"] => [OkResponse, "ok_response"],
            "The node gives a result.";
        post "/v1/job/fail" routes::nodes::fail, -,
            [JobFail<'_>, "job_fail.contract"] => [OkResponse, "ok_response"],
            "The node gives up, or refuses (BUSY, STALE_FENCE).";
    }
    client {
        post "/v1/dispatch/f2f" routes::jobs::dispatch, [header Key],
            [Dispatch<'_>, "dispatch.contract"] => [DispatchResponse, "dispatch_response"],
            "Submit a job; answers once it was sent to a node.";
        post "/v1/translate" routes::jobs::translate, [header Key],
            [Dispatch<'_>, "dispatch.text_minimal"] => [JobView, "job_view.done"],
            "Submit a job and wait for its end.";
        get "/v1/jobs/{id}" routes::jobs::show, [query Wait],
            - => [JobView, "job_view.done"],
            "A job.";
        post "/v1/jobs/{id}/cancel" routes::jobs::cancel, -,
            - => [CancelResponse, "cancel_response"],
            "Call a job off.";
        get "/v1/jobs" routes::jobs::list, [query List],
            - => [JobList, "job_list"],
            "Jobs, the newest first.";
        get "/v1/session/ws" session::upgrade, -,
            - => -,
            "The session WebSocket.";
        get "/v1/nodes" routes::operators::nodes, -,
            - => [NodeList, "node_list"],
            "All nodes.";
        get "/v1/nodes/{id}" routes::operators::node, -,
            - => [NodeView, "node_view"],
            "One node.";
        get "/v1/pools" routes::operators::pools, -,
            - => [PoolList, "pool_list"],
            "The pool table.";
        get "/v1/pools/{pair}" routes::operators::pool, -,
            - => [PoolView, "pool_view"],
            "One pool, counted now: zh:en, or *:en for the mixed one.";
        get "/v1/cluster" routes::operators::cluster, -,
            - => [ClusterView, "cluster_view"],
            "Instances, leader, term, table version.";
        post "/v1/explain" routes::operators::explain, -,
            [Dispatch<'_>, "dispatch.explain"] => [ExplainResponse, "explain_response"],
            "Why each node would or would not get this job now.";
        get "/v1/events" routes::operators::events, -,
            - => "text/event-stream",
            "What happens, as server-sent events: node, job, pool, leader.";
    }
    admin {
        post "/v1/nodes/{id}/drain" routes::operators::drain, -,
            - => [NodeView, "node_view"],
            "Let a node finish what it has and give it nothing new.";
        post "/v1/nodes/{id}/resume" routes::operators::resume, -,
            - => [NodeView, "node_view"],
            "Let it take jobs again.";
        get "/metrics" routes::operators::metrics, -,
            - => "application/openmetrics-text",
            "Metrics, for Prometheus.";
    }
    open {
        get "/healthz" routes::operators::healthz, -,
            - => "text/plain",
            "The process answers.";
        get "/readyz" routes::operators::readyz, -,
            - => "text/plain",
            "The store answers, so jobs can be taken.";
        get "/openapi.json" routes::operators::openapi, -,
            - => "application/json",
            "This description.";
        get "/docs" routes::operators::docs, -,
            - => "text/html",
            "This description, for people.";
    }
}
