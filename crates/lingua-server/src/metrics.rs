//! What the edge counts, by the names of the contract.
//!
//! Start at [`Metrics::open`]. Invariant: a connection is counted for exactly as long as its [`Open`] lives.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Whoever speaks HTTP; a connection that becomes a WebSocket is one of those from then on.
    Client,
    /// A node's WebSocket.
    Node,
    /// The WebSocket of a session.
    Session,
    /// Somebody who watches what happens. It is a client's connection as well.
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

/// The edge's metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    connections: Family<[(&'static str, &'static str); 1], Gauge>,
    pub(crate) sessions: Gauge,
    pub(crate) rate_limited: Counter,
}

impl Metrics {
    /// Makes them and puts them into a registry whose prefix is `lingua`.
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
        registry.register("rate_limited", "Requests turned away", rate_limited.clone());
        let metrics = Self { connections, sessions, rate_limited };
        for kind in Kind::ALL {
            metrics.gauge(kind).set(0);
        }
        metrics
    }

    fn gauge(&self, kind: Kind) -> Gauge {
        self.connections.get_or_create_owned(&[("kind", kind.as_str())])
    }

    /// Counts a connection until what is given back is dropped.
    pub(crate) fn open(&self, kind: Kind) -> Open {
        let gauge = self.gauge(kind);
        gauge.inc();
        Open(gauge)
    }
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
