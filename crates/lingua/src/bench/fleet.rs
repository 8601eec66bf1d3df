//! Many nodes at once: what each costs the scheduler, and what they leave for the jobs.
//!
//! Start at [`run`]. All nodes are connected, registered and beating while jobs come at a rate.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::broker::{Broker, Kind, State};
use super::crew::{Crew, Shape};
use super::lean::{Length, Outcome, measure};
use super::load::Mode;
use super::machine::Pins;
use super::progress::Progress;
use super::score::shown_ms;
use crate::screen::{Mood, card};

/// What is not counted: every node beats at least once in it.
const WARM_UP: Duration = Duration::from_secs(5);

/// Files of a process besides its connections.
const FILES_BESIDES: u64 = 512;

/// What a connected node may cost the scheduler.
const NODE_KIB_MAX: f64 = 32.0;

/// What came of it.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) shape: Shape,
    pub(super) rate: f64,
    pub(super) outcome: Outcome,
    /// Memory of the scheduler before any node, with all of them, and after the jobs.
    pub(super) resident_kib: [u64; 3],
    pub(super) beats_per_s: f64,
}

/// Connects the nodes, dispatches at a rate, measures.
pub(super) async fn run(
    shape: Shape,
    rate: f64,
    length: Duration,
    state: &State,
    pins: Option<&Pins>,
    progress: &Progress,
) -> anyhow::Result<Fleet> {
    raise_files(u64::from(shape.nodes) + FILES_BESIDES)?;
    progress.expect(u64::from(shape.nodes) + 1);
    let broker = Broker::start(Kind::Scheduler, state, pins).await?;
    let before = broker.resident_kib()?;
    let mut crew = Crew::join(&broker, shape, |joined| {
        progress.at(joined.into());
        progress.say(format!("{joined} nodes"));
    })
    .await?;
    let connected = broker.resident_kib()?;
    progress.say(format!("{rate:.0} jobs/s for {:.0} s", (WARM_UP + length).as_secs_f64()));
    let beats = crew.tally().beats.load(Ordering::Relaxed);
    let outcome =
        measure(&broker, Mode::Open { per_s: rate }, Length { warm_up: WARM_UP, measured: length })
            .await?;
    crew.check().context("the scheduler lost a node")?;
    let beats = crew.tally().beats.load(Ordering::Relaxed) - beats;
    let after = broker.resident_kib()?;
    progress.step();
    drop(crew);
    broker.stop().await;
    let beats_per_s = beats as f64 / (WARM_UP + length).as_secs_f64();
    Ok(Fleet { shape, rate, outcome, resident_kib: [before, connected, after], beats_per_s })
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
                    "{:.0}/s of {:.0}/s, {} done, {} failed",
                    self.outcome.jobs_per_s(),
                    self.rate,
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
        format!("{}\ntarget:          {}", card(&self.facts()), mood.paint(word, colours))
    }

    /// For machines.
    pub(super) fn json(&self) -> Value {
        let [before, connected, after] = self.resident_kib;
        let score = &self.outcome.score;
        json!({
            "nodes": self.shape.nodes,
            "slots": self.shape.slots,
            "node_kib": self.node_kib(),
            "resident_kib": {"before": before, "connected": connected, "after": after},
            "heartbeats_per_s": self.beats_per_s,
            "rate": self.rate,
            "jobs_per_s": self.outcome.jobs_per_s(),
            "done": score.done(),
            "failed": score.failed(),
            "latency_ms": score.latency_ms(),
            "cpu_us_per_job": self.outcome.cpu_us_per_job,
            "met": self.is_met(),
        })
    }
}
