//! What the store's server could do: the scheduler's calls, recorded and replayed without it.
//!
//! | file | what it holds |
//! |---|---|
//! | `recording/monitor.rs` | reads the output of `MONITOR` |
//! | `recording/calls.rs` | the recorded calls, and their copies for other jobs |
//! | `recording/connection.rs` | a connection to the server |
//! | `recording/baseline.rs` | the replay compared with `redis-benchmark` |
//!
//! Start at [`run`]. `redis-benchmark` can only repeat one command, and a job's calls depend on
//! each other: its record exists before it changes, its slot is taken before it is released. So the
//! calls of some thousand jobs are recorded in the server's order and replayed on one connection,
//! pipelined, each time for jobs with other ids. The scheduler and its nodes stay up meanwhile,
//! without jobs: nodes that send no heartbeats would not be chosen.
//!
//! Invariant: a replay whose calls are refused is an error, because it measures nothing.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::BytesMut;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::broker::Broker;
use crate::nodes::NodeShape;
use crate::output::{self, verdict};
use crate::raw_client::{LoadLength, LoadMode, measure};
use crate::store_cost::{SchedulerCounters, StoreServers};

mod baseline;
mod calls;
mod connection;
mod monitor;

use baseline::ReplayBaseline;
use calls::CallLog;
use connection::RawRedis;

/// How long is recorded, and how long the last calls may take that no client waits for.
const RECORDED: Duration = Duration::from_millis(1500);
const SETTLED: Duration = Duration::from_millis(200);

/// How long the calls are replayed, at least.
const REPLAYED: Duration = Duration::from_secs(3);

/// Calls in a batch, and batches under way.
const BATCH: usize = 64;
const BATCHES: usize = 2;

/// How far a replay may be from the recording: a choice of another node can make two jobs change
/// places, and heartbeats are not recorded.
const DEVIATION_MAX: f64 = 0.05;

/// The share of the replay's jobs/s that the scheduler has to reach.
const SHARE_MIN: f64 = 0.7;

/// How the reply to a reservation begins that got a slot.
const GRANTED: &str = "g";

#[derive(Debug)]
struct Recording {
    calls: CallLog,
    jobs: f64,
    /// Slots granted, and commands of the server, for each job.
    granted: f64,
    commands: f64,
}

#[derive(Debug)]
pub(crate) struct Replay {
    /// What the scheduler did under the same load.
    scheduler_jobs_per_s: f64,
    recording: Recording,
    passes: ReplayPasses,
    commands: f64,
    store_us: f64,
    baseline: Option<ReplayBaseline>,
}

#[derive(Debug, Default)]
struct ReplayPasses {
    count: u32,
    seconds: f64,
    /// How many replies began with each token.
    replies: BTreeMap<&'static str, u64>,
}

/// Records the calls of a load and replays them.
pub(crate) async fn run(
    broker: &Broker,
    servers: &StoreServers,
    shape: NodeShape,
    mode: LoadMode,
    scheduler_jobs_per_s: f64,
) -> anyhow::Result<Replay> {
    let recording = record(broker, servers, shape, mode).await?;
    let mut connection = RawRedis::connect(&servers.url).await?;
    // The first pass is not counted: caches are cold.
    replay(&mut connection, &recording.calls, 1, Duration::ZERO).await?;
    let before = servers.count().await?;
    let passes = replay(&mut connection, &recording.calls, 2, REPLAYED).await?;
    let spent = servers.since(&before).await?.total();
    let jobs = recording.jobs * f64::from(passes.count);
    let (commands, store_us) = (spent.commands / jobs, spent.cpu_s * 1e6 / jobs);
    recording.check(&passes, commands)?;
    let baseline = baseline::measure(&mut connection, &recording.calls, &servers.url).await?;
    Ok(Replay { scheduler_jobs_per_s, recording, passes, commands, store_us, baseline })
}

/// Records the calls while a load goes on.
async fn record(
    broker: &Broker,
    servers: &StoreServers,
    shape: NodeShape,
    mode: LoadMode,
) -> anyhow::Result<Recording> {
    let addresses = broker.addresses();
    let mut marker = RawRedis::connect(&servers.url).await?;
    let scheduler_before = SchedulerCounters::read(&addresses).await?;
    let before = servers.count().await?;
    let monitor = monitor::start(RawRedis::connect(&servers.url).await?).await?;
    let length = LoadLength { warm_up: Duration::ZERO, measured: RECORDED };
    let loading = measure(broker, None, shape, mode, length).await;
    loading.context("cannot load the scheduler for the recording")?;
    sleep(SETTLED).await;
    let calls = monitor.stop(&mut marker).await?;
    let scheduler = SchedulerCounters::read(&addresses).await?;
    let spent = servers.since(&before).await?.total();
    let jobs = scheduler.jobs - scheduler_before.jobs;
    ensure!(
        jobs > 0.0 && calls.len() > 0,
        "nothing was recorded: {jobs} jobs, {} calls; does the server allow MONITOR?",
        calls.len()
    );
    let granted = (scheduler.granted - scheduler_before.granted) / jobs;
    Ok(Recording { calls, jobs, granted, commands: spent.commands / jobs })
}

impl Recording {
    /// An error if the server did something else during the replay: a refused call takes fewer
    /// commands.
    fn check(&self, passes: &ReplayPasses, commands: f64) -> anyhow::Result<()> {
        let granted = passes.replies.get(GRANTED).copied().unwrap_or(0) as f64;
        let granted = granted / (self.jobs * f64::from(passes.count));
        let is_near = |found: f64, recorded: f64| (found / recorded - 1.0).abs() <= DEVIATION_MAX;
        ensure!(
            is_near(granted, self.granted) && is_near(commands, self.commands),
            "the replay differs from the recording, so its figures mean nothing: {granted:.2} \
             slots granted and {commands:.1} commands for each job instead of {:.2} and {:.1}, \
             replies that begin with {:?}; does anything else use this store?",
            self.granted,
            self.commands,
            passes.replies
        );
        Ok(())
    }
}

/// Replays the calls, again and again for so long, each time for other jobs. `first` is the number
/// of the first pass.
async fn replay(
    connection: &mut RawRedis,
    calls: &CallLog,
    first: u32,
    length: Duration,
) -> anyhow::Result<ReplayPasses> {
    let mut passes = ReplayPasses::default();
    let (start, mut under_way, mut batch) = (Instant::now(), VecDeque::new(), BytesMut::new());
    while passes.count == 0 || start.elapsed() < length {
        for from in (0..calls.len()).step_by(BATCH) {
            let upto = calls.len().min(from + BATCH);
            batch.clear();
            for call in from..upto {
                calls.put(call, first + passes.count, &mut batch);
            }
            connection.send(&batch).await?;
            under_way.push_back(upto - from);
            if under_way.len() == BATCHES {
                passes.read(connection, under_way.pop_front().unwrap_or_default()).await?;
            }
        }
        passes.count += 1;
    }
    for count in under_way {
        passes.read(connection, count).await?;
    }
    passes.seconds = start.elapsed().as_secs_f64();
    Ok(passes)
}

impl ReplayPasses {
    async fn read(&mut self, connection: &mut RawRedis, count: usize) -> anyhow::Result<()> {
        for _ in 0..count {
            *self.replies.entry(connection.reply().await?).or_default() += 1;
        }
        Ok(())
    }
}

impl Replay {
    fn jobs_per_s(&self) -> f64 {
        self.recording.jobs * f64::from(self.passes.count) / self.passes.seconds
    }

    fn calls_per_job(&self) -> f64 {
        self.recording.calls.len() as f64 / self.recording.jobs
    }

    fn scheduler_share(&self) -> f64 {
        self.scheduler_jobs_per_s / self.jobs_per_s()
    }

    pub(crate) fn table(&self) -> String {
        let (rate, jobs, passes) = (self.jobs_per_s(), self.recording.jobs, self.passes.count);
        let (calls, under_way) = (self.calls_per_job(), BATCH * BATCHES);
        let (share, goal) = (self.scheduler_share(), SHARE_MIN * 100.0);
        let (percent, verdict) = (share * 100.0, verdict(share >= SHARE_MIN));
        let recorded = format!("{jobs:.0} jobs of {calls:.2} calls");
        let mut facts = vec![
            (
                "replay",
                format!("{rate:.0} jobs/s: {recorded}, {passes} times, {under_way} under way"),
            ),
            ("store cpu", format!("{:.0} µs for each replayed job", self.store_us)),
            ("scheduler", format!("{percent:.0} % of that (goal {goal:.0} %: {verdict})")),
        ];
        facts.extend(self.baseline.as_ref().map(|baseline| ("baseline", baseline.to_string())));
        output::facts(&facts)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "jobs_per_s": self.jobs_per_s(),
            "jobs": self.recording.jobs,
            "calls_per_job": self.calls_per_job(),
            "commands_per_job": self.commands,
            "granted_per_job": self.recording.granted,
            "passes": self.passes.count,
            "store_cpu_us_per_job": self.store_us,
            "scheduler_share": self.scheduler_share(),
            "replies": self.passes.replies,
            "baseline": self.baseline.as_ref().map(ReplayBaseline::json),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_that_is_refused_is_an_error() {
        let calls = CallLog::default();
        let recording = Recording { calls, jobs: 100.0, granted: 1.0, commands: 20.0 };
        let passes = |granted| {
            let replies = [(GRANTED, granted), ("f", 200 - granted)].into();
            ReplayPasses { count: 2, seconds: 1.0, replies }
        };
        assert!(recording.check(&passes(200), 20.1).is_ok());
        assert!(recording.check(&passes(198), 19.8).is_ok(), "two that changed places");
        for (granted, commands) in [(150, 20.0), (200, 14.0), (0, 9.0)] {
            let error = recording.check(&passes(granted), commands).unwrap_err().to_string();
            assert!(error.contains("the replay differs from the recording"), "{error}");
        }
    }
}
