//! The demo's nodes: different speeds and languages, one that fails, one that disconnects.
//!
//! Start at [`DEMO_NODES`] and [`run`].

use std::time::Duration;

use anyhow::Context;
use lingua_core::NodeId;
use lingua_sdk::{Node, NodeOptions};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::api::{NODE_SOCKET, socket_url};
use crate::simulated::{SimulatedHandler, StopSwitch};

/// How long running jobs may go on when the demo ends.
const GRACE: Duration = Duration::from_secs(2);

/// How long the node that disconnects stays, and how long it is gone.
const CONNECTED: Duration = Duration::from_secs(12);
const GONE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct DemoNode {
    pub(super) name: &'static str,
    pub(super) languages: &'static [&'static str],
    pub(super) slots: u16,
    pub(super) work_ms: u64,
    pub(super) fail_rate: f64,
    /// Whether its connection is cut from time to time.
    pub(super) disconnects: bool,
    /// Whether it takes a job with its first audio.
    pub(super) streams: bool,
}

const fn node(
    name: &'static str,
    languages: &'static [&'static str],
    slots: u16,
    work_ms: u64,
) -> DemoNode {
    DemoNode { name, languages, slots, work_ms, fail_rate: 0.0, disconnects: false, streams: false }
}

pub(super) const DEMO_NODES: [DemoNode; 8] = [
    node("fast", &["zh", "en"], 4, 150),
    DemoNode { streams: true, ..node("big", &["zh", "en"], 8, 500) },
    node("small", &["zh", "en"], 2, 400),
    node("slow", &["zh", "en"], 4, 1_200),
    node("tokyo", &["en", "ja"], 4, 350),
    node("europe", &["fr", "en", "de"], 6, 400),
    DemoNode { fail_rate: 0.3, ..node("flaky", &["zh", "en", "ja", "fr"], 4, 300) },
    DemoNode { disconnects: true, ..node("mortal", &["zh", "en", "fr", "de"], 4, 300) },
];

/// Starts all nodes; they run until `stop`.
pub(super) fn run(url: &str, stop: &StopSwitch) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
    let mut nodes = JoinSet::new();
    for (seed, node) in DEMO_NODES.iter().enumerate() {
        let options = NodeOptions::new(socket_url(url, NODE_SOCKET))
            .node_id(NodeId::new(node.name).context("a bad node id")?)
            .languages(node.languages, node.languages, node.languages)
            .slots(node.slots)
            .streaming(node.streams)
            .grace(GRACE);
        let stop = stop.clone();
        nodes.spawn(async move { node.run(options, seed as u64, stop).await });
    }
    Ok(nodes)
}

impl DemoNode {
    async fn run(&self, options: NodeOptions, seed: u64, stop: StopSwitch) -> anyhow::Result<()> {
        for run in 0.. {
            let seed = seed ^ (run << 8);
            let handler = SimulatedHandler::new(self.work_ms, self.fail_rate, seed);
            let running = Node::new(options.clone(), handler).run(stop.wait());
            if !self.disconnects {
                return running.await.context(self.name);
            }
            // Dropping a node cuts its connection, and its running jobs are lost.
            if let Ok(ended) = timeout(CONNECTED, running).await {
                return ended.context(self.name);
            }
            if timeout(GONE, stop.wait()).await.is_ok() {
                break;
            }
        }
        Ok(())
    }
}
