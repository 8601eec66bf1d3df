//! Many nodes at once: what each costs the scheduler and its store, and what is left for the jobs.
//!
//! Start at [`run`]. All nodes are connected, registered and send heartbeats: with a shared store
//! first for a while without jobs, which shows the cost of a heartbeat, then with jobs.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::broker::{Broker, BrokerSpec, SchedulerSpec};
use crate::nodes::{BenchNodes, NodeShape};
use crate::output::{self, shown_ms, verdict};
use crate::raw_client::{LoadLength, LoadMode, LoadResult, connections, measure};
use crate::report::ReportPage;
use crate::store_cost::{
    SchedulerCounters, ServerCounters, StoreCost, StoreCounters, StoreServers,
};
use crate::{BenchContext, BenchResult};

/// Long enough for a heartbeat of every node.
const WARM_UP: Duration = Duration::from_secs(5);

/// How long heartbeats are measured without jobs: two of each node.
const IDLE: Duration = Duration::from_secs(10);

/// Files of a process besides the connections that are measured.
const OTHER_FILES: u64 = 512;

/// What a connected node may cost the scheduler.
const NODE_KIB_MAX: f64 = 32.0;

#[derive(Debug)]
pub(crate) struct FleetPlan {
    pub(crate) shape: NodeShape,
    pub(crate) mode: LoadMode,
    pub(crate) length: Duration,
    pub(crate) scheduler: SchedulerSpec,
}

#[derive(Debug)]
pub(crate) struct FleetFigures {
    pub(crate) shape: NodeShape,
    mode: LoadMode,
    pub(crate) load: LoadResult,
    /// Memory of the scheduler before any node, with all of them, and after the jobs.
    resident_kib: [u64; 3],
    pub(crate) heartbeats_per_s: f64,
    /// With a shared store: the cost of the nodes, and of the jobs.
    shared: Option<(IdleCost, StoreCost)>,
}

/// The cost of the nodes while there are no jobs, upkeep included.
#[derive(Debug)]
struct IdleCost {
    heartbeats: f64,
    scheduler_us: f64,
    store: StoreCounters,
    /// What the store keeps of the nodes.
    kept_bytes: f64,
}

pub(crate) async fn run(plan: FleetPlan, context: &BenchContext) -> anyhow::Result<FleetFigures> {
    let FleetPlan { shape, mode, length, scheduler } = plan;
    let progress = &context.progress;
    raise_file_limit(shape.nodes + connections(mode, shape.work))?;
    progress.set_total(u64::from(shape.nodes) + 1);
    let servers = StoreServers::connect(scheduler.store.as_deref()).await?;
    let empty = StoreServers::count_if(servers.as_ref()).await?;
    let spec = BrokerSpec::Scheduler(scheduler);
    let broker = Broker::start(&spec, context.pins.as_ref()).await?;
    let before_kib = broker.resident_kib()?;
    let mut nodes = BenchNodes::connect(&broker, shape, |connected| {
        progress.set_done(connected.into());
        progress.show(format!("{connected} nodes"));
    })
    .await?;
    let connected_kib = broker.resident_kib()?;
    let idle = match servers.as_ref().zip(empty) {
        Some((servers, empty)) => {
            progress.show(format!("heartbeats for {:.0} s", IDLE.as_secs_f64()));
            Some(IdleCost::measure(&broker, &nodes, servers, &empty).await?)
        }
        None => None,
    };
    progress.show(format!("jobs for {:.0} s", (WARM_UP + length).as_secs_f64()));
    let (heartbeats, start) = (nodes.heartbeats(), Instant::now());
    let store_before = StoreServers::count_if(servers.as_ref()).await?;
    let times = LoadLength { warm_up: WARM_UP, measured: length };
    let load = measure(&broker, None, shape, mode, times).await?;
    nodes.check().context("the scheduler lost a node")?;
    let heartbeats_per_s = (nodes.heartbeats() - heartbeats) / start.elapsed().as_secs_f64();
    let shared = match servers.as_ref().zip(store_before).zip(idle) {
        Some(((servers, before), idle)) => {
            let times = start.elapsed().as_secs_f64() / IDLE.as_secs_f64();
            let spent = servers.since(&before).await?.less(&idle.store, times);
            let scheduler = SchedulerCounters::read(&broker.addresses()).await?;
            Some((idle, StoreCost { spent, scheduler, scheduler_us: load.cpu_us_per_job }))
        }
        None => None,
    };
    let resident_kib = [before_kib, connected_kib, broker.resident_kib()?];
    progress.step();
    drop(nodes);
    broker.stop().await;
    Ok(FleetFigures { shape, mode, load, resident_kib, heartbeats_per_s, shared })
}

impl IdleCost {
    async fn measure(
        broker: &Broker,
        nodes: &BenchNodes,
        servers: &StoreServers,
        empty: &StoreCounters,
    ) -> anyhow::Result<Self> {
        let before = servers.count().await?;
        let kept_bytes = before.less(empty, 1.0).total().memory_bytes;
        let (cpu, heartbeats) = (broker.cpu()?, nodes.heartbeats());
        sleep(IDLE).await;
        let (cpu, heartbeats) = (broker.cpu()? - cpu, nodes.heartbeats() - heartbeats);
        let store = servers.since(&before).await?;
        let scheduler_us = cpu.as_secs_f64() * 1e6 / heartbeats.max(1.0);
        Ok(Self { heartbeats, scheduler_us, store, kept_bytes })
    }

    /// Calls, commands, microseconds and network bytes of the store for each heartbeat.
    fn store_per_heartbeat(&self) -> [f64; 4] {
        let ServerCounters { calls, commands, cpu_s, net_bytes, .. } = self.store.total();
        [calls, commands, cpu_s * 1e6, net_bytes].map(|spent| spent / self.heartbeats.max(1.0))
    }

    fn facts(&self, nodes: u32) -> Vec<(&'static str, String)> {
        let [calls, commands, us, bytes] = self.store_per_heartbeat();
        let kept = self.kept_bytes / f64::from(nodes.max(1));
        let cpu = format!("{:.0} µs of the scheduler, {us:.0} µs of the store", self.scheduler_us);
        let calls = format!("{calls:.2} round trips, {commands:.1} commands, {bytes:.0} bytes");
        vec![
            ("each heartbeat", format!("{cpu}, {calls}, upkeep included")),
            ("each node", format!("{kept:.0} bytes in the store")),
        ]
    }

    fn json(&self, nodes: u32) -> Value {
        let [calls, commands, us, bytes] = self.store_per_heartbeat();
        json!({
            "scheduler_cpu_us": self.scheduler_us,
            "store_cpu_us": us,
            "round_trips": calls,
            "commands": commands,
            "store_net_bytes": bytes,
            "store_bytes_per_node": self.kept_bytes / f64::from(nodes.max(1)),
        })
    }
}

/// Raises the limit of open files: a connection is a file, here and in the scheduler, which
/// inherits the limit.
pub(crate) fn raise_file_limit(connections: u32) -> anyhow::Result<()> {
    let wanted = u64::from(connections) + OTHER_FILES;
    let (soft, hard) = rlimit::getrlimit(rlimit::Resource::NOFILE).context("no limits")?;
    if soft >= wanted {
        return Ok(());
    }
    ensure!(
        hard >= wanted,
        "this needs {wanted} open files, and the system allows {hard}; raise the hard limit \
         (ulimit -Hn, or LimitNOFILE= of the service) or use fewer nodes"
    );
    rlimit::setrlimit(rlimit::Resource::NOFILE, wanted, hard)
        .context("cannot raise the limit of open files")
}

impl FleetFigures {
    /// Memory of the scheduler for each node, after the jobs.
    pub(crate) fn node_kib(&self) -> f64 {
        let [before, _, after] = self.resident_kib;
        after.saturating_sub(before) as f64 / f64::from(self.shape.nodes.max(1))
    }

    pub(crate) fn is_met(&self) -> bool {
        self.node_kib() <= NODE_KIB_MAX && self.load.stats.failed() == 0
    }

    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let [before, connected, after] = self.resident_kib.map(|kib| kib as f64 / 1024.0);
        let (stats, cpu) = (&self.load.stats, self.load.cpu_us_per_job);
        let NodeShape { nodes, slots, .. } = self.shape;
        let load = match self.mode {
            LoadMode::Open { per_s } => format!("{per_s:.0} jobs/s"),
            LoadMode::Closed { clients } => format!("{clients} clients"),
        };
        let (rate, done, failed) = (self.load.jobs_per_s(), stats.done(), stats.failed());
        let [p50, p99] = [0.5, 0.99].map(|quantile| shown_ms(stats.quantile_ms(quantile)));
        let max = shown_ms(stats.max_ms());
        vec![
            ("nodes", format!("{nodes} with {slots} slots, all connected")),
            ("memory of each", format!("{:.1} KiB (limit {NODE_KIB_MAX:.0} KiB)", self.node_kib())),
            (
                "memory in all",
                format!(
                    "{before:.0} MiB without nodes, {connected:.0} MiB with them, {after:.0} MiB \
                     after the jobs"
                ),
            ),
            ("heartbeats", format!("{:.0}/s", self.heartbeats_per_s)),
            ("jobs", format!("{rate:.0}/s with {load}, {done} done, {failed} failed")),
            ("latency", format!("p50 {p50} ms, p99 {p99} ms, max {max} ms")),
            ("scheduler cpu", format!("{cpu:.0} µs for each job, heartbeats included")),
        ]
    }

    pub(crate) fn result(&self) -> BenchResult {
        let mut parts =
            vec![format!("{}\ntarget: {}", output::facts(&self.facts()), verdict(self.is_met()))];
        if let Some((idle, cost)) = &self.shared {
            parts.push(output::facts(&idle.facts(self.shape.nodes)));
            parts.push(format!("The jobs alone:\n{}", cost.table()));
        }
        parts.extend(self.load.stats.late_warning());
        let page = ReportPage::of_fleet(self);
        BenchResult { text: parts.join("\n\n"), json: self.json(), page }
    }

    fn json(&self) -> Value {
        let [before, connected, after] = self.resident_kib;
        let stats = &self.load.stats;
        let (idle, cost) = self.shared.as_ref().map(|(idle, cost)| (idle, cost)).unzip();
        json!({
            "nodes": self.shape.nodes,
            "slots": self.shape.slots,
            "node_kib": self.node_kib(),
            "resident_kib": {"before": before, "connected": connected, "after": after},
            "heartbeats_per_s": self.heartbeats_per_s,
            "heartbeat": idle.map(|idle| idle.json(self.shape.nodes)),
            "store": cost.map(StoreCost::json),
            "jobs_per_s": self.load.jobs_per_s(),
            "done": stats.done(),
            "failed": stats.failed(),
            "latency_ms": stats.latency_ms(),
            "cpu_us_per_job": self.load.cpu_us_per_job,
            "met": self.is_met(),
        })
    }
}
