//! What a shared store does for the jobs: calls, commands and CPU time of its servers.
//!
//! Start at [`Servers::connect`]. The servers count for themselves (`INFO`), the scheduler counts its jobs and how often
//! it asked for a slot (`/metrics`); the one is divided by the other.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Context;
use lingua_core::Rules;
use lingua_redis::{Options, RedisStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::screen::card;

/// Longest page of metrics that is read.
const METRICS_BYTES_MAX: u64 = 4 << 20;

/// The servers of a shared store.
#[derive(Debug)]
pub(super) struct Servers(RedisStore);

/// What a server has counted since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Count {
    /// Calls of scripts: what the scheduler waits for, for every job.
    calls: f64,
    /// Commands, those of scripts included.
    commands: f64,
    cpu_s: f64,
}

/// What all of them have counted up to a moment, by address.
#[derive(Debug)]
pub(super) struct Counts(BTreeMap<String, Count>);

/// What the servers did for each job.
#[derive(Debug)]
pub(super) struct Share {
    /// By server.
    servers: Vec<Count>,
    jobs: f64,
    reserves: f64,
    scheduler_us: f64,
}

impl Servers {
    /// The servers at this URL; none if the store is not shared.
    pub(super) async fn connect(url: Option<&str>) -> anyhow::Result<Option<Self>> {
        // What is wrong with another one, the scheduler says.
        let Some(url) = url.filter(|url| url.starts_with("redis")) else { return Ok(None) };
        let options = Options::new(url.parse()?, Rules::default());
        let store = RedisStore::connect(options).await.context("cannot reach the store")?;
        Ok(Some(Self(store)))
    }

    pub(super) async fn count(&self) -> anyhow::Result<Counts> {
        let mut counts: BTreeMap<String, Count> = BTreeMap::new();
        for section in ["commandstats", "cpu"] {
            for (address, text) in self.0.info(section).await? {
                let count = counts.entry(address).or_default();
                read(&text, count);
            }
        }
        Ok(Counts(counts))
    }

    /// What was done for each job since then, by a scheduler that was started since.
    pub(super) async fn share(
        &self,
        then: &Counts,
        scheduler: SocketAddr,
        scheduler_us: f64,
    ) -> anyhow::Result<Share> {
        let now = self.count().await?;
        let metrics = metrics_of(scheduler).await.context("cannot read the scheduler's metrics")?;
        let since = |(address, now): (&String, &Count)| {
            let then = then.0.get(address).copied().unwrap_or_default();
            Count {
                calls: now.calls - then.calls,
                commands: now.commands - then.commands,
                cpu_s: now.cpu_s - then.cpu_s,
            }
        };
        Ok(Share {
            servers: now.0.iter().map(since).collect(),
            jobs: sum(&metrics, "lingua_jobs_total").max(1.0),
            reserves: sum(&metrics, "lingua_reserve_total"),
            scheduler_us,
        })
    }
}

/// Adds what a server says of itself.
fn read(info: &str, count: &mut Count) {
    let number = |text: &str| text.trim().parse::<f64>().unwrap_or_default();
    for line in info.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        match name {
            "used_cpu_user" | "used_cpu_sys" => count.cpu_s += number(value),
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

/// The sum of a metric over its labels.
fn sum(metrics: &str, name: &str) -> f64 {
    let value = |line: &str| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']))?;
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    };
    metrics.lines().filter_map(value).sum()
}

impl Share {
    fn of(&self, part: impl Fn(&Count) -> f64) -> f64 {
        self.servers.iter().map(part).sum::<f64>() / self.jobs
    }

    fn redis_us(&self) -> f64 {
        self.of(|count| count.cpu_s) * 1e6
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
            ("reservations", format!("{:.2} for each job", self.reserves / self.jobs)),
            ("store cpu", format!("{:.0} µs for each job", self.redis_us())),
            ("scheduler cpu", format!("{:.0} µs for each job", self.scheduler_us)),
        ];
        if self.servers.len() > 1 {
            let each =
                self.servers.iter().map(|count| format!("{:.1}", count.commands / self.jobs));
            facts.push((
                "by server",
                format!("{} commands for each job", each.collect::<Vec<_>>().join(", ")),
            ));
        }
        card(&facts)
    }

    /// For machines.
    pub(super) fn json(&self) -> Value {
        let each = self.servers.iter().map(|count| count.commands / self.jobs);
        json!({
            "round_trips_per_job": self.of(|count| count.calls),
            "commands_per_job": self.of(|count| count.commands),
            "commands_per_job_by_server": each.collect::<Vec<_>>(),
            "reservations_per_job": self.reserves / self.jobs,
            "store_cpu_us_per_job": self.redis_us(),
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
        assert_eq!(count, Count { calls: 7.0, commands: 12.0, cpu_s: 1.75 });
    }

    #[test]
    fn metrics_are_added_up_over_their_labels() {
        let page = "lingua_jobs_total{state=\"DONE\"} 3\nlingua_jobs_total{state=\"FAILED\"} 1\nlingua_jobs_total_x 9\n";
        assert_eq!(sum(page, "lingua_jobs_total"), 4.0);
    }
}
