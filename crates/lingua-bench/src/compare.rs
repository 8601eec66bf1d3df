//! Several brokers under the same load, in turn: programs, the bare relay, Gearman.
//!
//! Start at [`run`]. All brokers run all the time, and the load goes from one to the next in short
//! rounds, so that whatever else the machine does affects all of them. First a closed loop for each
//! number of clients; then an open loop, by default at half of what the first scheduler carried.
//!
//! Invariant: a ratio is the median of the rounds' ratios, each of two measurements that followed
//! each other directly. The first broker is the reference.

use std::time::Duration;

use anyhow::{Context, bail};

use crate::BenchContext;
use crate::broker::{Broker, BrokerSpec};
use crate::nodes::{BenchNodes, NodeShape};
use crate::raw_client::{LoadLength, LoadMode, LoadResult, measure};
use crate::stats::LoadStats;
use crate::store_cost::StoreServers;

mod table;

pub(crate) use table::{RATIO_MIN, clients_name};

/// Before each round.
const WARM_UP: Duration = Duration::from_millis(300);

/// Rate of the open loop, as a share of the highest rate of the first scheduler.
const OPEN_SHARE: f64 = 0.5;

#[derive(Debug)]
pub(crate) struct ComparePlan {
    pub(crate) clients: Vec<u32>,
    pub(crate) rounds: u32,
    pub(crate) round: Duration,
    pub(crate) shape: NodeShape,
    pub(crate) brokers: Vec<BrokerSpec>,
    /// Rate of the open loop; 0 means no open loop, absent means that it is derived.
    pub(crate) rate: Option<f64>,
    pub(crate) store: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) brokers: Vec<ComparedBroker>,
    pub(crate) rounds: u32,
    pub(crate) round: Duration,
    pub(crate) shape: NodeShape,
    /// Rate of the open loop.
    pub(crate) rate: f64,
}

#[derive(Debug)]
pub(crate) struct ComparedBroker {
    pub(crate) spec: BrokerSpec,
    pub(crate) levels: Vec<ClientLevel>,
    /// The open loop: all rounds together, and each.
    pub(crate) open: Option<LoadStats>,
    pub(crate) open_rounds: Vec<BenchRound>,
}

/// The closed loop with this number of clients.
#[derive(Debug)]
pub(crate) struct ClientLevel {
    pub(crate) clients: u32,
    pub(crate) rounds: Vec<BenchRound>,
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BenchRound {
    pub(crate) jobs_per_s: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// CPU time of the broker for each job.
    pub(crate) cpu_us: f64,
    /// CPU time of the store's servers for each job; not a number without a shared store.
    pub(crate) store_us: f64,
    /// CPU time of the broker, 1.0 being a whole core.
    pub(crate) broker_busy: f64,
    pub(crate) generator_busy: f64,
    pub(crate) failed: u64,
}

pub(crate) async fn run(plan: ComparePlan, context: &BenchContext) -> anyhow::Result<Comparison> {
    let loops = plan.clients.len() as u32 + u32::from(plan.rate != Some(0.0));
    let measurements = loops * plan.rounds * plan.brokers.len() as u32;
    context.progress.set_total(measurements.into());
    let servers = StoreServers::connect(plan.store.as_deref()).await?;
    let mut comparer = Comparer { running: vec![], plan: &plan, servers, context };
    for spec in &plan.brokers {
        context.progress.show(format!("starting {}", spec.name()));
        let broker = Broker::start(spec, context.pins.as_ref()).await?;
        let nodes = BenchNodes::connect(&broker, plan.shape, |_| {}).await?;
        let spec = spec.clone();
        let figures = ComparedBroker { spec, levels: vec![], open: None, open_rounds: vec![] };
        comparer.running.push((broker, nodes, figures));
    }
    for &clients in &plan.clients {
        comparer.run_closed(clients).await?;
    }
    let rate = plan.rate.unwrap_or_else(|| comparer.highest_rate() * OPEN_SHARE);
    if rate > 0.0 {
        comparer.run_open(rate).await?;
    }
    let mut brokers = vec![];
    for (broker, _, figures) in comparer.running {
        broker.stop().await;
        brokers.push(figures);
    }
    let ComparePlan { rounds, round, shape, .. } = plan;
    Ok(Comparison { brokers, rounds, round, shape, rate })
}

struct Comparer<'a> {
    running: Vec<(Broker, BenchNodes, ComparedBroker)>,
    plan: &'a ComparePlan,
    servers: Option<StoreServers>,
    context: &'a BenchContext,
}

impl Comparer<'_> {
    async fn run_closed(&mut self, clients: u32) -> anyhow::Result<()> {
        for (_, _, figures) in &mut self.running {
            figures.levels.push(ClientLevel { clients, rounds: vec![] });
        }
        for round in 0..self.plan.rounds {
            for index in self.order(round) {
                let result = self.measure(index, round, LoadMode::Closed { clients }).await?;
                let level = self.running[index].2.levels.last_mut().context("a level was added")?;
                level.rounds.push(BenchRound::of(&result));
            }
        }
        Ok(())
    }

    async fn run_open(&mut self, per_s: f64) -> anyhow::Result<()> {
        for round in 0..self.plan.rounds {
            for index in self.order(round) {
                let result = self.measure(index, round, LoadMode::Open { per_s }).await?;
                let figures = &mut self.running[index].2;
                figures.open_rounds.push(BenchRound::of(&result));
                match &mut figures.open {
                    Some(stats) => stats.append(result.stats),
                    None => figures.open = Some(result.stats),
                }
            }
        }
        Ok(())
    }

    /// Forwards, then backwards, so that no broker always comes after the same one.
    fn order(&self, round: u32) -> Vec<usize> {
        let forwards = 0..self.running.len();
        if round.is_multiple_of(2) { forwards.collect() } else { forwards.rev().collect() }
    }

    async fn measure(
        &mut self,
        index: usize,
        round: u32,
        mode: LoadMode,
    ) -> anyhow::Result<LoadResult> {
        let (broker, nodes, _) = &mut self.running[index];
        let what = match mode {
            LoadMode::Closed { clients } => format!("{clients} clients"),
            LoadMode::Open { per_s } => format!("{per_s:.0} jobs/s"),
        };
        let (name, rounds) = (broker.name(), self.plan.rounds);
        self.context.progress.show(format!("{name}, {what}, round {} of {rounds}", round + 1));
        let length = LoadLength { warm_up: WARM_UP, measured: self.plan.round };
        let servers = self.servers.as_ref();
        let result = measure(broker, servers, self.plan.shape, mode, length).await?;
        nodes.check().with_context(|| format!("{name} lost a node"))?;
        self.context.progress.step();
        if result.stats.done() == 0 {
            let error = result.stats.most_frequent_error().unwrap_or("no replies");
            bail!("{name} did not do a single job with {what}: {error}");
        }
        Ok(result)
    }

    /// The highest rate of the first scheduler.
    fn highest_rate(&self) -> f64 {
        let schedulers = self.running.iter().map(|(_, _, figures)| figures);
        let first = schedulers.into_iter().find(|figures| figures.is_scheduler());
        let levels = first.map_or(&[][..], |figures| &figures.levels);
        levels.iter().map(|level| level.median(|round| round.jobs_per_s)).fold(0.0, f64::max)
    }
}

impl BenchRound {
    fn of(result: &LoadResult) -> Self {
        Self {
            jobs_per_s: result.jobs_per_s(),
            p50_ms: result.stats.quantile_ms(0.5),
            p99_ms: result.stats.quantile_ms(0.99),
            cpu_us: result.cpu_us_per_job,
            store_us: result.store_us_per_job.unwrap_or(f64::NAN),
            broker_busy: result.cpu_us_per_job * result.jobs_per_s() / 1e6,
            generator_busy: result.generator_busy,
            failed: result.stats.failed(),
        }
    }
}

impl ClientLevel {
    pub(crate) fn median(&self, of: impl Fn(&BenchRound) -> f64) -> f64 {
        median(self.rounds.iter().map(of))
    }

    pub(crate) fn failed(&self) -> u64 {
        self.rounds.iter().map(|round| round.failed).sum()
    }
}

impl ComparedBroker {
    pub(crate) fn name(&self) -> &str {
        self.spec.name()
    }

    fn is_scheduler(&self) -> bool {
        matches!(self.spec, BrokerSpec::Scheduler(_))
    }
}

impl Comparison {
    /// The relay's index and the one scheduler's: the targets are about these two.
    fn relay_and_scheduler(&self) -> Option<(&ComparedBroker, &ComparedBroker)> {
        let relay = self.brokers.first()?;
        let mut schedulers = self.brokers.iter().filter(|broker| broker.is_scheduler());
        let scheduler = schedulers.next()?;
        let is_relay = matches!(relay.spec, BrokerSpec::Relay) && schedulers.next().is_none();
        is_relay.then_some((relay, scheduler))
    }

    /// A broker's figure divided by that of the first broker, round by round.
    pub(crate) fn ratio(
        &self,
        broker: &ComparedBroker,
        level: usize,
        of: impl Fn(&BenchRound) -> f64,
    ) -> f64 {
        let rounds = broker.levels[level].rounds.iter();
        let first = &self.brokers[0].levels[level].rounds;
        median(rounds.zip(first).map(|(round, first)| of(round) / of(first)))
    }

    /// How much higher the scheduler's median latency is than the relay's at the same rate.
    pub(crate) fn added_p50_us(&self) -> Option<f64> {
        let (relay, scheduler) = self.relay_and_scheduler()?;
        let pairs = scheduler.open_rounds.iter().zip(&relay.open_rounds);
        let added = median(pairs.map(|(scheduler, relay)| (scheduler.p50_ms - relay.p50_ms) * 1e3));
        added.is_finite().then_some(added)
    }
}

/// The middle value, or the mean of the two in the middle. Not a number if there is none.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
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
