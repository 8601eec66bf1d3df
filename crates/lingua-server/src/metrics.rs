//! The metrics of the server.
//!
//! Invariant: a connection is counted for exactly as long as its [`ConnectionCount`] lives.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

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
        };
        registry.register("connections", "Open connections, by kind", connections);
        let help = "Sessions, connected or waiting to be resumed";
        registry.register("sessions", help, metrics.sessions.clone());
        let help = "Requests refused because their caller sent too many";
        registry.register("rate_limited", help, metrics.rate_limited.clone());
        metrics
    }
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
