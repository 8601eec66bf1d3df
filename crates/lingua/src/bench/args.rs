//! The flags of `lingua bench`, and what they mean for each kind of benchmark.
//!
//! Start at [`BenchArgs`]. What is left out has another default for a scheduler of its own, a
//! comparison, many nodes, and a scheduler that runs already.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::{Args, ValueEnum};

use super::broker::{Kind, State};
use super::crew::Shape;
use super::load::Mode;
use super::{compare, fleet, machine, own, relay, remote};

/// Clients of the closed loop, unless it is said.
const CLIENTS: u32 = 50;

/// Jobs a second while many nodes are connected, unless it is said.
const FLEET_RATE: f64 = 1000.0;

/// How long to measure, unless it is said: once, or each round of a comparison.
pub(super) const SECONDS: u64 = 10;
const SECONDS_OF_ROUND: u64 = 2;

/// Nodes and their slots, unless it is said: as in the measurements of peers.
const SHAPE: (u16, u16) = (10, 4);

/// The same for a scheduler that runs already.
const SHAPE_REMOTE: (u16, u16) = (4, 256);

/// Flags of `lingua bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(super) part: Option<Part>,
    /// Compare the scheduler with a bare relay: the same sockets and messages, no scheduling.
    #[arg(long, conflicts_with_all = ["url", "concurrency", "fleet"])]
    pub(super) compare: bool,
    /// Connect so many nodes, and dispatch while all of them send heartbeats.
    #[arg(long, value_name = "NODES", conflicts_with_all = ["url", "nodes"],
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) fleet: Option<u32>,
    /// Let so many sessions talk at real time, and measure what the scheduler adds.
    #[arg(long, value_name = "N", conflicts_with_all = ["url", "concurrency", "nodes", "fleet", "compare", "rate"],
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) sessions: Option<u32>,
    /// Load a scheduler that runs already [default: one of its own, in a process of its own].
    #[arg(long, conflicts_with_all = ["store", "data_dir"])]
    pub(super) url: Option<String>,
    /// Token to show it, if it wants one; an admin's, as nodes are registered with it, too.
    #[arg(long, env = "LINGUA_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Where its own scheduler keeps its state [default: embedded:].
    #[arg(long)]
    store: Option<String>,
    /// So many instances of it share the store; clients and nodes go to them in turn.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "store", conflicts_with_all = ["compare", "sessions"],
          value_parser = clap::value_parser!(u32).range(1..=64))]
    instances: u32,
    /// Record what the scheduler asks of its store, and play that to the server as fast as it goes: what the
    /// jobs/s are compared with. Needs a store on one server (redis://) that does nothing else.
    #[arg(long, requires = "store", conflicts_with_all = ["compare", "sessions", "fleet", "instances"])]
    tape: bool,
    /// Its own scheduler keeps jobs in this directory.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Open loop: so many jobs a second, and latencies from when each should have been sent.
    #[arg(long, conflicts_with = "concurrency", value_parser = positive)]
    pub(super) rate: Option<f64>,
    /// Closed loop: so many clients, each with one job at a time [default: 50].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: Option<u32>,
    /// Numbers of clients to compare with.
    #[arg(long, value_delimiter = ',', default_value = "1,20,100,400", requires = "compare",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: Vec<u32>,
    /// Rounds of the comparison; what is shown are medians.
    #[arg(long, default_value_t = 5, requires = "compare", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Compare with Gearman, too.
    #[arg(long, value_enum, default_value_t = Gearman::Auto, requires = "compare")]
    gearman: Gearman,
    /// How long to measure, after warming up [default: 10, or 2 for each round of a comparison].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// How many simulated nodes [default: 10, or 4 with --url]; 0 uses those that are there.
    #[arg(long)]
    pub(super) nodes: Option<u16>,
    /// How many jobs each of them does at once [default: 4, or 256 with --url].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) slots: Option<u16>,
    /// How long a node takes for a job; as long as it takes, its slot is not free.
    #[arg(long, default_value_t = 0, conflicts_with = "url", value_parser = clap::value_parser!(u64).range(0..=60_000))]
    work_ms: u64,
    /// With --url: what the jobs are spoken in [default: a language for private use].
    #[arg(long, default_value = remote::SRC, hide_default_value = true, requires = "url")]
    src: String,
    /// With --url: what they become [default: a language for private use].
    #[arg(long, default_value = remote::TGT, hide_default_value = true, requires = "url")]
    tgt: String,
    /// Let broker and load share all cores, instead of one for each; so it is with a shared store.
    #[arg(long)]
    pub(super) no_pin: bool,
    /// Write a page with plots to this file.
    #[arg(long, value_name = "FILE.html")]
    pub(super) report: Option<PathBuf>,
    /// Print the figures as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// What a benchmark starts besides itself.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Part {
    /// The bare relay that a scheduler is compared with.
    #[command(hide = true)]
    Relay(relay::RelayArgs),
}

/// When to measure Gearman.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Gearman {
    /// If gearmand is on this machine.
    Auto,
    /// It has to be there.
    Always,
    /// Not at all.
    Never,
}

fn positive(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    found.ok_or_else(|| "give a number above 0".to_owned())
}

impl BenchArgs {
    pub(super) fn mode(&self) -> Mode {
        match (self.rate, self.concurrency) {
            (Some(per_s), _) => Mode::Open { per_s },
            (None, clients) => Mode::Closed { clients: clients.unwrap_or(CLIENTS) },
        }
    }

    /// Whether its own scheduler has a store with servers of its own.
    pub(super) fn is_shared(&self) -> bool {
        self.store.as_deref().is_some_and(|store| store.starts_with("redis"))
    }

    pub(super) fn length(&self, seconds: u64) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(seconds))
    }

    pub(super) fn shape(&self, (nodes, slots): (u16, u16)) -> Shape {
        let nodes = self.nodes.unwrap_or(nodes).into();
        let work = Duration::from_millis(self.work_ms);
        Shape { nodes, slots: self.slots.unwrap_or(slots), work }
    }

    pub(super) fn state(&self) -> State {
        let (store, data_dir) = (self.store.clone(), self.data_dir.clone());
        State { store, data_dir, instances: self.instances }
    }

    pub(super) fn comparison(&self) -> compare::Plan {
        let mut brokers = vec![Kind::Relay, Kind::Scheduler];
        let is_there = machine::program("gearmand").is_some();
        if self.gearman == Gearman::Always || self.gearman == Gearman::Auto && is_there {
            brokers.push(Kind::Gearman);
        }
        compare::Plan {
            clients: self.clients.clone(),
            rounds: self.rounds,
            round: self.length(SECONDS_OF_ROUND),
            shape: self.shape(SHAPE),
            state: self.state(),
            brokers,
            rate: self.rate,
        }
    }

    pub(super) fn own(&self) -> anyhow::Result<own::Plan> {
        ensure!(
            self.nodes != Some(0),
            "a scheduler of its own has no nodes: leave out '--nodes 0', or give --url"
        );
        let (shape, mode, length) = (self.shape(SHAPE), self.mode(), self.length(SECONDS));
        Ok(own::Plan { shape, mode, length, state: self.state(), tape: self.tape })
    }

    pub(super) fn fleet(&self, nodes: u32) -> fleet::Plan {
        let mode = match (self.rate, self.concurrency) {
            (None, None) => Mode::Open { per_s: FLEET_RATE },
            _ => self.mode(),
        };
        let shape = Shape { nodes, ..self.shape(SHAPE) };
        fleet::Plan { shape, mode, length: self.length(SECONDS), state: self.state() }
    }

    pub(super) fn remote(&self, url: &str) -> remote::Plan {
        let Shape { nodes, slots, .. } = self.shape(SHAPE_REMOTE);
        remote::Plan {
            url: url.to_owned(),
            token: self.token.clone(),
            mode: self.mode(),
            length: self.length(SECONDS),
            nodes,
            slots,
            src: self.src.clone(),
            tgt: self.tgt.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_above_zero() {
        assert_eq!(positive("0.5"), Ok(0.5));
        assert!(["0", "-1", "inf", "NaN", "x"].iter().all(|text| positive(text).is_err()));
    }
}
