//! The cost of jobs in a shared store: calls, commands and CPU time of its servers.
//!
//! Start at [`StoreServers::connect`]. The servers count their work (`INFO`), the instances count
//! their jobs and reservations (`/metrics`); the one is divided by the other.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Context;
use lingua_core::Rules;
use lingua_redis::{RedisOptions, RedisStore, StoreUrl};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::output;

/// Longest page that is read.
const PAGE_BYTES_MAX: u64 = 4 << 20;

/// The servers of a shared store.
#[derive(Debug)]
pub(crate) struct StoreServers {
    store: RedisStore,
    pub(crate) url: StoreUrl,
}

/// What a server has counted since its start, or between two moments.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ServerCounters {
    /// Calls of scripts: each is a round trip that a job waits for.
    pub(crate) calls: f64,
    /// Commands, including those of scripts.
    pub(crate) commands: f64,
    pub(crate) cpu_s: f64,
    pub(crate) memory_bytes: f64,
    /// Bytes over its sockets, in and out.
    pub(crate) net_bytes: f64,
}

/// The counters of all servers, by address.
#[derive(Debug, Clone)]
pub(crate) struct StoreCounters(BTreeMap<String, ServerCounters>);

/// What the instances of the scheduler have counted since their start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SchedulerCounters {
    pub(crate) jobs: f64,
    pub(crate) reservations: f64,
    /// Reservations that got a slot.
    pub(crate) granted: f64,
}

/// What the servers did for each job.
#[derive(Debug)]
pub(crate) struct StoreCost {
    pub(crate) spent: StoreCounters,
    pub(crate) scheduler: SchedulerCounters,
    pub(crate) scheduler_us: f64,
}

impl StoreServers {
    /// Connects to the servers at this URL; none if the store is not shared.
    pub(crate) async fn connect(url: Option<&str>) -> anyhow::Result<Option<Self>> {
        // The scheduler itself reports what is wrong with another URL.
        let Some(url) = url.filter(|url| url.starts_with("redis")) else { return Ok(None) };
        let url: StoreUrl = url.parse()?;
        let options = RedisOptions::new(url.clone(), Rules::default());
        let store = RedisStore::connect(options).await.context("cannot reach the store")?;
        Ok(Some(Self { store, url }))
    }

    pub(crate) async fn count(&self) -> anyhow::Result<StoreCounters> {
        let mut counters: BTreeMap<String, ServerCounters> = BTreeMap::new();
        for section in ["commandstats", "cpu", "memory", "stats"] {
            for (address, text) in self.store.info(section).await? {
                read_info(&text, counters.entry(address).or_default());
            }
        }
        Ok(StoreCounters(counters))
    }

    /// The counters, if there are servers.
    pub(crate) async fn count_if(servers: Option<&Self>) -> anyhow::Result<Option<StoreCounters>> {
        match servers {
            Some(servers) => servers.count().await.map(Some),
            None => Ok(None),
        }
    }

    /// What the servers did since `before`.
    pub(crate) async fn since(&self, before: &StoreCounters) -> anyhow::Result<StoreCounters> {
        Ok(self.count().await?.less(before, 1.0))
    }
}

impl ServerCounters {
    /// Subtracts the other, so many times.
    fn less(self, other: Self, times: f64) -> Self {
        Self {
            calls: self.calls - other.calls * times,
            commands: self.commands - other.commands * times,
            cpu_s: self.cpu_s - other.cpu_s * times,
            memory_bytes: self.memory_bytes - other.memory_bytes * times,
            net_bytes: self.net_bytes - other.net_bytes * times,
        }
    }
}

impl StoreCounters {
    /// The sum over all servers.
    pub(crate) fn total(&self) -> ServerCounters {
        self.0.values().fold(ServerCounters::default(), |sum, each| sum.less(*each, -1.0))
    }

    /// Subtracts the other, so many times: for example the upkeep of as many idle seconds.
    pub(crate) fn less(&self, other: &Self, times: f64) -> Self {
        let each = self.0.iter().map(|(address, counters)| {
            let other = other.0.get(address).copied().unwrap_or_default();
            (address.clone(), counters.less(other, times))
        });
        Self(each.collect())
    }
}

impl SchedulerCounters {
    /// The sum over the instances at these addresses.
    pub(crate) async fn read(instances: &[SocketAddr]) -> anyhow::Result<Self> {
        let mut counters = Self::default();
        for &address in instances {
            let page = http_get(address, "/metrics").await;
            let page = page.context("cannot read the scheduler's metrics")?;
            counters.jobs += sum(&page, "lingua_jobs_total");
            counters.reservations += sum(&page, "lingua_reserve_total");
            counters.granted += sum(&page, "lingua_reserve_total{outcome=\"granted\"}");
        }
        Ok(counters)
    }
}

/// Adds a section of `INFO` to the counters.
fn read_info(info: &str, counters: &mut ServerCounters) {
    let number = |text: &str| text.trim().parse::<f64>().unwrap_or_default();
    for line in info.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        match name {
            "used_cpu_user" | "used_cpu_sys" => counters.cpu_s += number(value),
            "total_net_input_bytes" | "total_net_output_bytes" => {
                counters.net_bytes += number(value);
            }
            "used_memory" => counters.memory_bytes += number(value),
            _ if name.starts_with("cmdstat_") => {
                let calls = value.split(',').find_map(|field| field.strip_prefix("calls="));
                let calls = calls.map_or(0.0, number);
                counters.commands += calls;
                if name.starts_with("cmdstat_eval") {
                    counters.calls += calls;
                }
            }
            _ => {}
        }
    }
}

/// A page of a scheduler, head and body.
pub(crate) async fn http_get(scheduler: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(scheduler).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {scheduler}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut page = String::new();
    stream.take(PAGE_BYTES_MAX).read_to_string(&mut page).await?;
    Ok(page)
}

/// The sum of a metric over its labels, or the one with the labels in the name.
fn sum(metrics: &str, name: &str) -> f64 {
    let value = |line: &str| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']))?;
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    };
    metrics.lines().filter_map(value).sum()
}

impl StoreCost {
    fn per_job(&self, part: impl Fn(&ServerCounters) -> f64) -> f64 {
        part(&self.spent.total()) / self.scheduler.jobs.max(1.0)
    }

    fn reservations(&self) -> f64 {
        self.scheduler.reservations / self.scheduler.jobs.max(1.0)
    }

    fn store_us(&self) -> f64 {
        self.per_job(|counters| counters.cpu_s) * 1e6
    }

    /// Commands for each job, server by server.
    fn by_server(&self) -> Vec<f64> {
        let jobs = self.scheduler.jobs.max(1.0);
        self.spent.0.values().map(|counters| counters.commands / jobs).collect()
    }

    pub(crate) fn table(&self) -> String {
        let [calls, commands] = [self.per_job(|c| c.calls), self.per_job(|c| c.commands)];
        let [net, memory] = [self.per_job(|c| c.net_bytes), self.per_job(|c| c.memory_bytes)];
        let mut facts = vec![
            ("round trips", format!("{calls:.2} for each job")),
            ("commands", format!("{commands:.1} for each job, including those of scripts")),
            ("reservations", format!("{:.2} for each job", self.reservations())),
            ("store cpu", format!("{:.0} µs for each job", self.store_us())),
            ("store bytes", format!("{net:.0} sent and {memory:.0} kept for each job")),
            ("scheduler cpu", format!("{:.0} µs for each job", self.scheduler_us)),
        ];
        let by_server = self.by_server();
        if by_server.len() > 1 {
            let each: Vec<String> = by_server.iter().map(|count| format!("{count:.1}")).collect();
            facts.push(("by server", format!("{} commands for each job", each.join(", "))));
        }
        output::facts(&facts)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "round_trips_per_job": self.per_job(|counters| counters.calls),
            "commands_per_job": self.per_job(|counters| counters.commands),
            "commands_per_job_by_server": self.by_server(),
            "reservations_per_job": self.reservations(),
            "store_cpu_us_per_job": self.store_us(),
            "store_net_bytes_per_job": self.per_job(|counters| counters.net_bytes),
            "store_memory_bytes_per_job": self.per_job(|counters| counters.memory_bytes),
            "scheduler_cpu_us_per_job": self.scheduler_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_a_server_are_read_from_its_info() {
        let mut counters = ServerCounters::default();
        for section in [
            "# Commandstats\r\ncmdstat_evalsha:calls=7,usec=9\r\ncmdstat_zadd:calls=5,usec=1\r\n",
            "# CPU\r\nused_cpu_sys:0.5\r\nused_cpu_user:1.25\r\nused_cpu_sys_children:9\r\n",
            "# Memory\r\nused_memory:1024\r\nused_memory_rss:4096\r\n",
            "total_net_input_bytes:30\r\ntotal_net_output_bytes:12\r\n",
        ] {
            read_info(section, &mut counters);
        }
        let expected = ServerCounters {
            calls: 7.0,
            commands: 12.0,
            cpu_s: 1.75,
            memory_bytes: 1024.0,
            net_bytes: 42.0,
        };
        assert_eq!(counters, expected);
    }

    #[test]
    fn upkeep_does_not_count_as_work_for_jobs() {
        let server = |calls| {
            let commands = 10.0 * calls;
            ServerCounters { calls, commands, ..ServerCounters::default() }
        };
        let counters =
            |a, b| StoreCounters([("a".to_owned(), server(a)), ("b".to_owned(), server(b))].into());
        let spent = counters(130.0, 50.0).less(&counters(10.0, 0.0), 3.0);
        assert_eq!(spent.total(), server(150.0));
        let scheduler = SchedulerCounters { jobs: 50.0, reservations: 55.0, granted: 50.0 };
        let cost = StoreCost { spent, scheduler, scheduler_us: 7.0 };
        assert_eq!(cost.by_server(), [20.0, 10.0]);
        assert_eq!(cost.json()["reservations_per_job"], 1.1);
    }

    #[test]
    fn a_metric_is_summed_over_its_labels() {
        let page = "lingua_jobs_total{state=\"DONE\"} 3\nlingua_jobs_total{state=\"FAILED\"} 1\n\
                    lingua_jobs_total_x 9\n";
        assert_eq!(sum(page, "lingua_jobs_total"), 4.0);
        assert_eq!(sum(page, "lingua_jobs_total{state=\"DONE\"}"), 3.0);
    }
}
