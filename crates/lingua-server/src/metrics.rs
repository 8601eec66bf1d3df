//! The metrics of the server.
//!
//! Invariant: a connection is counted for exactly as long as its `ConnectionCount` lives.

use axum::http::{Method, StatusCode};
use lingua_core::named_enum;
use lingua_engine::metrics::EngineMetrics;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::process;
use crate::route_table::ROUTES;

/// The first four are `lingua_connections`, by `kind`.
#[derive(Debug)]
pub(crate) struct ServerMetrics {
    /// HTTP connections, until they become WebSockets.
    pub(crate) clients: Gauge,
    /// The WebSockets of nodes.
    pub(crate) nodes: Gauge,
    /// The WebSockets of sessions.
    pub(crate) session_sockets: Gauge,
    /// Streams of `/v1/events`. Their connections are counted as clients as well.
    pub(crate) event_streams: Gauge,
    pub(crate) sessions: Gauge,
    pub(crate) rate_limited: Counter,
    /// Connections that found no place, or took that of a silent one.
    pub(crate) connections_refused: Counter,
    requests: Family<[(&'static str, &'static str); 3], Counter>,
    refused: Family<[(&'static str, &'static str); 1], Counter>,
}

named_enum! {
    /// Why a caller was refused: the label `reason` of `lingua_auth_failures_total`.
    pub enum Refused {
        /// No token, or one that is not known: 401.
        UnknownToken = "unknown_token",
        /// A token that has expired: 401.
        ExpiredToken = "expired_token",
        /// A token that was revoked while its request or its connection was open: 401.
        RevokedToken = "revoked_token",
        /// A grant that is not valid: 401.
        BadGrant = "bad_grant",
        /// A token of another role, or a grant where a token is needed: 403.
        WrongRole = "wrong_role",
        /// A web page of an origin that is not allowed: 403.
        ForeignOrigin = "foreign_origin",
        /// Without tokens, a name that is not of the loopback: 403.
        ForeignHost = "foreign_host",
        /// A job, session or node of another tenant; the caller is told that there is none: 404.
        OtherTenant = "other_tenant",
        /// Something of all tenants together, or of another one by name: 403.
        TenantOnly = "tenant_only",
        /// A node id that belongs to another token: 403.
        OtherOwner = "other_owner",
        /// A message about another node than that of the socket.
        OtherNode = "other_node",
        /// A node id that no pattern of the token allows: 403.
        NodePattern = "node_pattern",
        /// One node id more than the token or the tenant may have: 403.
        NodesMax = "nodes_max",
        /// A direction that the grant does not list: 403.
        GrantLangs = "grant_langs",
    }
}

impl ServerMetrics {
    /// Registers the metrics in a registry whose prefix is `lingua`.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let connections = Family::<[(&str, &str); 1], Gauge>::default();
        let of_kind = |kind| connections.get_or_create_owned(&[("kind", kind)]);
        let metrics = Self {
            clients: of_kind("client"),
            nodes: of_kind("node"),
            session_sockets: of_kind("session"),
            event_streams: of_kind("events"),
            sessions: Gauge::default(),
            rate_limited: Counter::default(),
            connections_refused: Counter::default(),
            requests: Family::default(),
            refused: Family::default(),
        };
        for reason in Refused::ALL {
            metrics.refused.get_or_create_owned(&[("reason", reason.as_str())]);
        }
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version of the program", version);
        let help = "HTTP requests, by route, method and status";
        registry.register("http_requests", help, metrics.requests.clone());
        let help = "Requests and messages refused for want of rights, by reason";
        registry.register("auth_failures", help, metrics.refused.clone());
        registry.register("connections", "Open connections, by kind", connections);
        let help = "Sessions, connected or waiting to be resumed";
        registry.register("sessions", help, metrics.sessions.clone());
        let help = "Requests refused because their caller sent too many";
        registry.register("rate_limited", help, metrics.rate_limited.clone());
        let help = "Connections that were closed because all places were taken";
        registry.register("connections_refused", help, metrics.connections_refused.clone());
        metrics
    }

    /// Counts an answered request. Routes that do not exist are counted together.
    pub(crate) fn count_request(&self, route: Option<&str>, method: &Method, status: StatusCode) {
        let known = |path: &str| ROUTES.iter().find(|known| known.path == path);
        let route = match route {
            None => "none",
            Some(path) => known(path).map_or("/docs", |known| known.path),
        };
        let labels =
            [("route", route), ("method", method_name(method)), ("status", status_name(status))];
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts a request or a message that was refused for want of rights.
    pub(crate) fn count_refused(&self, reason: Refused) {
        self.refused.get_or_create(&[("reason", reason.as_str())]).inc();
    }
}

/// Clients can send any method; only those that are common get a label of their own.
fn method_name(method: &Method) -> &'static str {
    const METHODS: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"];
    METHODS.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}

/// The statuses that this server sends.
fn status_name(status: StatusCode) -> &'static str {
    const STATUSES: [&str; 21] = [
        "200", "101", "204", "304", "307", "400", "401", "403", "404", "405", "408", "409", "413",
        "415", "422", "426", "429", "500", "503", "504", "502",
    ];
    STATUSES.into_iter().find(|known| *known == status.as_str()).unwrap_or("other")
}

/// What `/metrics` shows of a new server, with an example for each label that is made at run time;
/// for the reference.
pub fn example() -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("lingua");
    EngineMetrics::new(&mut registry).show_example();
    let server = ServerMetrics::new(&mut registry);
    server.count_request(Some("/v1/translate"), &Method::POST, StatusCode::OK);
    let mut out = String::new();
    encode_registry(&mut out, &registry)?;
    encode_registry(&mut out, &process::registry())?;
    Ok(out)
}

/// Counts a connection until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionCount(Gauge);

impl ConnectionCount {
    pub(crate) fn new(open: &Gauge) -> Self {
        open.inc();
        Self(open.clone())
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.dec();
    }
}
