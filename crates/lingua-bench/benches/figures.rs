//! `cargo xtask figures`: what jobs, nodes and heartbeats cost over Redis, as tables in Markdown.
//!
//! Start at [`main`]. It starts a server, and a Cluster of three masters, on free ports, and runs
//! `lingua-bench`: one instance and several, few nodes and many, one master and three.
//! `TESTED_LINGUA` names the scheduler's program; `lingua-bench` is beside it.
//!
//! Invariant: the tables hold only figures of this run.

// The lints keep libraries from printing; printing is what this program is for.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

// The tests of lingua-redis start the same servers.
#[allow(dead_code, clippy::unwrap_used, reason = "the tests of lingua-redis use the rest")]
#[path = "../../lingua-redis/tests/it/clustered.rs"]
mod clustered;
#[allow(dead_code, clippy::unwrap_used, reason = "the tests of lingua-redis use the rest")]
#[path = "../../lingua-redis/tests/it/servers.rs"]
mod servers;

use clustered::Cluster;
use servers::Server;

/// Clients and jobs/s of BullMQ with ten workers of four jobs each on such a machine.
const BULLMQ: [(u32, f64); 4] = [(1, 1200.0), (20, 2900.0), (100, 4800.0), (400, 5100.0)];

/// How many reservations a job may need at load 0.95.
const RESERVATIONS_MAX: f64 = 1.1;

/// The tables, in order; arguments select some of them.
const PARTS: [&str; 5] = ["jobs", "load", "instances", "nodes", "cluster"];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Cargo itself adds --bench.
    let chosen: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let unknown = chosen.iter().find(|part| !PARTS.contains(&part.as_str()));
    ensure!(unknown.is_none(), "there is no part {unknown:?}; there are {PARTS:?}");
    let server = Server::start(&[]).await;
    for part in
        PARTS.iter().filter(|part| chosen.is_empty() || chosen.iter().any(|name| name == *part))
    {
        let markdown = match *part {
            "jobs" => jobs(&server).await?,
            "load" => load(&server).await?,
            "instances" => instances(&server).await?,
            "nodes" => nodes(&server).await?,
            _ => cluster(&server).await?,
        };
        println!("{markdown}\n");
    }
    Ok(())
}

/// A table in Markdown.
struct Markdown(Vec<String>);

impl Markdown {
    /// With the arguments of `lingua-bench` that made it.
    fn new(title: &str, flags: &str, heads: &[&str]) -> Self {
        let rule = vec!["---"; heads.len()].join("|");
        Self(vec![
            format!("`lingua-bench {flags} --store …`: {title}\n"),
            format!("| {} |", heads.join(" | ")),
            format!("|{rule}|"),
        ])
    }

    fn row(&mut self, cells: &[String]) {
        self.0.push(format!("| {} |", cells.join(" | ")));
    }

    fn finish(self) -> String {
        self.0.join("\n")
    }
}

/// One instance and one Redis, next to a queue that people use on Redis.
async fn jobs(server: &Server) -> anyhow::Result<String> {
    let heads = [
        "clients",
        "nodes",
        "jobs/s",
        "times BullMQ",
        "p50, p99 ms",
        "round trips",
        "commands",
        "Redis µs",
        "scheduler µs",
        "replay: jobs/s, Redis µs",
        "of the replay",
    ];
    let flags = "load --nodes N --concurrency C --seconds 4 --replay";
    let mut table = Markdown::new(
        "one instance, one Redis; all but the first columns for each job",
        flags,
        &heads,
    );
    let (mut baselines, mut memory, mut network) = (vec![], 0.0, 0.0);
    let peers = BULLMQ.map(|(clients, peer)| (clients, 10, Some(peer)));
    for (clients, nodes, peer) in peers.into_iter().chain([(100, 100, None)]) {
        let flags = format!("load --nodes {nodes} --concurrency {clients} --seconds 4 --replay");
        let found = bench(server, &server.url(), &flags).await?;
        let per_s = number(&found, "/jobs_per_s");
        let of = |name: &str| number(&found, &format!("/replay/{name}"));
        let mut cells = vec![
            clients.to_string(),
            nodes.to_string(),
            format!("{per_s:.0}"),
            peer.map_or("–".to_owned(), |peer| format!("{:.1}", per_s / peer)),
            latencies(&found),
        ];
        cells.extend(store_cells(&found["store"]));
        cells.push(format!("{:.0}, {:.0}", of("jobs_per_s"), of("store_cpu_us_per_job")));
        cells.push(format!("{:.0} %", of("scheduler_share") * 100.0));
        table.row(&cells);
        memory = number(&found, "/store/store_memory_bytes_per_job");
        network = number(&found, "/store/store_net_bytes_per_job");
        baselines.push(format!(
            "{:.0} and {:.0}",
            of("baseline/replay_calls_per_s"),
            of("baseline/redis_benchmark_calls_per_s")
        ));
    }
    let baselines = baselines.join(", ");
    Ok(format!(
        "{}\n\nOne call, repeated by the replay and by redis-benchmark, calls/s: {baselines}. \
         An ended job takes {memory:.0} bytes of Redis, and {network:.0} bytes went over its \
         sockets.",
        table.finish()
    ))
}

/// Nodes that are busy nearly all the time.
async fn load(server: &Server) -> anyhow::Result<String> {
    let flags = "load --nodes 50 --slots 4 --work-ms 200 --rate 950 --seconds 8";
    let heads =
        ["jobs/s", "p50, p99 ms", "reservations a job", "round trips", "commands", "sent late"];
    let mut table = Markdown::new("slots are taken 95 % of the time", flags, &heads);
    let found = bench(server, &server.url(), flags).await?;
    let reservations = number(&found["store"], "/reservations_per_job");
    let is_met = if reservations <= RESERVATIONS_MAX { "met" } else { "missed" };
    let [round_trips, commands, ..] = store_cells(&found["store"]);
    table.row(&[
        format!("{:.0}", number(&found, "/jobs_per_s")),
        latencies(&found),
        format!("{reservations:.2} (goal {RESERVATIONS_MAX}: {is_met})"),
        round_trips,
        commands,
        number(&found, "/late").to_string(),
    ]);
    Ok(table.finish())
}

/// Several instances over one Redis.
async fn instances(server: &Server) -> anyhow::Result<String> {
    let heads = [
        "instances",
        "jobs/s",
        "p50, p99 ms",
        "round trips",
        "commands",
        "Redis µs",
        "scheduler µs",
    ];
    let flags = "load --instances N --nodes 100 --concurrency 100 --seconds 4";
    let mut table = Markdown::new("clients and nodes go to the instances in turn", flags, &heads);
    for count in [1, 2, 4] {
        let flags = format!("load --instances {count} --nodes 100 --concurrency 100 --seconds 4");
        let found = bench(server, &server.url(), &flags).await?;
        let mut cells = vec![
            count.to_string(),
            format!("{:.0}", number(&found, "/jobs_per_s")),
            latencies(&found),
        ];
        cells.extend(store_cells(&found["store"]));
        table.row(&cells);
    }
    Ok(table.finish())
}

/// Many nodes, their heartbeats, and jobs besides.
async fn nodes(server: &Server) -> anyhow::Result<String> {
    let flags = "fleet N --concurrency 100 --seconds 5";
    let heads = [
        "nodes",
        "jobs/s",
        "p50, p99 ms",
        "round trips",
        "commands",
        "Redis µs",
        "Redis bytes",
        "scheduler µs",
    ];
    let title = "jobs while all are connected; only the scheduler's CPU time includes heartbeats";
    let mut jobs = Markdown::new(title, flags, &heads);
    let heads = [
        "nodes",
        "heartbeats/s",
        "round trips",
        "commands",
        "Redis µs",
        "Redis bytes",
        "scheduler µs",
        "a node: bytes in Redis",
        "KiB in the scheduler",
    ];
    let title = "the same nodes without jobs: the cost of each heartbeat, upkeep included";
    let mut beats = Markdown::new(title, flags, &heads);
    for count in [1_000, 10_000] {
        let flags = format!("fleet {count} --concurrency 100 --seconds 5");
        let found = bench(server, &server.url(), &flags).await?;
        let fleet = &found;
        let [round_trips, commands, store_us, scheduler_us] = store_cells(&fleet["store"]);
        jobs.row(&[
            count.to_string(),
            format!("{:.0}", number(fleet, "/jobs_per_s")),
            latencies(fleet),
            round_trips,
            commands,
            store_us,
            format!("{:.0}", number(fleet, "/store/store_net_bytes_per_job")),
            scheduler_us,
        ]);
        let beat = |name: &str| number(fleet, &format!("/heartbeat/{name}"));
        beats.row(&[
            count.to_string(),
            format!("{:.0}", number(fleet, "/heartbeats_per_s")),
            format!("{:.2}", beat("round_trips")),
            format!("{:.1}", beat("commands")),
            format!("{:.0}", beat("store_cpu_us")),
            format!("{:.0}", beat("store_net_bytes")),
            format!("{:.0}", beat("scheduler_cpu_us")),
            format!("{:.0}", beat("store_bytes_per_node")),
            format!("{:.1}", node_kib(fleet)),
        ]);
    }
    Ok(format!("{}\n\n{}", jobs.finish(), beats.finish()))
}

/// Three masters against one, with nodes in ten cells.
async fn cluster(server: &Server) -> anyhow::Result<String> {
    let heads = [
        "masters",
        "jobs/s",
        "commands",
        "by master",
        "largest share",
        "Redis µs",
        "a heartbeat: Redis µs",
    ];
    let flags = "fleet 1000 --concurrency 100 --seconds 5";
    let title = "one master and three on the same two cores; the largest share is what counts";
    let mut table = Markdown::new(title, flags, &heads);
    let cluster = Cluster::start_with(0).await;
    for (masters, url) in [(1, server.url()), (clustered::MASTERS, cluster.url())] {
        let found = bench(server, &url, flags).await?;
        let fleet = &found;
        let by_server =
            fleet["store"]["commands_per_job_by_server"].as_array().context("no servers")?;
        let by_server: Vec<f64> = by_server.iter().filter_map(Value::as_f64).collect();
        let sum: f64 = by_server.iter().sum();
        let largest = by_server.iter().copied().fold(0.0, f64::max);
        let shown: Vec<String> = by_server.iter().map(|each| format!("{each:.1}")).collect();
        let [_, commands, us, _] = store_cells(&fleet["store"]);
        table.row(&[
            masters.to_string(),
            format!("{:.0}", number(fleet, "/jobs_per_s")),
            commands,
            shown.join(", "),
            format!("{:.0} %", largest / sum * 100.0),
            us,
            format!("{:.0}", number(fleet, "/heartbeat/store_cpu_us")),
        ]);
    }
    Ok(table.finish())
}

/// Runs `lingua-bench` on an empty server.
async fn bench(server: &Server, store: &str, flags: &str) -> anyhow::Result<Value> {
    eprintln!("lingua-bench {flags} --store {store}");
    server.ask::<()>(&["FLUSHALL"]).await?;
    let program = std::env::var("TESTED_LINGUA").context("TESTED_LINGUA names no program")?;
    let mut command = Command::new(Path::new(&program).with_file_name("lingua-bench"));
    command.args(flags.split(' ')).args(["--json", "--store", store, "--program", &program]);
    let done = command.stderr(Stdio::inherit()).output().context("lingua-bench does not run")?;
    ensure!(done.status.success(), "lingua-bench {flags} failed");
    let found: Value = serde_json::from_slice(&done.stdout).context("it printed no JSON")?;
    let failed = number(&found, "/failed");
    ensure!(failed == 0.0, "{failed} jobs failed in lingua-bench {flags}");
    Ok(found)
}

/// A figure; 0 if it was not measured.
fn number(found: &Value, path: &str) -> f64 {
    found.pointer(path).and_then(Value::as_f64).unwrap_or_default()
}

/// Memory of the scheduler for each connected node, before there are jobs.
fn node_kib(fleet: &Value) -> f64 {
    let resident = |when: &str| number(fleet, &format!("/resident_kib/{when}"));
    (resident("connected") - resident("before")) / number(fleet, "/nodes").max(1.0)
}

fn latencies(found: &Value) -> String {
    format!("{:.2}, {:.2}", number(found, "/latency_ms/p50"), number(found, "/latency_ms/p99"))
}

/// Round trips, commands, Redis µs and scheduler µs of a job.
fn store_cells(store: &Value) -> [String; 4] {
    let of = |name: &str| number(store, &format!("/{name}"));
    [
        format!("{:.2}", of("round_trips_per_job")),
        format!("{:.1}", of("commands_per_job")),
        format!("{:.0}", of("store_cpu_us_per_job")),
        format!("{:.0}", of("scheduler_cpu_us_per_job")),
    ]
}
