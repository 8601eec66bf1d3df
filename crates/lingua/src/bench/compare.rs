//! The comparison: scheduler, bare relay and Gearman under the same load, in turn.
//!
//! Start at [`run`]. All brokers run all the time, and the load goes from one to the next in short
//! rounds, so that whatever else the machine does hits all of them. First as many jobs as they can
//! carry, for several numbers of clients; then latencies at half of what the scheduler can carry.
//!
//! Invariant: a ratio is the median of the rounds' own ratios, each of two measurements that followed
//! each other directly.

use std::time::Duration;

use anyhow::{Context, bail};

use super::broker::{Broker, Kind, State};
use super::crew::{Crew, Shape};
use super::lean::{Length, Outcome, measure};
use super::load::Mode;
use super::machine::Pins;
use super::progress::Progress;
use super::score::Score;

mod show;

pub(super) use show::clients_name;

/// Before each round: connections open, caches warm.
const WARM_UP: Duration = Duration::from_millis(300);

/// The latencies are measured at this share of the highest rate of the scheduler.
const OPEN_SHARE: f64 = 0.5;

/// What to compare.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) clients: Vec<u32>,
    pub(super) rounds: u32,
    pub(super) round: Duration,
    pub(super) shape: Shape,
    pub(super) state: State,
    pub(super) brokers: Vec<Kind>,
    /// The rate of the open loop, if it is not to be found out.
    pub(super) rate: Option<f64>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) contestants: Vec<Contestant>,
    pub(super) rounds: u32,
    pub(super) round: Duration,
    pub(super) shape: Shape,
    /// Of the open loop.
    pub(super) rate: f64,
}

/// A broker and its figures.
#[derive(Debug)]
pub(super) struct Contestant {
    pub(super) kind: Kind,
    pub(super) levels: Vec<Level>,
    pub(super) open: Open,
}

/// Closed loop with so many clients.
#[derive(Debug)]
pub(super) struct Level {
    pub(super) clients: u32,
    pub(super) rounds: Vec<Round>,
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) jobs_per_s: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) cpu_us: f64,
    pub(super) generator_busy: f64,
    pub(super) failed: u64,
}

/// The open loop: all rounds together, and the medians of each.
#[derive(Debug, Default)]
pub(super) struct Open {
    pub(super) score: Option<Score>,
    pub(super) rounds: Vec<Round>,
}

/// Compares.
pub(super) async fn run(
    plan: Plan,
    pins: Option<&Pins>,
    progress: &Progress,
) -> anyhow::Result<Comparison> {
    let measurements = (plan.clients.len() as u32 + 1) * plan.rounds * plan.brokers.len() as u32;
    progress.expect(measurements.into());
    let mut contest = Contest { ring: vec![], plan: &plan, progress };
    for &kind in &plan.brokers {
        progress.say(format!("starting the {kind}"));
        let broker = Broker::start(kind, &plan.state, pins).await?;
        let crew = Crew::join(&broker, plan.shape, |_| {}).await?;
        let contestant = Contestant { kind, levels: vec![], open: Open::default() };
        contest.ring.push((broker, crew, contestant));
    }
    for &clients in &plan.clients {
        contest.closed(clients).await?;
    }
    let rate = match plan.rate {
        Some(rate) => rate,
        None => contest.highest(Kind::Scheduler)? * OPEN_SHARE,
    };
    contest.open(rate).await?;
    let mut contestants = vec![];
    for (broker, _, contestant) in contest.ring {
        broker.stop().await;
        contestants.push(contestant);
    }
    let Plan { rounds, round, shape, .. } = plan;
    Ok(Comparison { contestants, rounds, round, shape, rate })
}

struct Contest<'a> {
    ring: Vec<(Broker, Crew, Contestant)>,
    plan: &'a Plan,
    progress: &'a Progress,
}

impl Contest<'_> {
    async fn closed(&mut self, clients: u32) -> anyhow::Result<()> {
        for (_, _, contestant) in &mut self.ring {
            contestant.levels.push(Level { clients, rounds: vec![] });
        }
        for round in 0..self.plan.rounds {
            for turn in self.order(round) {
                let what = format!("{clients} clients");
                let outcome = self.measure(turn, round, &what, Mode::Closed { clients }).await?;
                let level = self.ring[turn].2.levels.last_mut().context("a level was begun")?;
                level.rounds.push(Round::of(&outcome));
            }
        }
        Ok(())
    }

    async fn open(&mut self, per_s: f64) -> anyhow::Result<()> {
        for round in 0..self.plan.rounds {
            for turn in self.order(round) {
                let what = format!("{per_s:.0} jobs/s");
                let outcome = self.measure(turn, round, &what, Mode::Open { per_s }).await?;
                let open = &mut self.ring[turn].2.open;
                open.rounds.push(Round::of(&outcome));
                match &mut open.score {
                    Some(score) => score.append(outcome.score),
                    None => open.score = Some(outcome.score),
                }
            }
        }
        Ok(())
    }

    /// Forwards, then backwards: nobody is always the one after the relay.
    fn order(&self, round: u32) -> Vec<usize> {
        let forwards = 0..self.ring.len();
        if round.is_multiple_of(2) { forwards.collect() } else { forwards.rev().collect() }
    }

    async fn measure(
        &mut self,
        turn: usize,
        round: u32,
        what: &str,
        mode: Mode,
    ) -> anyhow::Result<Outcome> {
        let (broker, crew, _) = &mut self.ring[turn];
        let (kind, rounds) = (broker.kind(), self.plan.rounds);
        self.progress.say(format!("{kind}, {what}, round {} of {rounds}", round + 1));
        let length = Length { warm_up: WARM_UP, measured: self.plan.round };
        let outcome = measure(broker, self.plan.shape, mode, length).await?;
        crew.check().with_context(|| format!("the {kind} lost a node"))?;
        self.progress.step();
        if outcome.score.done() == 0 {
            let why = outcome.score.worst_error().unwrap_or("no answers").to_owned();
            bail!("the {kind} did not do a single job with {what}: {why}");
        }
        Ok(outcome)
    }

    fn highest(&self, kind: Kind) -> anyhow::Result<f64> {
        let found = self.ring.iter().find(|(broker, ..)| broker.kind() == kind);
        let (.., contestant) = found.with_context(|| format!("there is no {kind}"))?;
        let rates = contestant.levels.iter().map(|level| level.median(|round| round.jobs_per_s));
        Ok(rates.fold(0.0, f64::max))
    }
}

impl Round {
    fn of(outcome: &Outcome) -> Self {
        Self {
            jobs_per_s: outcome.jobs_per_s(),
            p50_ms: outcome.score.quantile_ms(0.5),
            p99_ms: outcome.score.quantile_ms(0.99),
            cpu_us: outcome.cpu_us_per_job,
            generator_busy: outcome.generator_busy,
            failed: outcome.score.failed(),
        }
    }
}

impl Level {
    pub(super) fn median(&self, of: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(of))
    }

    pub(super) fn failed(&self) -> u64 {
        self.rounds.iter().map(|round| round.failed).sum()
    }
}

impl Comparison {
    pub(super) fn find(&self, kind: Kind) -> Option<&Contestant> {
        self.contestants.iter().find(|contestant| contestant.kind == kind)
    }

    /// What one broker has of the relay's figure, round by round.
    pub(super) fn ratio(
        &self,
        kind: Kind,
        level: usize,
        of: impl Fn(&Round) -> f64,
    ) -> Option<f64> {
        let rounds = |kind| Some(&self.find(kind)?.levels.get(level)?.rounds);
        let (theirs, relay) = (rounds(kind)?, rounds(Kind::Relay)?);
        Some(median(theirs.iter().zip(relay).map(|(theirs, relay)| of(theirs) / of(relay))))
    }

    /// How much later the median answer of the scheduler comes than the relay's, at the same rate.
    pub(super) fn added_p50_us(&self) -> Option<f64> {
        let (scheduler, relay) = (self.find(Kind::Scheduler)?, self.find(Kind::Relay)?);
        let pairs = scheduler.open.rounds.iter().zip(&relay.open.rounds);
        Some(median(pairs.map(|(scheduler, relay)| (scheduler.p50_ms - relay.p50_ms) * 1000.0)))
    }
}

/// The middle one, or what lies between the two in the middle.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count => f64::midpoint(values[(count - 1) / 2], values[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_ignores_one_bad_round() {
        assert_eq!(median([1.0, 2.0, 900.0].into_iter()), 2.0);
        assert_eq!(median([1.0, 3.0].into_iter()), 2.0);
        assert!(median([].into_iter()).is_nan());
    }
}
