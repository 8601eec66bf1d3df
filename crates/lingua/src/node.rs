//! `lingua node`: simulated nodes, through the Rust SDK.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use lingua_core::{NodeId, NodeLabel};
use lingua_sdk::{Node, NodeOptions, NodeRunError, Stats};
use tokio::task::JoinSet;

use crate::api::SchedulerArgs;
use crate::screen::{print_line, print_over};
use crate::serve::stop_signal;
use crate::simulated::{SimulatedHandler, StopSwitch};

/// How often to look at the nodes.
const TICK: Duration = Duration::from_millis(200);

/// How long running jobs may go on after Ctrl-C.
const GRACE: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    #[command(flatten)]
    scheduler: SchedulerArgs,
    /// Languages of speech recognition.
    #[arg(long, value_delimiter = ',', default_value = "zh,en")]
    asr: Vec<String>,
    /// Languages of semantic repair.
    #[arg(long, value_delimiter = ',', default_value = "zh,en")]
    semantic: Vec<String>,
    /// Languages of speech synthesis.
    #[arg(long, value_delimiter = ',', default_value = "zh,en")]
    tts: Vec<String>,
    /// How many jobs a node does at once.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    slots: u16,
    /// How many nodes.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
    /// How long a job takes on average, in milliseconds.
    #[arg(long, default_value_t = 300, value_name = "MEAN")]
    work_ms: u64,
    /// Share of the jobs that fail, from 0 to 1.
    #[arg(long, default_value_t = 0.0, value_parser = fraction)]
    fail_rate: f64,
    /// Take a job with its first audio, and the rest as it is spoken.
    #[arg(long)]
    streaming: bool,
    /// Labels that jobs may require, such as `eu,gpu`.
    #[arg(long, value_delimiter = ',')]
    labels: Vec<NodeLabel>,
    /// Id of the node; several nodes are PREFIX-1, PREFIX-2, … [default: chosen by the scheduler].
    #[arg(long, value_name = "PREFIX")]
    id: Option<NodeId>,
}

fn fraction(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|value| (0.0..=1.0).contains(value));
    found.ok_or_else(|| "give a number from 0 to 1, such as 0.3".to_owned())
}

impl NodeArgs {
    fn options(&self, number: u16) -> anyhow::Result<NodeOptions> {
        fn refs(list: &[String]) -> Vec<&str> {
            list.iter().map(String::as_str).collect()
        }
        let options = self
            .scheduler
            .node_options()?
            .languages(&refs(&self.asr), &refs(&self.semantic), &refs(&self.tts))
            .slots(self.slots)
            .streaming(self.streaming)
            .labels(self.labels.clone())
            .grace(GRACE);
        Ok(match &self.id {
            Some(prefix) => options.node_id(name(prefix, number, self.count)?),
            None => options,
        })
    }
}

/// One node has the prefix as its id, several have it with their number.
fn name(prefix: &NodeId, number: u16, count: u16) -> anyhow::Result<NodeId> {
    if count == 1 {
        return Ok(prefix.clone());
    }
    NodeId::new(&format!("{prefix}-{number}")).context("the prefix is too long; shorten --id")
}

pub(crate) async fn run(args: NodeArgs) -> anyhow::Result<()> {
    let stop = StopSwitch::new();
    let mut nodes = JoinSet::new();
    let mut all = Vec::with_capacity(args.count.into());
    for number in 1..=args.count {
        let handler = SimulatedHandler::new(args.work_ms, args.fail_rate, rand::random());
        let node = Node::new(args.options(number)?, handler);
        all.push(node.stats());
        nodes.spawn(node.run(stop.wait()));
    }
    let is_terminal = std::io::stdout().is_terminal();
    let url = args.scheduler.node_url();
    let mut connected = 0;
    let mut tick = tokio::time::interval(TICK);
    let ended = loop {
        tokio::select! {
            () = stop_signal() => break Ok(()),
            Some(ended) = nodes.join_next() => break outcome(ended),
            _ = tick.tick() => {
                let counts = NodeCounts::of(&all);
                if counts.connected != connected {
                    connected = counts.connected;
                    let line = format!("{connected} of {} connected to {url}", all.len());
                    match is_terminal {
                        true => print_over(&(line + "\n")),
                        false => print_line(line),
                    }
                }
                if is_terminal {
                    print_over(&counts.line());
                }
            }
        }
    };
    stop.trigger();
    let ended = tokio::select! {
        rest = finish(&mut nodes) => ended.and(rest),
        // A second signal ends it at once.
        () = stop_signal() => ended,
    };
    if is_terminal {
        print_line("");
    }
    print_line(NodeCounts::of(&all).summary(all.len()));
    ended
}

async fn finish(nodes: &mut JoinSet<Result<(), NodeRunError>>) -> anyhow::Result<()> {
    while let Some(ended) = nodes.join_next().await {
        outcome(ended)?;
    }
    Ok(())
}

fn outcome(ended: Result<Result<(), NodeRunError>, tokio::task::JoinError>) -> anyhow::Result<()> {
    Ok(ended.context("a node's task failed")??)
}

/// Sums over all nodes.
#[derive(Debug, Default, PartialEq, Eq)]
struct NodeCounts {
    connected: usize,
    running: u64,
    done: u64,
    failed: u64,
    refused: u64,
    reconnects: u64,
}

impl NodeCounts {
    fn of(all: &[Stats]) -> Self {
        let sum = |count: fn(&Stats) -> u64| all.iter().map(count).sum();
        Self {
            connected: all.iter().filter(|stats| stats.is_connected()).count(),
            running: sum(Stats::running),
            done: sum(Stats::done),
            failed: sum(Stats::failed),
            refused: sum(Stats::refused),
            reconnects: sum(Stats::reconnects),
        }
    }

    fn line(&self) -> String {
        let Self { connected, running, done, failed, .. } = self;
        format!("{connected} connected   {running} running   {done} done   {failed} failed")
    }

    fn summary(&self, nodes: usize) -> String {
        let Self { done, failed, refused, reconnects, .. } = self;
        let noun = if nodes == 1 { "node" } else { "nodes" };
        let ends = format!("{done} done, {failed} failed, {refused} refused");
        format!("{nodes} {noun}: {ends}, {reconnects} reconnects")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_nodes_are_numbered() {
        let prefix = NodeId::new("gpu").unwrap();
        assert_eq!(name(&prefix, 1, 1).unwrap().as_str(), "gpu");
        assert_eq!(name(&prefix, 3, 9).unwrap().as_str(), "gpu-3");
    }

    #[test]
    fn a_rate_is_a_fraction() {
        assert_eq!(fraction("0.3"), Ok(0.3));
        assert!(["-0.1", "1.1", "30%", "NaN"].iter().all(|text| fraction(text).is_err()));
    }

    #[test]
    fn the_summary_has_all_counts() {
        let counts = NodeCounts { done: 7, failed: 2, ..NodeCounts::default() };
        assert_eq!(counts.summary(1), "1 node: 7 done, 2 failed, 0 refused, 0 reconnects");
        assert_eq!(counts.line(), "0 connected   0 running   7 done   2 failed");
    }
}
