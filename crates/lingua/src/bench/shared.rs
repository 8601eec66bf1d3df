//! What a shared store does for the jobs: calls, commands and CPU time of its servers.
//!
//! Start at [`Servers::connect`]. The servers count for themselves (`INFO`), the instances count their jobs and how often
//! they asked for a slot (`/metrics`); the one is divided by the other.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Context;
use lingua_core::Rules;
use lingua_redis::{Options, RedisStore, StoreUrl};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::screen::card;

/// Longest page of metrics that is read.
const METRICS_BYTES_MAX: u64 = 4 << 20;

/// The servers of a shared store.
#[derive(Debug)]
pub(super) struct Servers {
    store: RedisStore,
    pub(super) url: StoreUrl,
}

/// What a server has counted since its start, or between two moments.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Count {
    /// Calls of scripts: what the scheduler waits for, for every job.
    pub(super) calls: f64,
    /// Commands, those of scripts included.
    pub(super) commands: f64,
    pub(super) cpu_s: f64,
    pub(super) memory_bytes: f64,
    /// What went over its sockets, in and out.
    pub(super) net_bytes: f64,
}

/// What all of them have counted up to a moment, or between two, by address.
#[derive(Debug, Clone)]
pub(super) struct Counts(BTreeMap<String, Count>);

/// What the instances of the scheduler have counted since their start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) jobs: f64,
    /// How often they asked for a slot, and how often they got one.
    pub(super) reserves: f64,
    pub(super) granted: f64,
}

/// What the servers did for each job.
#[derive(Debug)]
pub(super) struct Share {
    spent: Counts,
    work: Work,
    scheduler_us: f64,
}

impl Servers {
    /// The servers at this URL; none if the store is not shared.
    pub(super) async fn connect(url: Option<&str>) -> anyhow::Result<Option<Self>> {
        // What is wrong with another one, the scheduler says.
        let Some(url) = url.filter(|url| url.starts_with("redis")) else { return Ok(None) };
        let url: StoreUrl = url.parse()?;
        let options = Options::new(url.clone(), Rules::default());
        let store = RedisStore::connect(options).await.context("cannot reach the store")?;
        Ok(Some(Self { store, url }))
    }

    pub(super) async fn count(&self) -> anyhow::Result<Counts> {
        let mut counts: BTreeMap<String, Count> = BTreeMap::new();
        for section in ["commandstats", "cpu", "memory", "stats"] {
            for (address, text) in self.store.info(section).await? {
                let count = counts.entry(address).or_default();
                read(&text, count);
            }
        }
        Ok(Counts(counts))
    }

    /// What they did since then.
    pub(super) async fn since(&self, then: &Counts) -> anyhow::Result<Counts> {
        let now = self.count().await?;
        let before = |address: &String| then.0.get(address).copied().unwrap_or_default();
        let each = now.0.into_iter().map(|(address, now)| {
            let spent = now.less(before(&address), 1.0);
            (address, spent)
        });
        Ok(Counts(each.collect()))
    }
}

impl Count {
    /// Without so many times the other.
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

impl Counts {
    /// Of all servers together.
    pub(super) fn total(&self) -> Count {
        self.0.values().fold(Count::default(), |sum, each| sum.less(*each, -1.0))
    }

    /// Without what they would have done anyway in so many times the other period.
    pub(super) fn less(&self, anyway: &Self, times: f64) -> Self {
        let each = self.0.iter().map(|(address, spent)| {
            let anyway = anyway.0.get(address).copied().unwrap_or_default();
            (address.clone(), spent.less(anyway, times))
        });
        Self(each.collect())
    }
}

impl Work {
    /// What the instances at these addresses have done.
    pub(super) async fn of(instances: &[SocketAddr]) -> anyhow::Result<Self> {
        let mut work = Self { jobs: 0.0, reserves: 0.0, granted: 0.0 };
        for &address in instances {
            let page = metrics_of(address).await.context("cannot read the scheduler's metrics")?;
            work.jobs += sum(&page, "lingua_jobs_total");
            work.reserves += sum(&page, "lingua_reserve_total");
            work.granted += sum(&page, "lingua_reserve_total{outcome=\"granted\"}");
        }
        Ok(work)
    }
}

/// Adds what a server says of itself.
fn read(info: &str, count: &mut Count) {
    let number = |text: &str| text.trim().parse::<f64>().unwrap_or_default();
    for line in info.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        match name {
            "used_cpu_user" | "used_cpu_sys" => count.cpu_s += number(value),
            "total_net_input_bytes" | "total_net_output_bytes" => count.net_bytes += number(value),
            "used_memory" => count.memory_bytes += number(value),
            _ if name.starts_with("cmdstat_") => {
                let calls = value.split(',').find_map(|field| field.strip_prefix("calls="));
                let calls = calls.map_or(0.0, number);
                count.commands += calls;
                if name.starts_with("cmdstat_eval") {
                    count.calls += calls;
                }
            }
            _ => {}
        }
    }
}

async fn metrics_of(scheduler: SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(scheduler).await?;
    let request =
        format!("GET /metrics HTTP/1.1\r\nHost: {scheduler}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut page = String::new();
    stream.take(METRICS_BYTES_MAX).read_to_string(&mut page).await?;
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

impl Share {
    /// Of what the servers spent on the work of the scheduler, which spent so much itself on each job.
    pub(super) fn new(spent: Counts, work: Work, scheduler_us: f64) -> Self {
        Self { spent, work, scheduler_us }
    }

    fn of(&self, part: impl Fn(&Count) -> f64) -> f64 {
        part(&self.spent.total()) / self.jobs()
    }

    fn jobs(&self) -> f64 {
        self.work.jobs.max(1.0)
    }

    fn reserves(&self) -> f64 {
        self.work.reserves / self.jobs()
    }

    pub(super) fn store_us(&self) -> f64 {
        self.of(|count| count.cpu_s) * 1e6
    }

    /// Commands for each job, server by server.
    fn by_server(&self) -> Vec<f64> {
        self.spent.0.values().map(|count| count.commands / self.jobs()).collect()
    }

    /// For people.
    pub(super) fn table(&self) -> String {
        let mut facts = vec![
            ("calls", format!("{:.2} round trips for each job", self.of(|count| count.calls))),
            (
                "commands",
                format!(
                    "{:.1} for each job, those of scripts included",
                    self.of(|count| count.commands)
                ),
            ),
            ("reservations", format!("{:.2} for each job", self.reserves())),
            ("store cpu", format!("{:.0} µs for each job", self.store_us())),
            (
                "store bytes",
                format!(
                    "{:.0} over the network and {:.0} in memory for each job",
                    self.of(|count| count.net_bytes),
                    self.of(|count| count.memory_bytes)
                ),
            ),
            ("scheduler cpu", format!("{:.0} µs for each job", self.scheduler_us)),
        ];
        let by_server = self.by_server();
        if by_server.len() > 1 {
            let each: Vec<String> = by_server.iter().map(|count| format!("{count:.1}")).collect();
            facts.push(("by server", format!("{} commands for each job", each.join(", "))));
        }
        card(&facts)
    }

    /// For machines.
    pub(super) fn json(&self) -> Value {
        json!({
            "round_trips_per_job": self.of(|count| count.calls),
            "commands_per_job": self.of(|count| count.commands),
            "commands_per_job_by_server": self.by_server(),
            "reservations_per_job": self.reserves(),
            "store_cpu_us_per_job": self.store_us(),
            "store_net_bytes_per_job": self.of(|count| count.net_bytes),
            "store_memory_bytes_per_job": self.of(|count| count.memory_bytes),
            "scheduler_cpu_us_per_job": self.scheduler_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_say_of_themselves_is_read() {
        let mut count = Count::default();
        read(
            "# Commandstats\r\ncmdstat_evalsha:calls=7,usec=9,rejected_calls=1\r\ncmdstat_zadd:calls=5,usec=1\r\n",
            &mut count,
        );
        read(
            "# CPU\r\nused_cpu_sys:0.5\r\nused_cpu_user:1.25\r\nused_cpu_sys_children:9\r\n",
            &mut count,
        );
        read("# Memory\r\nused_memory:1024\r\nused_memory_rss:4096\r\n", &mut count);
        read("total_net_input_bytes:30\r\ntotal_net_output_bytes:12\r\n", &mut count);
        let (memory_bytes, net_bytes) = (1024.0, 42.0);
        let expected = Count { calls: 7.0, commands: 12.0, cpu_s: 1.75, memory_bytes, net_bytes };
        assert_eq!(count, expected);
    }

    #[test]
    fn what_would_have_been_done_anyway_is_not_the_jobs() {
        let count = |calls| Count { calls, commands: 10.0 * calls, ..Count::default() };
        let counts = |a, b| Counts([("a".to_owned(), count(a)), ("b".to_owned(), count(b))].into());
        let spent = counts(130.0, 50.0).less(&counts(10.0, 0.0), 3.0);
        assert_eq!(spent.total(), count(150.0));
        let work = Work { jobs: 50.0, reserves: 55.0, granted: 50.0 };
        let share = Share::new(spent, work, 7.0);
        assert_eq!(share.by_server(), [20.0, 10.0]);
        assert_eq!(share.json()["reservations_per_job"], 1.1);
    }

    #[test]
    fn metrics_are_added_up_over_their_labels() {
        let page = "lingua_jobs_total{state=\"DONE\"} 3\nlingua_jobs_total{state=\"FAILED\"} 1\nlingua_jobs_total_x 9\n";
        assert_eq!(sum(page, "lingua_jobs_total"), 4.0);
        assert_eq!(sum(page, "lingua_jobs_total{state=\"DONE\"}"), 3.0);
    }
}
