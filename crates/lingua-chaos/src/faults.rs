//! The faults: instances, nodes and the store are killed, stopped and paused, and come back.
//!
//! Start at [`inject_all`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tokio::task::{JoinHandle, JoinSet};

use crate::{ChaosOptions, ChaosRun, INSTANCES, rng};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ChaosFault {
    InstanceKilled(usize),
    InstancePaused(usize),
    InstanceStopped(usize),
    NodeKilled(usize),
    NodePaused(usize),
    StoreKilled,
    StorePaused,
}

impl ChaosFault {
    /// Draws a fault; kinds with more targets are more frequent.
    fn draw(rng: &mut ChaCha8Rng, nodes: usize) -> Self {
        let (instance, node) = (rng.random_range(0..INSTANCES), rng.random_range(0..nodes));
        match rng.random_range(0..20) {
            0..4 => Self::InstanceKilled(instance),
            4..7 => Self::InstancePaused(instance),
            7 => Self::InstanceStopped(instance),
            8..13 => Self::NodeKilled(node),
            13..17 => Self::NodePaused(node),
            17 => Self::StoreKilled,
            _ => Self::StorePaused,
        }
    }

    /// The kind and number of its target; a target has one fault at a time.
    fn target(self) -> (u8, usize) {
        match self {
            Self::InstanceKilled(n) | Self::InstancePaused(n) | Self::InstanceStopped(n) => (0, n),
            Self::NodeKilled(n) | Self::NodePaused(n) => (1, n),
            Self::StoreKilled | Self::StorePaused => (2, 0),
        }
    }

    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::InstanceKilled(_) => "instance killed (-9)",
            Self::InstancePaused(_) => "instance paused (STOP)",
            Self::InstanceStopped(_) => "instance stopped (TERM)",
            Self::NodeKilled(_) => "node killed",
            Self::NodePaused(_) => "node paused",
            Self::StoreKilled => "Redis killed (-9)",
            Self::StorePaused => "Redis paused (STOP)",
        }
    }

    async fn inject(self, run: &ChaosRun) {
        match self {
            Self::InstanceKilled(n) => run.instances[n].kill().await,
            Self::InstancePaused(n) => run.instances[n].signal("STOP").await,
            Self::InstanceStopped(n) => run.instances[n].terminate().await,
            Self::NodeKilled(n) => run.fleet.kill(n),
            Self::NodePaused(n) => run.fleet.pause(n, true),
            Self::StoreKilled => run.redis.kill().await,
            Self::StorePaused => run.redis.signal("STOP").await,
        }
    }

    async fn heal(self, run: &ChaosRun) {
        let started = match self {
            Self::InstanceKilled(n) | Self::InstanceStopped(n) => run.instances[n].start().await,
            Self::StoreKilled => run.redis.restart().await,
            Self::InstancePaused(n) => {
                run.instances[n].signal("CONT").await;
                Ok(())
            }
            Self::StorePaused => {
                run.redis.signal("CONT").await;
                Ok(())
            }
            Self::NodeKilled(n) => {
                run.fleet.start(n);
                Ok(())
            }
            Self::NodePaused(n) => {
                run.fleet.pause(n, false);
                Ok(())
            }
        };
        if let Err(error) = started {
            run.report_violation(format!("{self}: cannot be started again: {error:#}"));
        }
    }
}

impl fmt::Display for ChaosFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target() {
            (0, n) => write!(f, "i{n}: {}", self.kind()),
            (1, n) => write!(f, "node-{n}: {}", self.kind()),
            _ => f.write_str(self.kind()),
        }
    }
}

/// Injects faults until all jobs were sent, and waits until the last fault is over.
pub(crate) async fn inject_all(
    run: &Arc<ChaosRun>,
    options: &ChaosOptions,
    traffic: &JoinHandle<()>,
) {
    let mut rng = rng(options.seed, 3);
    let mut ongoing: JoinSet<(u8, usize)> = JoinSet::new();
    let mut targets = vec![];
    while !run.clients.all_sent() && !traffic.is_finished() {
        let mean_ms = options.fault_every_ms;
        let pause_ms = rng.random_range(mean_ms / 2..=mean_ms * 3 / 2);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        while let Some(Ok(target)) = ongoing.try_join_next() {
            targets.retain(|other| *other != target);
        }
        let fault = ChaosFault::draw(&mut rng, run.fleet.len());
        let away_ms = rng.random_range(200..=4_000);
        if targets.contains(&fault.target()) {
            continue;
        }
        targets.push(fault.target());
        let run = Arc::clone(run);
        ongoing.spawn(async move {
            let at_ms = run.now_ms();
            run.note(format!("{fault}, for {away_ms} ms"));
            fault.inject(&run).await;
            tokio::time::sleep(Duration::from_millis(away_ms)).await;
            fault.heal(&run).await;
            let healed_ms = run.now_ms();
            run.note(format!("{fault} is over"));
            run.log.lock().faults.push((fault, at_ms, healed_ms));
            fault.target()
        });
    }
    ongoing.join_all().await;
}

/// Starts and resumes everything that is not running.
pub(crate) async fn heal_all(run: &Arc<ChaosRun>) {
    for n in 0..run.instances.len() {
        ChaosFault::InstanceKilled(n).heal(run).await;
    }
    for n in 0..run.fleet.len() {
        run.fleet.start(n);
        run.fleet.pause(n, false);
    }
}
