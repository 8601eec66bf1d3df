//! The demo's nodes: different speeds and languages, one that fails, one that dies.
//!
//! Start at [`FLEET`] and [`run`].

use std::time::Duration;

use anyhow::Context;
use lingua_core::NodeId;
use lingua_sdk::{Node, NodeOptions};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::simulated::{Quit, Simulated, node_url};

/// How long running jobs may go on when the demo ends.
const GRACE: Duration = Duration::from_secs(2);

/// How long a node that dies lives, and how long it is gone.
const LIFE: Duration = Duration::from_secs(12);
const DEATH: Duration = Duration::from_secs(3);

/// A simulated machine.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) languages: &'static [&'static str],
    pub(super) slots: u16,
    pub(super) work_ms: u64,
    pub(super) fail_rate: f64,
    /// Whether its cable is pulled from time to time.
    pub(super) dies: bool,
    /// Whether it listens while somebody speaks.
    pub(super) listens: bool,
}

const fn member(
    name: &'static str,
    languages: &'static [&'static str],
    slots: u16,
    work_ms: u64,
) -> Member {
    Member { name, languages, slots, work_ms, fail_rate: 0.0, dies: false, listens: false }
}

/// All machines of the demo.
pub(super) const FLEET: [Member; 8] = [
    member("fast", &["zh", "en"], 4, 150),
    Member { listens: true, ..member("big", &["zh", "en"], 8, 500) },
    member("small", &["zh", "en"], 2, 400),
    member("slow", &["zh", "en"], 4, 1_200),
    member("tokyo", &["en", "ja"], 4, 350),
    member("europe", &["fr", "en", "de"], 6, 400),
    Member { fail_rate: 0.3, ..member("flaky", &["zh", "en", "ja", "fr"], 4, 300) },
    Member { dies: true, ..member("mortal", &["zh", "en", "fr", "de"], 4, 300) },
];

/// Starts all machines; they run until `quit`.
pub(super) fn run(url: &str, quit: &Quit) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
    let mut nodes = JoinSet::new();
    for (seed, member) in FLEET.iter().enumerate() {
        let options = NodeOptions::new(node_url(url))
            .node_id(NodeId::new(member.name).context("a name of the fleet is no name")?)
            .languages(member.languages, member.languages, member.languages)
            .slots(member.slots)
            .streaming(member.listens)
            .grace(GRACE);
        let quit = quit.clone();
        nodes.spawn(async move { member.live(options, seed as u64, quit).await });
    }
    Ok(nodes)
}

impl Member {
    async fn live(&self, options: NodeOptions, seed: u64, quit: Quit) -> anyhow::Result<()> {
        for life in 0.. {
            let luck = seed ^ (life << 8);
            let handler = Simulated::new(self.work_ms, self.fail_rate, luck);
            let living = Node::new(options.clone(), handler).run(quit.wait());
            if !self.dies {
                return living.await.context(self.name);
            }
            // Dropping a node pulls its cable: no goodbye, and what it was doing is lost.
            if let Ok(ended) = timeout(LIFE, living).await {
                return ended.context(self.name);
            }
            if timeout(DEATH, quit.wait()).await.is_ok() {
                break;
            }
        }
        Ok(())
    }
}
