//! The command line, and what its flags mean for each benchmark.
//!
//! Start at [`BenchCommand`]. Flags that are left out have another default in each of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};

use crate::broker::{BrokerSpec, SchedulerSpec};
use crate::compare::ComparePlan;
use crate::fleet::FleetPlan;
use crate::load::LoadPlan;
use crate::nodes::NodeShape;
use crate::raw_client::LoadMode;
use crate::{machine, relay};

/// Clients of the closed loop if neither `--concurrency` nor `--rate` is given.
const CLIENTS: u32 = 50;

/// Jobs a second while many nodes are connected, if no load is given.
const FLEET_RATE: f64 = 1000.0;

/// How long to measure by default: once, or each round of a comparison.
pub(crate) const SECONDS: u64 = 10;
const SECONDS_OF_ROUND: u64 = 2;

/// Measures schedulers under load.
#[derive(Debug, Parser)]
#[command(name = "lingua-bench", version)]
pub(crate) struct BenchCli {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Compare programs with each other, and with a bare relay and Gearman.
    Compare(CompareArgs),
    /// Measure one scheduler under one load.
    Load(LoadArgs),
    /// Connect many nodes, and dispatch jobs while all of them send heartbeats.
    Fleet(FleetArgs),
    /// Let sessions talk at real time, and measure what the scheduler adds.
    Sessions(SessionsArgs),
    /// The bare relay: the scheduler's sockets and messages without scheduling.
    #[command(hide = true)]
    Relay(relay::RelayArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CommonArgs {
    /// The scheduler's program [default: `lingua` beside this program; `cargo run` builds it].
    /// `compare` takes several.
    #[arg(long, value_name = "PATH")]
    program: Vec<PathBuf>,
    /// Where the scheduler keeps its state, such as redis://127.0.0.1:6379 [default: embedded:].
    #[arg(long)]
    store: Option<String>,
    /// How long to measure, after warming up [default: 10, or 2 for each round of a comparison].
    #[arg(long, value_parser = value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Do not give the scheduler and the load a core each. (With a shared store it is never done.)
    #[arg(long)]
    pub(crate) no_pin: bool,
    /// Write a page with plots to this file.
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Print the figures as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Numbers of clients, each with one job at a time.
    #[arg(long, value_delimiter = ',', default_value = "1,20,100,400",
          value_parser = value_parser!(u32).range(1..=10_000))]
    clients: Vec<u32>,
    /// Rounds; the figures are medians of the rounds.
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Jobs a second of the open loop, 0 for none [default: half of the highest rate of the first
    /// scheduler].
    #[arg(long, value_parser = rate_or_none)]
    rate: Option<f64>,
    /// What else to measure [default: the relay, and Gearman if it is installed; nothing if several
    /// programs are given].
    #[arg(long, value_enum, value_delimiter = ',')]
    peers: Option<Vec<Peer>>,
    /// Measure each program a second time, with tokens, tenants and limits for its callers.
    #[arg(long)]
    with_tokens: bool,
    #[command(flatten)]
    nodes: NodeArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    mode: ModeArgs,
    #[command(flatten)]
    nodes: NodeArgs,
    /// Start so many instances that share the store; clients and nodes go to them in turn.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "store",
          value_parser = value_parser!(u32).range(1..=64))]
    instances: u32,
    /// Record the scheduler's calls to its store, and replay them as fast as the server answers.
    /// Needs a store on one server (redis://) that nothing else uses.
    #[arg(long, requires = "store", conflicts_with = "instances")]
    replay: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FleetArgs {
    /// How many nodes.
    #[arg(value_parser = value_parser!(u32).range(1..=1_000_000))]
    nodes: u32,
    /// How many jobs each node does at once.
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u16).range(1..))]
    slots: u16,
    #[command(flatten)]
    mode: ModeArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    /// How many sessions talk at once.
    #[arg(value_parser = value_parser!(u32).range(1..=100_000))]
    pub(crate) sessions: u32,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
struct ModeArgs {
    /// Open loop: so many jobs a second, latencies from the moment each should have been sent.
    #[arg(long, conflicts_with = "concurrency", value_parser = rate)]
    rate: Option<f64>,
    /// Closed loop: so many clients, each with one job at a time [default: 50].
    #[arg(long, value_parser = value_parser!(u32).range(1..=10_000))]
    concurrency: Option<u32>,
}

#[derive(Debug, Args)]
struct NodeArgs {
    /// How many simulated nodes.
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u32).range(1..=100_000))]
    nodes: u32,
    /// How many jobs each node does at once.
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u16).range(1..))]
    slots: u16,
    /// How long a node works on a job.
    #[arg(long, default_value_t = 0, value_parser = value_parser!(u64).range(0..=60_000))]
    work_ms: u64,
}

/// What a scheduler is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    Relay,
    Gearman,
}

fn rate_or_none(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 0.0);
    found.ok_or_else(|| "give a number, 0 or above".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let found = rate_or_none(text).ok().filter(|rate| *rate > 0.0);
    found.ok_or_else(|| "give a number above 0".to_owned())
}

impl CommonArgs {
    /// Whether the store has servers of its own.
    pub(crate) fn is_shared(&self) -> bool {
        self.store.as_deref().is_some_and(|store| store.starts_with("redis"))
    }

    pub(crate) fn length(&self, seconds: u64) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(seconds))
    }

    /// The one scheduler to measure.
    pub(crate) fn scheduler(&self) -> anyhow::Result<SchedulerSpec> {
        ensure!(self.program.len() <= 1, "only 'lingua-bench compare' takes several --program");
        Ok(self.schedulers()?.remove(0))
    }

    fn schedulers(&self) -> anyhow::Result<Vec<SchedulerSpec>> {
        let programs = match self.program.is_empty() {
            true => vec![default_program()?],
            false => self.program.clone(),
        };
        let is_alone = programs.len() == 1;
        let spec = |(letter, program): (char, PathBuf)| {
            ensure!(program.is_file(), "there is no program {}", program.display());
            Ok(SchedulerSpec {
                name: if is_alone { "scheduler".to_owned() } else { letter.to_string() },
                // Two programs on one store must not see each other's nodes.
                key_prefix: (!is_alone && self.is_shared()).then(|| format!("bench-{letter}:")),
                program,
                store: self.store.clone(),
                instances: 1,
                has_tokens: false,
            })
        };
        ('A'..='Z').zip(programs).map(spec).collect()
    }
}

/// `lingua` beside this program. Under `cargo run` it is built first: an old one would be measured
/// without anybody noticing.
fn default_program() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("cannot tell where this program is")?;
    let beside = this.with_file_name("lingua");
    let (cargo, manifest) = (std::env::var_os("CARGO"), std::env::var_os("CARGO_MANIFEST_DIR"));
    if let (Some(cargo), Some(manifest), Some(dir)) = (cargo, manifest, this.parent()) {
        let profile = match dir.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(profile) => profile,
        };
        let manifest = Path::new(&manifest).join("../lingua/Cargo.toml");
        let built = std::process::Command::new(cargo)
            .args(["build", "--quiet", "--locked", "--profile", profile, "--manifest-path"])
            .arg(manifest)
            .status();
        ensure!(built.is_ok_and(|status| status.success()), "cargo cannot build lingua");
    }
    let path = beside.display();
    ensure!(beside.is_file(), "there is no scheduler at {path}; name one with --program");
    Ok(beside)
}

impl ModeArgs {
    fn mode(&self) -> Option<LoadMode> {
        match (self.rate, self.concurrency) {
            (Some(per_s), _) => Some(LoadMode::Open { per_s }),
            (None, clients) => clients.map(|clients| LoadMode::Closed { clients }),
        }
    }
}

impl NodeArgs {
    fn shape(&self) -> NodeShape {
        let work = Duration::from_millis(self.work_ms);
        NodeShape { nodes: self.nodes, slots: self.slots, work }
    }
}

impl CompareArgs {
    pub(crate) fn plan(&self) -> anyhow::Result<ComparePlan> {
        let mut schedulers = self.common.schedulers()?;
        if self.with_tokens {
            schedulers = schedulers.into_iter().flat_map(with_tokens).collect();
        }
        let peers = match &self.peers {
            Some(peers) => peers.clone(),
            None if schedulers.len() > 1 => vec![],
            None if machine::find_program("gearmand").is_some() => vec![Peer::Relay, Peer::Gearman],
            None => vec![Peer::Relay],
        };
        let mut brokers = vec![];
        brokers.extend(peers.contains(&Peer::Relay).then_some(BrokerSpec::Relay));
        brokers.extend(schedulers.into_iter().map(BrokerSpec::Scheduler));
        brokers.extend(peers.contains(&Peer::Gearman).then_some(BrokerSpec::Gearman));
        Ok(ComparePlan {
            clients: self.clients.clone(),
            rounds: self.rounds,
            round: self.common.length(SECONDS_OF_ROUND),
            shape: self.nodes.shape(),
            brokers,
            rate: self.rate,
            store: self.common.store.clone(),
        })
    }
}

/// The scheduler as it is, and one whose callers have tokens.
fn with_tokens(open: SchedulerSpec) -> [SchedulerSpec; 2] {
    let name = format!("{} with tokens", open.name);
    // They must not see each other's nodes.
    let prefix = |of: &str| open.store.as_ref().map(|_| format!("bench-{of}-{}:", open.name));
    let tokens =
        SchedulerSpec { name, has_tokens: true, key_prefix: prefix("tokens"), ..open.clone() };
    [SchedulerSpec { key_prefix: prefix("open"), ..open }, tokens]
}

impl LoadArgs {
    pub(crate) fn plan(&self) -> anyhow::Result<LoadPlan> {
        let mut scheduler = self.common.scheduler()?;
        scheduler.instances = self.instances;
        Ok(LoadPlan {
            shape: self.nodes.shape(),
            mode: self.mode.mode().unwrap_or(LoadMode::Closed { clients: CLIENTS }),
            length: self.common.length(SECONDS),
            scheduler,
            is_replayed: self.replay,
        })
    }
}

impl FleetArgs {
    pub(crate) fn plan(&self) -> anyhow::Result<FleetPlan> {
        Ok(FleetPlan {
            shape: NodeShape { nodes: self.nodes, slots: self.slots, work: Duration::ZERO },
            mode: self.mode.mode().unwrap_or(LoadMode::Open { per_s: FLEET_RATE }),
            length: self.common.length(SECONDS),
            scheduler: self.common.scheduler()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        BenchCli::command().debug_assert();
    }

    #[test]
    fn a_rate_is_above_zero() {
        assert_eq!(rate("0.5"), Ok(0.5));
        assert!(["0", "-1", "inf", "NaN", "x"].iter().all(|text| rate(text).is_err()));
        assert_eq!(rate_or_none("0"), Ok(0.0));
    }
}
