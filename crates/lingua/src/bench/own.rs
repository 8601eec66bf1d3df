//! A scheduler of its own under one load: one instance, or several that share a store.
//!
//! Start at [`run`].

use std::time::Duration;

use anyhow::Context;

use super::broker::{Broker, Kind, State};
use super::crew::{Crew, Shape};
use super::fleet::{FILES_BESIDES, raise_files};
use super::lean::{self, Length, connections};
use super::load::Mode;
use super::machine::Pins;
use super::progress::Progress;
use super::score::{Score, Setup};
use super::shared::{Servers, Share, Work};
use super::tape::{self, Tape};

/// What is done before counting starts: connections open, caches warm.
const WARM_UP: Duration = Duration::from_secs(1);

/// What to measure.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) shape: Shape,
    pub(super) mode: Mode,
    pub(super) length: Duration,
    pub(super) state: State,
    /// Whether to find out what the store's server could do.
    pub(super) tape: bool,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) score: Score,
    pub(super) setup: Setup,
    /// What a shared store did for the jobs.
    pub(super) share: Option<Share>,
    pub(super) tape: Option<Tape>,
}

/// Starts, loads, measures, ends.
pub(super) async fn run(
    plan: Plan,
    pins: Option<&Pins>,
    progress: &Progress,
) -> anyhow::Result<Found> {
    let Plan { shape, mode, length: measured, state, tape } = plan;
    let files = shape.nodes + connections(mode, shape.work);
    raise_files(u64::from(files) + FILES_BESIDES)?;
    progress.expect(1);
    let servers = Servers::connect(state.store.as_deref()).await?;
    let broker = Broker::start(Kind::Scheduler, &state, pins).await?;
    let mut crew = Crew::join(&broker, shape, |_| {}).await?;
    let before = match &servers {
        Some(servers) => Some(servers.count().await?),
        None => None,
    };
    progress.say(format!("measuring for {} s", (WARM_UP + measured).as_secs()));
    let length = Length { warm_up: WARM_UP, measured };
    let outcome = lean::measure(&broker, shape, mode, length).await?;
    crew.check().context("the scheduler lost a node")?;
    let share = match servers.as_ref().zip(before) {
        Some((servers, before)) => {
            let (spent, work) =
                (servers.since(&before).await?, Work::of(&broker.addresses()).await?);
            Some(Share::new(spent, work, outcome.cpu_us_per_job))
        }
        None => None,
    };
    let tape = match servers.as_ref().filter(|_| tape) {
        Some(servers) => {
            progress.say("playing the tape".to_owned());
            let found = tape::run(&broker, servers, shape, mode, outcome.jobs_per_s()).await?;
            crew.check().context("the scheduler lost a node while the tape was played")?;
            Some(found)
        }
        None => None,
    };
    broker.stop().await;
    let setup = Setup { mode, seconds: outcome.seconds, nodes: shape.nodes };
    Ok(Found { score: outcome.score, setup, share, tape })
}
