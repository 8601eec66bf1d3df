//! Many nodes at once: what each costs the scheduler and its store, and what they leave for the jobs.
//!
//! Start at [`run`]. All nodes are connected, registered and beating: first for a while without jobs, which
//! shows what a heartbeat costs, then while jobs come.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::broker::{Broker, Kind, State};
use super::crew::{Crew, Shape};
use super::lean::{Length, Outcome, connections, measure};
use super::load::Mode;
use super::machine::Pins;
use super::progress::Progress;
use super::score::shown_ms;
use super::shared::{Count, Counts, Servers, Share, Work};
use crate::screen::{Mood, card};

/// What is not counted: every node beats at least once in it.
const WARM_UP: Duration = Duration::from_secs(5);

/// How long the fleet does nothing but beat: two beats of each node, unless there are so many that they beat less often.
const IDLE: Duration = Duration::from_secs(10);

/// Files of a process besides its connections.
pub(super) const FILES_BESIDES: u64 = 512;

/// What a connected node may cost the scheduler.
const NODE_KIB_MAX: f64 = 32.0;

/// What to connect, and what to ask of it.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) shape: Shape,
    pub(super) mode: Mode,
    pub(super) length: Duration,
    pub(super) state: State,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) shape: Shape,
    mode: Mode,
    pub(super) outcome: Outcome,
    /// Memory of the scheduler before any node, with all of them, and after the jobs.
    pub(super) resident_kib: [u64; 3],
    pub(super) beats_per_s: f64,
    /// With a shared store: what the nodes cost, and what it did for the jobs besides.
    shared: Option<(Idle, Share)>,
}

/// What the fleet costs while there are no jobs, upkeep included.
#[derive(Debug)]
struct Idle {
    beats: f64,
    scheduler_us: f64,
    store: Counts,
    /// What the store holds of the nodes.
    held_bytes: f64,
}

/// Connects the nodes, lets them beat, dispatches, measures.
pub(super) async fn run(
    plan: Plan,
    pins: Option<&Pins>,
    progress: &Progress,
) -> anyhow::Result<Fleet> {
    let Plan { shape, mode, length, state } = plan;
    raise_files(u64::from(shape.nodes) + u64::from(connections(mode, shape.work)) + FILES_BESIDES)?;
    progress.expect(u64::from(shape.nodes) + 1);
    let servers = Servers::connect(state.store.as_deref()).await?;
    let empty = count(servers.as_ref()).await?;
    let broker = Broker::start(Kind::Scheduler, &state, pins).await?;
    let before = broker.resident_kib()?;
    let mut crew = Crew::join(&broker, shape, |joined| {
        progress.at(joined.into());
        progress.say(format!("{joined} nodes"));
    })
    .await?;
    let connected = broker.resident_kib()?;
    let idle = match servers.as_ref().zip(empty) {
        Some((servers, empty)) => {
            progress.say(format!("heartbeats for {:.0} s", IDLE.as_secs_f64()));
            Some(Idle::of(&broker, &crew, servers, &empty).await?)
        }
        None => None,
    };
    progress.say(format!("jobs for {:.0} s", (WARM_UP + length).as_secs_f64()));
    let (beats, start) = (crew.beats(), Instant::now());
    let then = count(servers.as_ref()).await?;
    let times = Length { warm_up: WARM_UP, measured: length };
    let outcome = measure(&broker, shape, mode, times).await?;
    crew.check().context("the scheduler lost a node")?;
    let beats_per_s = (crew.beats() - beats) / start.elapsed().as_secs_f64();
    let shared = match servers.as_ref().zip(then).zip(idle) {
        Some(((servers, then), idle)) => {
            let times = start.elapsed().as_secs_f64() / IDLE.as_secs_f64();
            let spent = servers.since(&then).await?.less(&idle.store, times);
            let work = Work::of(&broker.addresses()).await?;
            let share = Share::new(spent, work, outcome.cpu_us_per_job);
            Some((idle, share))
        }
        None => None,
    };
    let resident_kib = [before, connected, broker.resident_kib()?];
    progress.step();
    drop(crew);
    broker.stop().await;
    Ok(Fleet { shape, mode, outcome, resident_kib, beats_per_s, shared })
}

async fn count(servers: Option<&Servers>) -> anyhow::Result<Option<Counts>> {
    Ok(match servers {
        Some(servers) => Some(servers.count().await?),
        None => None,
    })
}

impl Idle {
    /// Lets the nodes beat for a while.
    async fn of(
        broker: &Broker,
        crew: &Crew,
        servers: &Servers,
        empty: &Counts,
    ) -> anyhow::Result<Self> {
        let then = servers.count().await?;
        let held_bytes = then.less(empty, 1.0).total().memory_bytes;
        let (cpu, beats) = (broker.cpu()?, crew.beats());
        sleep(IDLE).await;
        let (cpu, beats) = (broker.cpu()? - cpu, crew.beats() - beats);
        let store = servers.since(&then).await?;
        let scheduler_us = cpu.as_secs_f64() * 1e6 / beats.max(1.0);
        Ok(Self { beats, scheduler_us, store, held_bytes })
    }

    /// Calls, commands, microseconds and bytes over the network of the store for each heartbeat.
    fn store_each(&self) -> [f64; 4] {
        let Count { calls, commands, cpu_s, net_bytes, .. } = self.store.total();
        [calls, commands, cpu_s * 1e6, net_bytes].map(|spent| spent / self.beats.max(1.0))
    }

    /// For people.
    fn facts(&self, nodes: u32) -> Vec<(&'static str, String)> {
        let [calls, commands, us, bytes] = self.store_each();
        let held = self.held_bytes / f64::from(nodes.max(1));
        let each = format!(
            "{calls:.2} round trips, {commands:.1} commands, {bytes:.0} bytes, upkeep included"
        );
        vec![
            (
                "each heartbeat",
                format!(
                    "{:.0} µs of the scheduler, {us:.0} µs of the store, {each}",
                    self.scheduler_us
                ),
            ),
            ("each node", format!("{held:.0} bytes of the store")),
        ]
    }

    /// For machines.
    fn json(&self, nodes: u32) -> Value {
        let [calls, commands, us, bytes] = self.store_each();
        json!({
            "scheduler_cpu_us": self.scheduler_us,
            "store_cpu_us": us,
            "round_trips": calls,
            "commands": commands,
            "store_net_bytes": bytes,
            "store_bytes_per_node": self.held_bytes / f64::from(nodes.max(1)),
        })
    }
}

/// A connection is a file, here and in the scheduler, which inherits the limit.
pub(super) fn raise_files(wanted: u64) -> anyhow::Result<()> {
    let (soft, hard) = rlimit::getrlimit(rlimit::Resource::NOFILE).context("no limits")?;
    if soft >= wanted {
        return Ok(());
    }
    ensure!(
        hard >= wanted,
        "so many nodes need {wanted} open files, and this system allows {hard}; raise the hard limit \
         (ulimit -Hn, or LimitNOFILE= of the service) or use fewer nodes"
    );
    rlimit::setrlimit(rlimit::Resource::NOFILE, wanted, hard)
        .context("cannot raise the limit of files")
}

impl Fleet {
    /// Memory of the scheduler for each node, after the jobs.
    pub(super) fn node_kib(&self) -> f64 {
        let [before, _, after] = self.resident_kib;
        after.saturating_sub(before) as f64 / f64::from(self.shape.nodes.max(1))
    }

    pub(super) fn is_met(&self) -> bool {
        self.node_kib() <= NODE_KIB_MAX && self.outcome.score.failed() == 0
    }

    /// Names and values, for people.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let [before, connected, after] = self.resident_kib.map(|kib| kib as f64 / 1024.0);
        let score = &self.outcome.score;
        vec![
            (
                "nodes",
                format!("{} with {} slots, all connected", self.shape.nodes, self.shape.slots),
            ),
            ("memory of each", format!("{:.1} KiB (limit {NODE_KIB_MAX:.0} KiB)", self.node_kib())),
            (
                "memory in all",
                format!(
                    "{before:.0} MiB without nodes, {connected:.0} MiB with them, {after:.0} MiB after the jobs"
                ),
            ),
            ("heartbeats", format!("{:.0}/s", self.beats_per_s)),
            (
                "jobs",
                format!(
                    "{:.0}/s of {}, {} done, {} failed",
                    self.outcome.jobs_per_s(),
                    match self.mode {
                        Mode::Open { per_s } => format!("{per_s:.0}/s"),
                        Mode::Closed { clients } => format!("{clients} clients"),
                    },
                    score.done(),
                    score.failed()
                ),
            ),
            (
                "latency",
                format!(
                    "p50 {} ms, p99 {} ms, max {} ms",
                    shown_ms(score.quantile_ms(0.5)),
                    shown_ms(score.quantile_ms(0.99)),
                    shown_ms(score.max_ms())
                ),
            ),
            (
                "cpu",
                format!(
                    "{:.0} µs of the scheduler for each job, heartbeats included",
                    self.outcome.cpu_us_per_job
                ),
            ),
        ]
    }

    /// For people.
    pub(super) fn table(&self, colours: bool) -> String {
        let (word, mood) = if self.is_met() { ("met", Mood::Good) } else { ("missed", Mood::Bad) };
        let mut out =
            format!("{}\ntarget:          {}", card(&self.facts()), mood.paint(word, colours));
        if let Some((idle, share)) = &self.shared {
            let (nodes, jobs) = (card(&idle.facts(self.shape.nodes)), share.table());
            out = format!("{out}\n\n{nodes}\n\nThe jobs alone:\n{jobs}");
        }
        match self.outcome.score.lateness() {
            Some(lateness) => format!("{out}\n\n{lateness}"),
            None => out,
        }
    }

    /// For machines.
    pub(super) fn json(&self) -> Value {
        let [before, connected, after] = self.resident_kib;
        let score = &self.outcome.score;
        let (idle, share) = self.shared.as_ref().map(|(idle, share)| (idle, share)).unzip();
        json!({
            "nodes": self.shape.nodes,
            "slots": self.shape.slots,
            "node_kib": self.node_kib(),
            "resident_kib": {"before": before, "connected": connected, "after": after},
            "heartbeats_per_s": self.beats_per_s,
            "heartbeat": idle.map(|idle| idle.json(self.shape.nodes)),
            "store": share.map(Share::json),
            "rate": match self.mode {
                Mode::Open { per_s } => Some(per_s),
                Mode::Closed { .. } => None,
            },
            "jobs_per_s": self.outcome.jobs_per_s(),
            "done": score.done(),
            "failed": score.failed(),
            "latency_ms": score.latency_ms(),
            "cpu_us_per_job": self.outcome.cpu_us_per_job,
            "met": self.is_met(),
        })
    }
}
