//! `lingua bench`: a load on a running scheduler, and how many jobs a second it carries.
//!
//! Start at [`run`]. It connects simulated nodes through the SDK and sends jobs over HTTP
//! (`bench/load.rs`); `bench/stats.rs` counts. The nodes have languages for private use, so that a
//! scheduler with real nodes and jobs does not mix them with these.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use lingua_core::NodeId;
use lingua_sdk::{Client, Node, NodeRunError};
use lingua_wire::client::Dispatch;
use lingua_wire::to_json;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use crate::api::TargetArgs;
use crate::screen::{colours, print_line};
use crate::serve::stop_signal;
use crate::simulated::{SimulatedHandler, StopSwitch, until_registered};

mod load;
mod stats;

use load::ClientLoad;
use stats::{ClientStats, StatsSetup};

/// Languages for private use.
const SRC: &str = "qaa";
const TGT: &str = "qab";

/// Time before jobs count: connections open, caches fill.
const WARM_UP: Duration = Duration::from_secs(1);

/// How long the nodes may take to leave.
const END_MAX: Duration = Duration::from_secs(5);

/// Flags of `lingua bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Send this many jobs a second; latencies count from when each should have been sent.
    #[arg(long, conflicts_with = "concurrency", value_parser = positive)]
    rate: Option<f64>,
    /// Let this many clients send jobs, each one at a time.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
    /// How long to measure, after a second of warming up.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// How many simulated nodes to connect; 0 uses the nodes that are there. Needs a token that
    /// may register nodes.
    #[arg(long, default_value_t = 4)]
    nodes: u16,
    /// How many jobs each simulated node does at once.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    slots: u16,
    /// Source language of the jobs [default: one for private use].
    #[arg(long, visible_alias = "from", default_value = SRC, hide_default_value = true)]
    src: String,
    /// Target language of the jobs [default: one for private use].
    #[arg(long, visible_alias = "to", default_value = TGT, hide_default_value = true)]
    tgt: String,
    #[command(flatten)]
    target: TargetArgs,
}

fn positive(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    found.ok_or_else(|| "give a number above 0".to_owned())
}

impl BenchArgs {
    fn body(&self) -> Bytes {
        Bytes::from(to_json(&Dispatch {
            src_lang: self.src.as_str().into(),
            tgt_lang: self.tgt.as_str().into(),
            text: Some("Where is the nearest station?".into()),
            ..Dispatch::default()
        }))
    }
}

pub(crate) async fn run(args: BenchArgs) -> anyhow::Result<()> {
    if args.nodes == 0 && args.src == SRC {
        bail!("with '--nodes 0', name the languages of your nodes, such as --src zh --tgt en");
    }
    let client = args.target.scheduler.client()?;
    let stop = StopSwitch::new();
    // Two runs at the same time must not take over each other's nodes.
    let prefix = format!("bench-{:08x}-", rand::random::<u32>());
    let mut nodes = start_nodes(&args, &prefix, &stop)?;
    let measured = tokio::select! {
        measured = measure(&args, &prefix, &client) => measured,
        Some(ended) = nodes.join_next() => match ended.context("a task failed")? {
            Err(error) => Err(error.into()),
            Ok(()) => bail!("a node ended early"),
        },
    };
    stop.trigger();
    // Nodes that do not leave in time end with the process.
    timeout(END_MAX, async { while nodes.join_next().await.is_some() {} }).await.ok();
    let (stats, setup) = measured?;
    match args.target.json {
        true => print_line(stats.json(&setup)),
        false => print_line(stats.table(&setup, colours())),
    }
    if stats.done() == 0 {
        bail!("not a single job was done; the errors are above");
    }
    Ok(())
}

fn start_nodes(
    args: &BenchArgs,
    prefix: &str,
    stop: &StopSwitch,
) -> anyhow::Result<JoinSet<Result<(), NodeRunError>>> {
    let mut nodes = JoinSet::new();
    for number in 1..=args.nodes {
        let name = NodeId::new(&format!("{prefix}{number}")).context("no name for a node")?;
        let langs = [args.src.as_str(), args.tgt.as_str()];
        let options = args
            .target
            .scheduler
            .node_options()?
            .node_id(name)
            .languages(&langs, &langs, &langs)
            .slots(args.slots)
            .grace(Duration::from_secs(1));
        nodes.spawn(Node::new(options, SimulatedHandler::new(0, 0.0, 0)).run(stop.wait()));
    }
    Ok(nodes)
}

/// Waits for the nodes, warms up, measures; Ctrl-C ends it early with the figures so far.
async fn measure(
    args: &BenchArgs,
    prefix: &str,
    client: &Client,
) -> anyhow::Result<(ClientStats, StatsSetup)> {
    until_registered(client, args.nodes.into(), |name| name.starts_with(prefix)).await?;
    let length = Duration::from_secs(args.seconds);
    let start = Instant::now();
    let stats = Arc::new(Mutex::new(ClientStats::new()?));
    let load = ClientLoad {
        client: client.clone(),
        body: args.body(),
        stats: Arc::clone(&stats),
        count_from: start + WARM_UP,
        until: start + WARM_UP + length,
    };
    tokio::select! {
        () = load.run(args.concurrency, args.rate) => {}
        () = show_progress(args.target.json, &stats, start, WARM_UP + length) => {}
        () = stop_signal() => {}
    }
    let seconds = start.elapsed().saturating_sub(WARM_UP).min(length).as_secs_f64();
    let stats = std::mem::replace(&mut *stats.lock(), ClientStats::new()?);
    Ok((
        stats,
        StatsSetup {
            clients: args.concurrency,
            rate: args.rate,
            seconds,
            nodes: args.nodes.into(),
        },
    ))
}

/// Draws a bar until it is dropped.
async fn show_progress(
    is_hidden: bool,
    stats: &Mutex<ClientStats>,
    start: Instant,
    length: Duration,
) {
    let total = length.as_millis() as u64;
    let bar = if is_hidden { ProgressBar::hidden() } else { ProgressBar::new(total) };
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}") {
        bar.set_style(style);
    }
    let mut ticks = interval(Duration::from_millis(200));
    while start.elapsed() < length {
        ticks.tick().await;
        bar.set_position(start.elapsed().as_millis() as u64);
        bar.set_message(stats.lock().progress());
    }
    bar.finish_and_clear();
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_private_languages_are_languages() {
        assert!(lingua_wire::lang::pool("pair", &format!("{SRC}:{TGT}")).is_ok());
    }

    #[test]
    fn a_rate_is_above_zero() {
        assert_eq!(positive("0.5"), Ok(0.5));
        assert!(["0", "-1", "inf", "NaN", "x"].iter().all(|text| positive(text).is_err()));
    }
}
