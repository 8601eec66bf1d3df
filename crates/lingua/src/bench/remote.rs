//! Load on a scheduler that runs already, with nodes and clients of the SDK.
//!
//! Start at [`run`]. The nodes have names of their own and languages for private use, so that a
//! scheduler with real nodes and real jobs keeps them apart.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use lingua_core::NodeId;
use lingua_sdk::{Node, NodeOptions};
use lingua_wire::client::Dispatch;
use lingua_wire::to_json;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use super::load::{Load, Mode};
use super::progress::Progress;
use super::score::{Score, Setup};
use crate::api::Api;
use crate::serve::stop_signal;
use crate::simulated::{Quit, Simulated, node_url, until_registered};

/// What is done before counting starts: connections open, caches warm.
const WARM_UP: Duration = Duration::from_secs(1);

/// How long all may take to end.
const END_MAX: Duration = Duration::from_secs(5);

/// Languages for private use: nobody's real jobs reach these nodes, nor these jobs real ones.
pub(super) const SRC: &str = "qaa";
pub(super) const TGT: &str = "qab";

/// What to load, and how.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) url: String,
    pub(super) token: Option<String>,
    pub(super) mode: Mode,
    pub(super) length: Duration,
    /// Simulated nodes; 0 uses those that are there.
    pub(super) nodes: u32,
    pub(super) slots: u16,
    pub(super) src: String,
    pub(super) tgt: String,
}

impl Plan {
    fn body(&self) -> Bytes {
        Bytes::from(to_json(&Dispatch {
            src_lang: self.src.as_str().into(),
            tgt_lang: self.tgt.as_str().into(),
            text: Some("Where is the nearest station?".into()),
            ..Dispatch::default()
        }))
    }
}

/// Loads and measures.
pub(super) async fn run(plan: Plan, progress: &Progress) -> anyhow::Result<(Score, Setup)> {
    if plan.nodes == 0 && plan.src == SRC {
        bail!("with '--nodes 0', say what the nodes translate, such as --src zh --tgt en");
    }
    let api = Api::new(&plan.url, plan.token.as_deref())?;
    let quit = Quit::new();
    let names = format!("bench-{:08x}-", rand::random::<u32>());
    let mut nodes = start_nodes(&plan, &names, &quit)?;
    let measured = tokio::select! {
        measured = measure(&plan, &names, &api, progress) => measured,
        Some(ended) = nodes.join_next(), if plan.nodes > 0 => match ended.context("a task failed") {
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok(())) => Err(anyhow::anyhow!("a node ended early")),
            Err(error) => Err(error),
        },
    };
    quit.now();
    let leaving = async { while nodes.join_next().await.is_some() {} };
    // The figures are there; what does not end in time ends with the process.
    timeout(END_MAX, leaving).await.ok();
    measured
}

type Nodes = JoinSet<Result<(), lingua_sdk::node::Error>>;

/// Starts the nodes; their names are this run's own, so that two runs at once do not take over
/// each other's.
fn start_nodes(plan: &Plan, names: &str, quit: &Quit) -> anyhow::Result<Nodes> {
    let mut nodes = JoinSet::new();
    for number in 1..=plan.nodes {
        let name = NodeId::new(&format!("{names}{number}")).context("no name for a node")?;
        let langs = [plan.src.as_str(), plan.tgt.as_str()];
        let mut options = NodeOptions::new(node_url(&plan.url))
            .node_id(name)
            .languages(&langs, &langs, &langs)
            .slots(plan.slots)
            .grace(Duration::from_secs(1));
        if let Some(token) = &plan.token {
            options = options.token(token);
        }
        nodes.spawn(Node::new(options, Simulated::new(0, 0.0, 0)).run(quit.wait()));
    }
    Ok(nodes)
}

/// Waits for the nodes, warms up, measures.
async fn measure(
    plan: &Plan,
    names: &str,
    api: &Api,
    progress: &Progress,
) -> anyhow::Result<(Score, Setup)> {
    let is_ours = |name: &str| name.starts_with(names);
    until_registered(api, plan.nodes as usize, is_ours).await?;
    let (mode, length) = (plan.mode, plan.length);
    let start = Instant::now();
    let score = Arc::new(Mutex::new(Score::lasting(length)?));
    let load = Load {
        api: api.clone(),
        body: plan.body(),
        score: Arc::clone(&score),
        count_from: start + WARM_UP,
        until: start + WARM_UP + length,
    };
    tokio::select! {
        () = load.run(mode) => {}
        () = show(progress, &score, start, WARM_UP + length) => {}
        () = stop_signal() => {}
    }
    let measured = start.elapsed().saturating_sub(WARM_UP).min(length);
    let score = score.lock().take()?;
    Ok((score, Setup { mode, seconds: measured.as_secs_f64(), nodes: plan.nodes }))
}

/// Moves the bar, for ever.
async fn show(progress: &Progress, score: &Mutex<Score>, start: Instant, length: Duration) {
    progress.expect(length.as_millis() as u64);
    let mut tick = interval(Duration::from_millis(200));
    loop {
        tick.tick().await;
        progress.at(start.elapsed().as_millis() as u64);
        progress.say(score.lock().progress());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_private_languages_are_languages() {
        assert!(lingua_wire::lang::pool("pair", &format!("{SRC}:{TGT}")).is_ok());
    }
}
