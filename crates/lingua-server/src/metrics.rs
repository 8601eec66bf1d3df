//! The metrics of the server.
//!
//! Start at [`ServerMetrics::count_connection`]. Invariant: a connection is counted for exactly as
//! long as its [`ConnectionCount`] lives.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The label `kind` of `lingua_connections`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An HTTP connection, until it becomes a WebSocket.
    Client,
    /// A node's WebSocket.
    Node,
    /// The WebSocket of a session.
    Session,
    /// A stream of `/v1/events`. Its connection is counted as a client as well.
    Events,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Client, Self::Node, Self::Session, Self::Events];

    fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Node => "node",
            Self::Session => "session",
            Self::Events => "events",
        }
    }
}

#[derive(Debug)]
pub(crate) struct ServerMetrics {
    connections: Family<[(&'static str, &'static str); 1], Gauge>,
    pub(crate) sessions: Gauge,
    pub(crate) rate_limited: Counter,
}

impl ServerMetrics {
    /// Registers the metrics in a registry whose prefix is `lingua`.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let connections = Family::default();
        registry.register("connections", "Open connections, by kind", connections.clone());
        let sessions = Gauge::default();
        registry.register(
            "sessions",
            "Sessions, connected or waiting to be resumed",
            sessions.clone(),
        );
        let rate_limited = Counter::default();
        registry.register(
            "rate_limited",
            "Requests refused because their caller sent too many",
            rate_limited.clone(),
        );
        let metrics = Self { connections, sessions, rate_limited };
        for kind in Kind::ALL {
            metrics.gauge(kind).set(0);
        }
        metrics
    }

    fn gauge(&self, kind: Kind) -> Gauge {
        self.connections.get_or_create_owned(&[("kind", kind.as_str())])
    }

    /// Counts a connection until the result is dropped.
    pub(crate) fn count_connection(&self, kind: Kind) -> ConnectionCount {
        let gauge = self.gauge(kind);
        gauge.inc();
        ConnectionCount(gauge)
    }
}

#[derive(Debug)]
pub(crate) struct ConnectionCount(Gauge);

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.dec();
    }
}
