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

/// How far a tape may be from life: a choice of another node can make two of its jobs change places, and heartbeats
/// are not on it.
const APART_MAX: f64 = 0.05;

/// What the scheduler is to reach of the tape.
const SHARE_GOAL: f64 = 0.7;

/// What the reply to a reservation that took a slot begins with.
const GRANTED: &str = "g";

/// What was recorded.
#[derive(Debug)]
struct Recording {
    reel: Reel,
    jobs: f64,
    /// Slots that were granted, and commands of the server, for each job.
    granted: f64,
    commands: f64,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Tape {
    /// What the scheduler did under the same load.
    life_jobs_per_s: f64,
    recording: Recording,
    played: Played,
    commands: f64,
    store_us: f64,
    yardstick: Option<Yardstick>,
}

#[derive(Debug, Default)]
struct Played {
    passes: u32,
    seconds: f64,
    /// How often replies began with what.
    replies: BTreeMap<&'static str, u64>,
}

/// Records the calls of a load and plays them.
pub(super) async fn run(
    broker: &Broker,
    servers: &Servers,
    shape: Shape,
    mode: Mode,
    life_jobs_per_s: f64,
) -> anyhow::Result<Tape> {
    let recording = record(broker, servers, shape, mode).await?;
    let mut line = Line::connect(&servers.url).await?;
    // Not counted: what happens for the first time takes longer.
    play(&mut line, &recording.reel, 1, Duration::ZERO).await?;
    let before = servers.count().await?;
    let played = play(&mut line, &recording.reel, 2, PLAYED).await?;
    let spent = servers.since(&before).await?.total();
    let jobs = recording.jobs * f64::from(played.passes);
    recording.compare(&played, spent.commands / jobs)?;
    let yardstick = yardstick::measure(&mut line, &recording.reel, &servers.url).await?;
    let (commands, store_us) = (spent.commands / jobs, spent.cpu_s * 1e6 / jobs);
    Ok(Tape { life_jobs_per_s, recording, played, commands, store_us, yardstick })
}

/// Listens while a load goes on.
async fn record(
    broker: &Broker,
    servers: &Servers,
    shape: Shape,
    mode: Mode,
) -> anyhow::Result<Recording> {
    let addresses = broker.addresses();
    let mut marker = Line::connect(&servers.url).await?;
    let (then, before) = (Work::of(&addresses).await?, servers.count().await?);
    let listening = monitor::listen(Line::connect(&servers.url).await?).await?;
    let length = Length { warm_up: Duration::ZERO, measured: RECORDED };
    measure(broker, shape, mode, length).await.context("cannot load the scheduler once more")?;
    sleep(SETTLED).await;
    let reel = listening.until_marked(&mut marker).await?;
    let (now, spent) = (Work::of(&addresses).await?, servers.since(&before).await?.total());
    let jobs = now.jobs - then.jobs;
    ensure!(
        jobs > 0.0 && reel.len() > 0,
        "nothing was recorded: {jobs} jobs, {} calls; does the server allow MONITOR?",
        reel.len()
    );
    let granted = (now.granted - then.granted) / jobs;
    Ok(Recording { reel, jobs, granted, commands: spent.commands / jobs })
}

impl Recording {
    /// An error if the server did something else for the tape than in life: what is refused takes fewer commands.
    fn compare(&self, played: &Played, commands: f64) -> anyhow::Result<()> {
        let granted = played.replies.get(GRANTED).copied().unwrap_or(0) as f64;
        let granted = granted / (self.jobs * f64::from(played.passes));
        let is_near = |found: f64, life: f64| (found / life - 1.0).abs() <= APART_MAX;
        ensure!(
            is_near(granted, self.granted) && is_near(commands, self.commands),
            "the tape is not what was recorded, so its figures mean nothing: {granted:.2} slots granted and {commands:.1} \
             commands for each job instead of {:.2} and {:.1}, replies that begin with {:?}; does anything else use this store?",
            self.granted,
            self.commands,
            played.replies
        );
        Ok(())
    }
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
            *self.replies.entry(line.reply().await?).or_default() += 1;
        }
        Ok(())
    }
}

impl Tape {
    fn jobs_per_s(&self) -> f64 {
        self.recording.jobs * f64::from(self.played.passes) / self.played.seconds
    }

    /// Calls for each job.
    fn calls(&self) -> f64 {
        self.recording.reel.len() as f64 / self.recording.jobs
    }

    fn share(&self) -> f64 {
        self.life_jobs_per_s / self.jobs_per_s()
    }

    /// For people.
    pub(super) fn table(&self, colours: bool) -> String {
        let is_met = self.share() >= SHARE_GOAL;
        let (word, mood) = if is_met { ("met", Mood::Good) } else { ("missed", Mood::Bad) };
        let (passes, jobs) = (self.played.passes, self.recording.jobs);
        let calls = self.calls();
        let mut facts = vec![
            (
                "tape",
                format!(
                    "{:.0} jobs/s: {:.0} jobs of {calls:.2} calls, played {passes} times, {} calls under way",
                    self.jobs_per_s(),
                    jobs,
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
            "jobs": self.recording.jobs,
            "calls_per_job": self.calls(),
            "commands_per_job": self.commands,
            "granted_per_job": self.recording.granted,
            "passes": self.played.passes,
            "store_cpu_us_per_job": self.store_us,
            "scheduler_share": self.share(),
            "replies": self.played.replies,
            "yardstick": self.yardstick.as_ref().map(Yardstick::json),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tape_that_is_refused_is_an_error() {
        let reel = Reel::default();
        let life = Recording { reel, jobs: 100.0, granted: 1.0, commands: 20.0 };
        let played = |granted| {
            let replies = [(GRANTED, granted), ("f", 200 - granted)].into();
            Played { passes: 2, seconds: 1.0, replies }
        };
        assert!(life.compare(&played(200), 20.1).is_ok());
        assert!(life.compare(&played(198), 19.8).is_ok(), "two that changed places");
        for (granted, commands) in [(150, 20.0), (200, 14.0), (0, 9.0)] {
            let why = life.compare(&played(granted), commands).unwrap_err().to_string();
            assert!(why.contains("the tape is not what was recorded"), "{why}");
        }
    }
}
