//! Clients that send prepared bytes, and the load that they make.
//!
//! | file | what it holds |
//! |---|---|
//! | `raw_client/client.rs` | a connection that sends requests and finds the end of each reply |
//! | `raw_client/node.rs` | a node that answers at once |
//! | `raw_client/frame.rs` | the part of the WebSocket protocol that such a node needs |
//!
//! Start at [`measure`]. The load has one core and the broker another, so the cost of the load
//! bounds what can be measured; hence no HTTP library, no JSON library.
//!
//! Invariant: every broker gets the same load from the same code. In the open loop a latency starts
//! when the request *should* have been sent (no coordinated omission), and the pace does not depend
//! on timers, whose steps of a millisecond are longer than most latencies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::broker::Broker;
use crate::machine;
use crate::nodes::NodeShape;
use crate::stats::LoadStats;
use crate::store_cost::{ServerCounters, StoreServers};

pub(crate) mod client;
mod frame;
pub(crate) mod node;

use client::RawClient;

/// Fewest and most connections of the open loop; a request waits for its connection, which counts.
const OPEN_CLIENTS: std::ops::RangeInclusive<u32> = 200..=10_000;

/// Connections of the open loop for each job that a node works on.
const OPEN_CLIENTS_PER_JOB: f64 = 2.0;

/// A request that is sent later than this counts as late.
const LATE: Duration = Duration::from_millis(10);

/// Most requests that wait for one connection of the open loop.
const WAITING_MAX: usize = 4096;

/// How long the last replies may take after the end.
const LAST_REPLIES_MAX: Duration = Duration::from_secs(5);

/// The error code of a request that was not sent because too many waited.
const NOT_SENT: &str = "TOO_MANY_OPEN";

/// How clients behave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LoadMode {
    /// Each client sends a job when the one before has ended.
    Closed { clients: u32 },
    /// Jobs are sent at a rate, whatever happens to those before.
    Open { per_s: f64 },
}

/// How a broker is used: the requests, sent in turn, and how a reply is recognised.
#[derive(Debug, Clone)]
pub(crate) struct BrokerEndpoint {
    pub(crate) address: SocketAddr,
    pub(crate) requests: Arc<[Bytes]>,
    pub(crate) reply: TakeReply,
    /// What nodes show, if the broker asks for it.
    pub(crate) node_token: Option<&'static str>,
}

/// Takes a whole reply from the front of the buffer: success, or the code of an error.
pub(crate) type TakeReply = fn(&mut BytesMut) -> Option<Result<(), String>>;

#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadLength {
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// The result of one measurement.
#[derive(Debug)]
pub(crate) struct LoadResult {
    pub(crate) stats: LoadStats,
    pub(crate) seconds: f64,
    /// CPU time of the broker's processes for each job.
    pub(crate) cpu_us_per_job: f64,
    /// CPU time of the store's servers for each job, if the store is shared.
    pub(crate) store_us_per_job: Option<f64>,
    /// CPU time of this process; near 1.0 (a whole core) the load is the bottleneck.
    pub(crate) generator_busy: f64,
}

impl LoadResult {
    pub(crate) fn jobs_per_s(&self) -> f64 {
        self.stats.done() as f64 / self.seconds
    }
}

/// When replies count.
#[derive(Debug, Clone)]
struct Window {
    count_from: Instant,
    until: Instant,
    stats: Arc<Mutex<LoadStats>>,
}

impl Window {
    /// Counts the reply to a request that was, or should have been, sent at this time.
    fn count(&self, sent: Instant, now: Instant, reply: Result<(), String>) {
        match reply {
            Ok(()) => self.stats.lock().count_done(now - self.count_from, now - sent),
            Err(code) => self.stats.lock().count_error(&code),
        }
    }
}

/// Puts a load on a broker.
pub(crate) async fn measure(
    broker: &Broker,
    servers: Option<&StoreServers>,
    shape: NodeShape,
    mode: LoadMode,
    length: LoadLength,
) -> anyhow::Result<LoadResult> {
    let mut clients = vec![];
    for number in 0..connections(mode, shape.work) as usize {
        let connected = RawClient::connect(broker.endpoint(number), number).await;
        clients.push(connected.with_context(|| format!("cannot connect to {}", broker.name()))?);
    }
    let start = Instant::now();
    let window = Window {
        count_from: start + length.warm_up,
        until: start + length.warm_up + length.measured,
        stats: Arc::new(Mutex::new(LoadStats::lasting(length.measured)?)),
    };
    let mut tasks = JoinSet::new();
    match mode {
        LoadMode::Closed { .. } => {
            for client in clients {
                tasks.spawn(run_closed(client, window.clone()));
            }
        }
        LoadMode::Open { per_s } => run_open(clients, per_s, &window, &mut tasks),
    }
    sleep_until(window.count_from).await;
    let store_before = StoreServers::count_if(servers).await?;
    let (cpu, own) = (broker.cpu()?, machine::cpu_self()?);
    sleep_until(window.until).await;
    let (cpu, own) = (broker.cpu()? - cpu, machine::cpu_self()? - own);
    let store: Option<ServerCounters> = match servers.zip(store_before) {
        Some((servers, before)) => Some(servers.since(&before).await?.total()),
        None => None,
    };
    let all = async { while tasks.join_next().await.is_some() {} };
    timeout_at(window.until + LAST_REPLIES_MAX, all).await.ok();
    let stats = window.stats.lock().take()?;
    let seconds = length.measured.as_secs_f64();
    let per_job_us = |cpu_s: f64| cpu_s * 1e6 / (stats.done().max(1) as f64);
    Ok(LoadResult {
        seconds,
        cpu_us_per_job: per_job_us(cpu.as_secs_f64()),
        store_us_per_job: store.map(|store| per_job_us(store.cpu_s)),
        generator_busy: own.as_secs_f64() / seconds,
        stats,
    })
}

/// How many connections a load needs if a node works so long on each job.
pub(crate) fn connections(mode: LoadMode, work: Duration) -> u32 {
    match mode {
        LoadMode::Closed { clients } => clients,
        LoadMode::Open { per_s } => {
            let at_work = per_s * work.as_secs_f64() * OPEN_CLIENTS_PER_JOB;
            (at_work as u32).clamp(*OPEN_CLIENTS.start(), *OPEN_CLIENTS.end())
        }
    }
}

/// Sends a request, waits for the reply, sends the next. Replies count if they come in the window.
async fn run_closed(mut client: RawClient, window: Window) {
    let mut sent = Instant::now();
    while sent < window.until && !client.is_broken() {
        let reply = client.send().await;
        let now = Instant::now();
        if now >= window.count_from && now < window.until {
            window.count(sent, now, reply);
        }
        sent = now;
    }
}

/// Starts the clients, and the task that hands each its times to send, in turn.
fn run_open(clients: Vec<RawClient>, per_s: f64, window: &Window, tasks: &mut JoinSet<()>) {
    let mut queues = vec![];
    for client in clients {
        let (queue, times) = mpsc::channel(WAITING_MAX);
        queues.push(queue);
        tasks.spawn(send_at(client, times, window.clone()));
    }
    let window = window.clone();
    tasks.spawn(async move {
        let start = Instant::now();
        let (mut number, mut intended) = (0_usize, start);
        while intended < window.until {
            let now = Instant::now();
            while intended <= now && intended < window.until {
                let queued = queues[number % queues.len()].try_send(intended);
                if queued.is_err() && intended >= window.count_from {
                    window.stats.lock().count_error(NOT_SENT);
                }
                number += 1;
                intended = start + Duration::from_secs_f64(number as f64 / per_s);
            }
            // Lets the other tasks run; a timer would be up to a millisecond late.
            yield_now().await;
        }
    });
}

async fn send_at(mut client: RawClient, mut times: mpsc::Receiver<Instant>, window: Window) {
    while let Some(intended) = times.recv().await {
        let is_late = intended.elapsed() > LATE;
        let reply = client.send().await;
        if intended >= window.count_from {
            window.count(intended, Instant::now(), reply);
            if is_late {
                window.stats.lock().count_late();
            }
        }
        if client.is_broken() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_loop_has_connections_for_all_jobs_at_work() {
        let of =
            |per_s, work_ms| connections(LoadMode::Open { per_s }, Duration::from_millis(work_ms));
        assert_eq!(of(20_000.0, 0), 200);
        assert_eq!(of(2_000.0, 1_000), 4_000);
        assert_eq!(of(1e9, 60_000), 10_000);
        assert_eq!(connections(LoadMode::Closed { clients: 7 }, Duration::ZERO), 7);
    }
}
