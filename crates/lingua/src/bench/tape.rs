//! What the server of a shared store could do: the scheduler's own calls, recorded and played as fast as it goes.
//!
//! | file | what |
//! |---|---|
//! | `tape/monitor.rs` | reads what `MONITOR` says |
//! | `tape/reel.rs` | the recorded calls, and their copies for other jobs |
//! | `tape/line.rs` | a connection to the server |
//! | `tape/yardstick.rs` | the player against `redis-benchmark` |
//!
//! Start at [`run`]. `redis-benchmark` can only repeat one command, and a job's calls follow from each other: its
//! record is there before it moves, its slot is taken before it is given back. So the calls of some thousand jobs are
//! recorded in the server's own order, and played on one connection again and again, pipelined, each time for jobs of other
//! names. The scheduler and its nodes stay up meanwhile, without jobs: nodes that do not beat would not be chosen.
//!
//! Invariant: a tape whose calls are refused measures nothing, and is an error.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::BytesMut;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::broker::Broker;
use super::crew::Shape;
use super::lean::{Length, measure};
use super::load::Mode;
use super::shared::{Servers, Work};
use crate::screen::{Mood, card};

mod line;
mod monitor;
mod reel;
mod yardstick;

use line::Line;
use reel::Reel;
use yardstick::Yardstick;

/// How long is recorded, and how long the last steps may take that nobody waits for.
const RECORDED: Duration = Duration::from_millis(1500);
const SETTLED: Duration = Duration::from_millis(200);

/// How long the tape is played, at least.
const PLAYED: Duration = Duration::from_secs(3);

/// Calls that are sent together, and how many such batches are under way.
const BATCH: usize = 64;
const BATCHES: usize = 2;

/// What of a tape may be refused: a choice of another node can make two jobs of it change places.
const REFUSED_MAX: f64 = 0.01;

/// What the scheduler is to reach of the tape.
const SHARE_GOAL: f64 = 0.7;

/// Words of replies that mean: not done. What is told by an empty list is that, too.
const REFUSALS: [&str; 9] =
    ["full", "none", "stale", "gone", "missing", "conflict", "exists", "limit", "reregister"];

/// The word of the reply to a reservation that took a slot.
const GRANTED: &str = "granted";

/// What came of it.
#[derive(Debug)]
pub(super) struct Tape {
    /// What the scheduler did under the same load.
    life_jobs_per_s: f64,
    jobs: f64,
    calls: usize,
    played: Played,
    store_us: f64,
    yardstick: Option<Yardstick>,
}

#[derive(Debug, Default)]
struct Played {
    passes: u32,
    seconds: f64,
    /// How often each word was the first of a reply.
    words: BTreeMap<String, u64>,
}

/// Records the calls of a load and plays them.
pub(super) async fn run(
    broker: &Broker,
    servers: &Servers,
    shape: Shape,
    mode: Mode,
    life_jobs_per_s: f64,
) -> anyhow::Result<Tape> {
    let (reel, life) = record(broker, servers, shape, mode).await?;
    let mut line = Line::connect(&servers.url).await?;
    let check = play(&mut line, &reel, 1, Duration::ZERO).await?;
    check.compare(&life, &reel)?;
    let before = servers.count().await?;
    let played = play(&mut line, &reel, 2, PLAYED).await?;
    let spent = servers.since(&before).await?.total();
    played.compare(&life, &reel)?;
    let yardstick = yardstick::measure(&mut line, &reel, &servers.url).await?;
    let (jobs, calls) = (life.jobs, reel.len());
    let store_us = spent.cpu_s * 1e6 / (jobs * f64::from(played.passes));
    Ok(Tape { life_jobs_per_s, jobs, calls, played, store_us, yardstick })
}

/// Listens while a load goes on; gives the calls, and what the scheduler did meanwhile.
async fn record(
    broker: &Broker,
    servers: &Servers,
    shape: Shape,
    mode: Mode,
) -> anyhow::Result<(Reel, Work)> {
    let addresses = broker.addresses();
    let before = Work::of(&addresses).await?;
    let mut marker = Line::connect(&servers.url).await?;
    let listening = monitor::listen(Line::connect(&servers.url).await?).await?;
    let length = Length { warm_up: Duration::ZERO, measured: RECORDED };
    measure(broker, shape, mode, length).await.context("cannot load the scheduler once more")?;
    sleep(SETTLED).await;
    let reel = listening.until_marked(&mut marker).await?;
    let now = Work::of(&addresses).await?;
    let life = Work {
        jobs: now.jobs - before.jobs,
        reserves: now.reserves - before.reserves,
        granted: now.granted - before.granted,
    };
    ensure!(
        life.jobs > 0.0 && reel.len() > 0,
        "nothing was recorded: {} jobs, {} calls; does the server allow MONITOR?",
        life.jobs,
        reel.len()
    );
    Ok((reel, life))
}

/// Plays the tape, over and over for so long, for jobs that nobody has had; `first` numbers the first pass.
async fn play(
    line: &mut Line,
    reel: &Reel,
    first: u32,
    length: Duration,
) -> anyhow::Result<Played> {
    let mut played = Played::default();
    let (start, mut under_way, mut batch) = (Instant::now(), VecDeque::new(), BytesMut::new());
    while played.passes == 0 || start.elapsed() < length {
        for from in (0..reel.len()).step_by(BATCH) {
            let upto = reel.len().min(from + BATCH);
            batch.clear();
            for call in from..upto {
                reel.put(call, first + played.passes, &mut batch);
            }
            line.send(&batch).await?;
            under_way.push_back(upto - from);
            if under_way.len() == BATCHES {
                played.hear(line, under_way.pop_front().unwrap_or_default()).await?;
            }
        }
        played.passes += 1;
    }
    for count in under_way {
        played.hear(line, count).await?;
    }
    played.seconds = start.elapsed().as_secs_f64();
    Ok(played)
}

impl Played {
    async fn hear(&mut self, line: &mut Line, count: usize) -> anyhow::Result<()> {
        for _ in 0..count {
            *self.words.entry(line.reply().await?).or_default() += 1;
        }
        Ok(())
    }

    fn count(&self, word: &str) -> f64 {
        self.words.get(word).copied().unwrap_or(0) as f64
    }

    /// An error if the server did something else than in life.
    fn compare(&self, life: &Work, reel: &Reel) -> anyhow::Result<()> {
        let passes = f64::from(self.passes);
        let asked_in_vain = (life.reserves - life.granted) * passes;
        let refused: f64 =
            REFUSALS.iter().map(|word| self.count(word)).sum::<f64>() + self.count("");
        let calls = reel.len() as f64 * passes;
        let granted = self.count(GRANTED) / (life.granted * passes).max(1.0);
        ensure!(
            refused - asked_in_vain <= calls * REFUSED_MAX && (granted - 1.0).abs() <= REFUSED_MAX,
            "the tape is not what was recorded, so its figures mean nothing: {:.1} % of the slots granted, replies {:?}; \
             does anything else use this store?",
            granted * 100.0,
            self.words
        );
        Ok(())
    }
}

impl Tape {
    fn jobs_per_s(&self) -> f64 {
        self.jobs * f64::from(self.played.passes) / self.played.seconds
    }

    fn share(&self) -> f64 {
        self.life_jobs_per_s / self.jobs_per_s()
    }

    /// For people.
    pub(super) fn table(&self, colours: bool) -> String {
        let is_met = self.share() >= SHARE_GOAL;
        let (word, mood) = if is_met { ("met", Mood::Good) } else { ("missed", Mood::Bad) };
        let (passes, calls) = (self.played.passes, self.calls as f64 / self.jobs);
        let mut facts = vec![
            (
                "tape",
                format!(
                    "{:.0} jobs/s: {:.0} jobs of {calls:.2} calls, played {passes} times, {} calls under way",
                    self.jobs_per_s(),
                    self.jobs,
                    BATCH * BATCHES
                ),
            ),
            ("store cpu", format!("{:.0} µs for each job of the tape", self.store_us)),
            (
                "scheduler",
                format!(
                    "{:.0} % of the tape's jobs/s (goal {:.0} %: {})",
                    self.share() * 100.0,
                    SHARE_GOAL * 100.0,
                    mood.paint(word, colours)
                ),
            ),
        ];
        if let Some(yardstick) = &self.yardstick {
            facts.push(("yardstick", yardstick.to_string()));
        }
        card(&facts)
    }

    /// For machines.
    pub(super) fn json(&self) -> Value {
        json!({
            "jobs_per_s": self.jobs_per_s(),
            "jobs": self.jobs,
            "calls_per_job": self.calls as f64 / self.jobs,
            "passes": self.played.passes,
            "store_cpu_us_per_job": self.store_us,
            "scheduler_share": self.share(),
            "replies": self.played.words,
            "yardstick": self.yardstick.as_ref().map(Yardstick::json),
        })
    }
}
