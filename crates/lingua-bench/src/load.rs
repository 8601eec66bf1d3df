//! One scheduler under one load: one instance, or several that share a store.
//!
//! Start at [`run`].

use std::time::Duration;

use anyhow::{Context, bail};

use crate::broker::{Broker, BrokerSpec, SchedulerSpec};
use crate::fleet::raise_file_limit;
use crate::nodes::{BenchNodes, NodeShape};
use crate::raw_client::{LoadLength, LoadMode, connections, measure};
use crate::recording::{self, Replay};
use crate::report::ReportPage;
use crate::stats::{LoadSetup, LoadStats};
use crate::store_cost::{SchedulerCounters, StoreCost, StoreServers};
use crate::{BenchContext, BenchResult};

const WARM_UP: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct LoadPlan {
    pub(crate) shape: NodeShape,
    pub(crate) mode: LoadMode,
    pub(crate) length: Duration,
    pub(crate) scheduler: SchedulerSpec,
    /// Whether to record the calls to the store and replay them.
    pub(crate) is_replayed: bool,
}

#[derive(Debug)]
pub(crate) struct LoadFigures {
    stats: LoadStats,
    setup: LoadSetup,
    cpu_us_per_job: f64,
    /// Absent if the store is not shared.
    store_cost: Option<StoreCost>,
    replay: Option<Replay>,
}

pub(crate) async fn run(plan: LoadPlan, context: &BenchContext) -> anyhow::Result<LoadFigures> {
    let LoadPlan { shape, mode, length: measured, scheduler, is_replayed } = plan;
    let progress = &context.progress;
    raise_file_limit(shape.nodes + connections(mode, shape.work))?;
    progress.set_total(1);
    let servers = StoreServers::connect(scheduler.store.as_deref()).await?;
    let spec = BrokerSpec::Scheduler(scheduler);
    let broker = Broker::start(&spec, context.pins.as_ref()).await?;
    let mut nodes = BenchNodes::connect(&broker, shape, |_| {}).await?;
    let before = StoreServers::count_if(servers.as_ref()).await?;
    progress.show(format!("measuring for {} s", (WARM_UP + measured).as_secs()));
    let length = LoadLength { warm_up: WARM_UP, measured };
    let result = measure(&broker, None, shape, mode, length).await?;
    nodes.check().context("the scheduler lost a node")?;
    let store_cost = match servers.as_ref().zip(before) {
        Some((servers, before)) => Some(StoreCost {
            spent: servers.since(&before).await?,
            scheduler: SchedulerCounters::read(&broker.addresses()).await?,
            scheduler_us: result.cpu_us_per_job,
        }),
        None => None,
    };
    let replay = match servers.as_ref().filter(|_| is_replayed) {
        Some(servers) => {
            progress.show("replaying the calls to the store".to_owned());
            let jobs_per_s = result.jobs_per_s();
            let replay = recording::run(&broker, servers, shape, mode, jobs_per_s).await?;
            nodes.check().context("the scheduler lost a node during the replay")?;
            Some(replay)
        }
        None => None,
    };
    broker.stop().await;
    let setup = LoadSetup { mode, seconds: result.seconds, nodes: shape.nodes };
    let cpu_us_per_job = result.cpu_us_per_job;
    Ok(LoadFigures { stats: result.stats, setup, cpu_us_per_job, store_cost, replay })
}

impl LoadFigures {
    pub(crate) fn result(&self) -> anyhow::Result<BenchResult> {
        let Self { stats, setup, .. } = self;
        if stats.done() == 0 {
            bail!("not a single job was done\n\n{}", stats.table(setup));
        }
        let mut parts = vec![stats.table(setup)];
        let mut json = stats.json(setup);
        json["cpu_us_per_job"] = self.cpu_us_per_job.into();
        match &self.store_cost {
            Some(cost) => {
                parts.push(cost.table());
                json["store"] = cost.json();
            }
            None => {
                parts.push(format!("scheduler cpu: {:.1} µs for each job", self.cpu_us_per_job));
            }
        }
        if let Some(replay) = &self.replay {
            parts.push(replay.table());
            json["replay"] = replay.json();
        }
        let page = ReportPage::of_load(stats, setup);
        Ok(BenchResult { text: parts.join("\n\n"), json, page })
    }
}
