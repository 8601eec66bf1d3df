//! The nodes of a broker while it is measured.
//!
//! Start at [`BenchNodes::connect`]. Nodes never leave, so a node that ends has met an error:
//! [`BenchNodes::check`] returns it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinSet;

use crate::broker::{Broker, LANGS, job_result};
use crate::gearman;
use crate::raw_client::BrokerEndpoint;
use crate::raw_client::node::{BenchNode, BenchNodeProfile};

/// Nodes that connect at the same time; more would only queue up at the scheduler.
const CONNECT_BATCH: u32 = 64;

/// Ports used of one local address before nodes connect from the next.
const PORTS_OF_ADDRESS: u32 = 20_000;

/// How many nodes there are, and what each does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeShape {
    pub(crate) nodes: u32,
    pub(crate) slots: u16,
    /// How long a node works on a job.
    pub(crate) work: Duration,
}

#[derive(Debug)]
pub(crate) struct BenchNodes {
    tasks: JoinSet<anyhow::Result<()>>,
    heartbeats: Arc<AtomicU64>,
}

impl BenchNodes {
    /// Connects and registers all nodes; calls `on_connected` with how many there are so far.
    pub(crate) async fn connect(
        broker: &Broker,
        shape: NodeShape,
        on_connected: impl Fn(u32),
    ) -> anyhow::Result<Self> {
        let mut nodes = Self { tasks: JoinSet::new(), heartbeats: Arc::default() };
        if broker.is_gearman() {
            let address = broker.endpoint(0).address;
            for _ in 0..shape.nodes * u32::from(shape.slots) {
                let result = job_result();
                nodes.tasks.spawn(async move { gearman::run_worker(address, &result).await });
            }
            return Ok(nodes);
        }
        for first in (0..shape.nodes).step_by(CONNECT_BATCH as usize) {
            let last = shape.nodes.min(first + CONNECT_BATCH);
            let mut connecting = JoinSet::new();
            for number in first..last {
                let endpoint = broker.endpoint(number as usize).clone();
                let heartbeats = Arc::clone(&nodes.heartbeats);
                connecting.spawn(connect_node(endpoint, number, shape, heartbeats));
            }
            while let Some(connected) = connecting.join_next().await {
                let (number, node) = connected.context("a task failed")??;
                // Heartbeats are spread over the interval, as in a fleet that grew over time.
                let phase = f64::from(number) / f64::from(shape.nodes);
                nodes.tasks.spawn(node.run(phase));
            }
            on_connected(last);
        }
        Ok(nodes)
    }

    /// How many heartbeats of all nodes were answered.
    pub(crate) fn heartbeats(&self) -> f64 {
        self.heartbeats.load(Ordering::Relaxed) as f64
    }

    /// An error if a node has ended.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        match self.tasks.try_join_next() {
            None => Ok(()),
            Some(ended) => ended.context("a task failed")?,
        }
    }
}

async fn connect_node(
    broker: BrokerEndpoint,
    number: u32,
    shape: NodeShape,
    heartbeats: Arc<AtomicU64>,
) -> anyhow::Result<(u32, BenchNode)> {
    // All of 127.0.0.0/8 is this machine.
    let from = match number / PORTS_OF_ADDRESS {
        0 => None,
        next => Some(IpAddr::V4(Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + next))),
    };
    let profile = BenchNodeProfile {
        name: format!("bench-{number}"),
        langs: &LANGS,
        slots: shape.slots,
        work: shape.work,
        token: broker.node_token,
        from,
    };
    Ok((number, BenchNode::connect(broker.address, profile, job_result(), heartbeats).await?))
}
