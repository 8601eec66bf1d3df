//! The nodes of a broker, for as long as it is measured.
//!
//! Start at [`Crew::join`]. Nodes never leave, so one that ends has met an error: [`Crew::check`]
//! tells which.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinSet;

use super::broker::{Broker, Kind, LANGS, result};
use super::gearman;
use super::lean::node::{Node, Profile, Tally};

/// Nodes that join at once; more would only queue before the one thread that greets them.
const JOIN_BATCH: u32 = 64;

/// Ports that nodes take of one address before they come from the next.
const PORTS_OF_ADDRESS: u32 = 20_000;

/// How many nodes, and how much each does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) nodes: u32,
    pub(super) slots: u16,
    /// How long each of them takes for a job.
    pub(super) work: Duration,
}

/// Nodes at work.
#[derive(Debug)]
pub(super) struct Crew {
    at_work: JoinSet<anyhow::Result<()>>,
    tally: Arc<Tally>,
}

impl Crew {
    /// Connects and registers all nodes; `progress` hears how many there are so far.
    pub(super) async fn join(
        broker: &Broker,
        shape: Shape,
        progress: impl Fn(u32),
    ) -> anyhow::Result<Self> {
        let mut crew = Self { at_work: JoinSet::new(), tally: Arc::default() };
        if broker.kind() == Kind::Gearman {
            let address = broker.door(0).address;
            for _ in 0..shape.nodes * u32::from(shape.slots) {
                let result = result();
                crew.at_work.spawn(async move { gearman::work(address, &result).await });
            }
            return Ok(crew);
        }
        for first in (0..shape.nodes).step_by(JOIN_BATCH as usize) {
            let last = shape.nodes.min(first + JOIN_BATCH);
            let mut joining = JoinSet::new();
            for number in first..last {
                let address = broker.door(number as usize).address;
                joining.spawn(join_one(address, number, shape, crew.tally()));
            }
            while let Some(joined) = joining.join_next().await {
                let (number, node) = joined.context("a task failed")??;
                // Beats spread over the interval, as those of a fleet that was not started at once.
                let phase = f64::from(number) / f64::from(shape.nodes);
                crew.at_work.spawn(node.run(phase));
            }
            progress(last);
        }
        Ok(crew)
    }

    fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    /// Heartbeats of all of them that were answered.
    pub(super) fn beats(&self) -> f64 {
        self.tally.beats.load(Ordering::Relaxed) as f64
    }

    /// An error if a node has left.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        match self.at_work.try_join_next() {
            None => Ok(()),
            Some(ended) => ended.context("a task failed")?,
        }
    }
}

async fn join_one(
    broker: std::net::SocketAddr,
    number: u32,
    shape: Shape,
    tally: Arc<Tally>,
) -> anyhow::Result<(u32, Node)> {
    // All of 127.0.0.0/8 is this machine; the first address needs no special care.
    let from = match number / PORTS_OF_ADDRESS {
        0 => None,
        next => Some(IpAddr::V4(Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + next))),
    };
    let Shape { slots, work, .. } = shape;
    let profile = Profile { name: format!("bench-{number}"), langs: &LANGS, slots, work, from };
    Ok((number, Node::join(broker, profile, result(), tally).await?))
}
