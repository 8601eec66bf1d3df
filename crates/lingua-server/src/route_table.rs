//! The table of routes: the router and `/openapi.json` are made from the same lines.
//!
//! Start at the call of `routes!`. A line names the types of the body and the response, which give
//! the schemas, and a golden file of the wire for each, which is the example.

use axum::Router;
use axum::routing::{delete, get, post};
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
    ClusterView, EraseResponse, ExplainResponse, JobList, JobView, MeView, NodeList, NodeView,
    PoolList, PoolView, UsageView,
};
use schemars::{Schema, schema_for};
use serde_json::Value;

use crate::app::App;
use crate::routes::jobs::{Key, List, Wait};
use crate::routes::nodes::PollQuery;
use crate::routes::usage::{Erase, Range};
use crate::{routes, session, socket};

/// A route as OpenAPI describes it.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// The section: `open`, or the name of an [`Access`](crate::auth::Access).
    pub(crate) access: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) parameters: Option<Parameters>,
    pub(crate) body: Option<Content>,
    pub(crate) response: Option<Content>,
}

/// Parameters outside the path: the fields of a type.
#[derive(Debug)]
pub(crate) struct Parameters {
    /// `query` or `header`, OpenAPI's `in`.
    pub(crate) place: &'static str,
    pub(crate) schema: fn() -> Schema,
}

/// The body of a request or a response.
#[derive(Debug)]
pub(crate) enum Content {
    Json {
        /// Adds the schema to the catalog and returns a reference to it.
        schema: fn(&mut Catalog) -> Value,
        example: &'static str,
    },
    /// Another content type, without a schema.
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
        Some(Parameters { place: stringify!($place), schema: || schema_for!($Type) })
    };
}

/// Makes a function for each section that returns its router, and the descriptions of all routes.
macro_rules! routes {
    ($($access:ident { $(
        $method:ident $path:literal $handler:path, $parameters:tt,
            $body:tt => $response:tt, $summary:literal;
    )* })*) => {
        $(
            pub(crate) fn $access<S: Store, T: Timer>() -> Router<App<S, T>> {
                Router::new()$(.route($path, $method($handler)))*
            }
        )*

        pub(crate) const ROUTES: &[Route] = &[
            $($(Route {
                method: stringify!($method),
                path: $path,
                access: stringify!($access),
                summary: $summary,
                parameters: parameters!($parameters),
                body: content!(request $body),
                response: content!(answer $response),
            },)*)*
        ];
    };
}

routes! {
    node {
        post "/v1/node/register" routes::nodes::register, -,
            [Register, "register.contract"] => [RegisterResponse, "register_response"],
            "Register a node that fetches its jobs by long poll.";
        post "/v1/node/heartbeat" routes::nodes::heartbeat, -,
            [Heartbeat, "heartbeat.full"] => [HeartbeatResponse, "heartbeat_response"],
            "Report that a node is alive; may change its capabilities.";
        post "/v1/node/offline" routes::nodes::offline, -,
            [Offline, "offline"] => [OkResponse, "ok_response"],
            "Take a node offline; its open jobs are retried at once.";
        get "/v1/node/{id}/jobs" routes::nodes::jobs, [query PollQuery],
            - => [NodeJobs<'_>, "node_jobs"],
            "Wait for jobs of a node.";
        get "/v1/node/ws" socket::upgrade, -,
            - => -,
            "The node WebSocket.";
        post "/v1/job/ack" routes::nodes::ack, -,
            [JobAck, "job_ack.contract"] => [OkResponse, "ok_response"],
            "Accept a job.";
        post "/v1/job/partial" routes::nodes::partial, -,
            [JobPartial<'_>, "job_partial"] => [OkResponse, "ok_response"],
            "Report a part of the text.";
        post "/v1/job/done" routes::nodes::done, -,
            [JobDone<'_>, "job_done.contract"] => [OkResponse, "ok_response"],
            "Report a result.";
        post "/v1/job/fail" routes::nodes::fail, -,
            [JobFail<'_>, "job_fail.contract"] => [OkResponse, "ok_response"],
            "Report a failure, or refuse a job (BUSY, STALE_FENCE).";
    }
    client {
        post "/v1/dispatch/f2f" routes::jobs::dispatch, [header Key],
            [Dispatch<'_>, "dispatch.contract"] => [DispatchResponse, "dispatch_response"],
            "Submit a job; responds once it was sent to a node.";
        post "/v1/translate" routes::jobs::translate, [header Key],
            [Dispatch<'_>, "dispatch.text_minimal"] => [JobView, "job_view.done"],
            "Submit a job and wait for its end.";
        post "/v1/jobs/{id}/cancel" routes::jobs::cancel, -,
            - => [CancelResponse, "cancel_response"],
            "Cancel a job.";
    }
    any {
        get "/v1/me" routes::me::me, -,
            - => [MeView, "me_view"],
            "Show who the caller is, its limits and what is left of them.";
    }
    session {
        get "/v1/session/ws" session::upgrade, -,
            - => -,
            "The session WebSocket.";
    }
    read {
        get "/v1/jobs/{id}" routes::jobs::show, [query Wait],
            - => [JobView, "job_view.done"],
            "Show a job.";
        get "/v1/jobs" routes::jobs::list, [query List],
            - => [JobList, "job_list"],
            "List jobs, newest first.";
        delete "/v1/jobs/{id}" routes::usage::erase, -,
            - => [EraseResponse, "erase_response"],
            "Erase everything that is kept of a job; cancels it if it has not ended.";
        delete "/v1/jobs" routes::usage::erase_many, [query Erase],
            - => [EraseResponse, "erase_response"],
            "Erase everything that is kept of the jobs of a session or a tenant.";
        get "/v1/usage" routes::usage::usage, [query Range],
            - => [UsageView, "usage_view"],
            "Show what tenants have used: jobs, seconds of audio, characters.";
        get "/v1/pools" routes::operators::pools, -,
            - => [PoolList, "pool_list"],
            "List the pools of the pool table.";
        get "/v1/pools/{pair}" routes::operators::pool, -,
            - => [PoolView, "pool_view"],
            "Count one pool now: zh:en, or *:en for the mixed one.";
        post "/v1/explain" routes::operators::explain, -,
            [Dispatch<'_>, "dispatch.explain"] => [ExplainResponse, "explain_response"],
            "Explain why each node would or would not get this job now.";
        get "/v1/events" routes::operators::events, -,
            - => "text/event-stream",
            "Stream changes as server-sent events: node, job, pool, leader.";
    }
    fleet {
        get "/v1/nodes" routes::operators::nodes, -,
            - => [NodeList, "node_list"],
            "List all nodes.";
        get "/v1/nodes/{id}" routes::operators::node, -,
            - => [NodeView, "node_view"],
            "Show a node.";
        get "/v1/cluster" routes::operators::cluster, -,
            - => [ClusterView, "cluster_view"],
            "Show instances, leader, term and table version.";
        get "/metrics" routes::operators::metrics, -,
            - => "application/openmetrics-text",
            "Metrics, for Prometheus.";
    }
    admin {
        post "/v1/nodes/{id}/drain" routes::operators::drain, -,
            - => [NodeView, "node_view"],
            "Let a node finish its jobs and give it no new ones.";
        post "/v1/nodes/{id}/resume" routes::operators::resume, -,
            - => [NodeView, "node_view"],
            "Let a drained node take jobs again.";
    }
    open {
        get "/" routes::operators::front_page, -,
            - => "text/html",
            "A page that links to the API reference.";
        get "/healthz" routes::operators::healthz, -,
            - => "text/plain",
            "Check that the process responds.";
        get "/readyz" routes::operators::readyz, -,
            - => "text/plain",
            "Check that the store responds, so that jobs can be accepted.";
        get "/openapi.json" routes::operators::openapi, -,
            - => "application/json",
            "This description; /docs shows it to people.";
    }
}
