//! Load without ballast: clients and nodes that cost as little as they can.
//!
//! | file | what |
//! |---|---|
//! | `lean/client.rs` | a connection that asks: prepared bytes out, an answer in |
//! | `lean/node.rs` | a node that answers at once |
//! | `lean/frame.rs` | as much of the WebSocket protocol as that takes |
//!
//! Start at [`measure`]. The load generator has one core and the broker another, so what it spends
//! itself bounds what can be measured; hence no HTTP library, no JSON library, prepared bytes.
//!
//! Invariant: every broker gets the same load from the same code. In the open loop a latency starts
//! when the request *should* have been sent (no coordinated omission), and the pacing does not
//! depend on timers, whose steps of a millisecond would be the larger part of a latency.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::broker::Broker;
use super::crew::Shape;
use super::load::Mode;
use super::machine;
use super::score::Score;

pub(super) mod client;
mod frame;
pub(super) mod node;

use client::Client;

/// Fewest and most connections of the open loop; a request waits for its own, and that counts.
const OPEN_CLIENTS: std::ops::RangeInclusive<u32> = 200..=10_000;

/// Connections of the open loop for each job that is at work on a node.
const OPEN_CLIENTS_FOR_EACH: f64 = 2.0;

/// A request that is sent later than this after its time was not sent at its time.
const LATE: Duration = Duration::from_millis(10);

/// Most requests that wait for one connection of the open loop.
const BEHIND_MAX: usize = 4096;

/// How long stragglers may take after the end.
const LINGER: Duration = Duration::from_secs(5);

/// The word for a request that was not sent because too many waited.
const NOT_SENT: &str = "TOO_MANY_OPEN";

/// How a broker is spoken to: what is asked in turn, and how an answer ends.
#[derive(Debug, Clone)]
pub(super) struct Door {
    pub(super) address: SocketAddr,
    pub(super) requests: Arc<[Bytes]>,
    pub(super) reply: Reply,
}

/// Takes a whole answer from the front of the buffer: done, or the code of an error.
pub(super) type Reply = fn(&mut BytesMut) -> Option<Result<(), String>>;

/// How long to warm up and to measure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Length {
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
}

/// What came of one measurement.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) score: Score,
    pub(super) seconds: f64,
    /// CPU time of the broker's process for each job.
    pub(super) cpu_us_per_job: f64,
    /// How busy this process was, 1.0 being a whole core: at 1.0 it is the load that is measured.
    pub(super) generator_busy: f64,
}

impl Outcome {
    pub(super) fn jobs_per_s(&self) -> f64 {
        self.score.done() as f64 / self.seconds
    }
}

/// When answers count.
#[derive(Debug, Clone)]
struct Window {
    count_from: Instant,
    until: Instant,
    score: Arc<Mutex<Score>>,
}

impl Window {
    /// Counts an answer of a request that was, or should have been, sent at this time.
    fn count(&self, sent: Instant, now: Instant, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.score.lock().count_done(now - self.count_from, now - sent),
            Err(code) => self.score.lock().count_error(&code),
        }
    }
}

/// Puts a load on a broker and says what came of it.
pub(super) async fn measure(
    broker: &Broker,
    shape: Shape,
    mode: Mode,
    length: Length,
) -> anyhow::Result<Outcome> {
    let mut clients = vec![];
    for number in 0..connections(mode, shape.work) {
        let number = number as usize;
        let connected = Client::connect(broker.door(number), number).await;
        clients.push(connected.with_context(|| format!("cannot connect to {}", broker.name()))?);
    }
    let start = Instant::now();
    let window = Window {
        count_from: start + length.warm_up,
        until: start + length.warm_up + length.measured,
        score: Arc::new(Mutex::new(Score::lasting(length.measured)?)),
    };
    let mut tasks = JoinSet::new();
    match mode {
        Mode::Closed { .. } => {
            for client in clients {
                tasks.spawn(closed(client, window.clone()));
            }
        }
        Mode::Open { per_s } => open(clients, per_s, &window, &mut tasks),
    }
    sleep_until(window.count_from).await;
    let (cpu, own) = (broker.cpu()?, machine::cpu_self()?);
    sleep_until(window.until).await;
    let (cpu, own) = (broker.cpu()? - cpu, machine::cpu_self()? - own);
    let all = async { while tasks.join_next().await.is_some() {} };
    timeout_at(window.until + LINGER, all).await.ok();
    let score = window.score.lock().take()?;
    let seconds = length.measured.as_secs_f64();
    let cpu_us_per_job = cpu.as_secs_f64() * 1e6 / (score.done().max(1) as f64);
    let generator_busy = own.as_secs_f64() / seconds;
    Ok(Outcome { score, seconds, cpu_us_per_job, generator_busy })
}

/// How many connections a load needs if jobs take at least so long.
pub(super) fn connections(mode: Mode, work: Duration) -> u32 {
    match mode {
        Mode::Closed { clients } => clients,
        Mode::Open { per_s } => {
            let at_work = per_s * work.as_secs_f64() * OPEN_CLIENTS_FOR_EACH;
            (at_work as u32).clamp(*OPEN_CLIENTS.start(), *OPEN_CLIENTS.end())
        }
    }
}

/// Asks, waits for the answer, asks again. Answers count if they come in the window.
async fn closed(mut client: Client, window: Window) {
    let mut sent = Instant::now();
    while sent < window.until {
        let answer = client.ask().await;
        let is_broken = client.is_broken();
        let now = Instant::now();
        if now >= window.count_from && now < window.until {
            window.count(sent, now, answer);
        }
        if is_broken {
            return;
        }
        sent = now;
    }
}

/// Starts the clients and whoever tells them when to send: each in turn, at its time.
fn open(clients: Vec<Client>, per_s: f64, window: &Window, tasks: &mut JoinSet<()>) {
    let mut turns = vec![];
    for client in clients {
        let (turn, mine) = mpsc::channel(BEHIND_MAX);
        turns.push(turn);
        tasks.spawn(ask_when_told(client, mine, window.clone()));
    }
    let window = window.clone();
    tasks.spawn(async move {
        let start = Instant::now();
        let (mut number, mut turn) = (0_u64, 0_usize);
        let mut intended = start;
        while intended < window.until {
            let now = Instant::now();
            while intended <= now && intended < window.until {
                let told = turns[turn].try_send(intended);
                if told.is_err() && intended >= window.count_from {
                    window.score.lock().count_error(NOT_SENT);
                }
                turn = (turn + 1) % turns.len();
                number += 1;
                intended = start + Duration::from_secs_f64(number as f64 / per_s);
            }
            // Lets the others work and looks at the sockets; a timer would be late.
            yield_now().await;
        }
    });
}

async fn ask_when_told(mut client: Client, mut turns: mpsc::Receiver<Instant>, window: Window) {
    while let Some(intended) = turns.recv().await {
        let is_late = intended.elapsed() > LATE;
        let answer = client.ask().await;
        if intended >= window.count_from {
            window.count(intended, Instant::now(), answer);
            if is_late {
                window.score.lock().count_late();
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
        let of = |per_s, work_ms| connections(Mode::Open { per_s }, Duration::from_millis(work_ms));
        assert_eq!(of(20_000.0, 0), 200);
        assert_eq!(of(2_000.0, 1_000), 4_000);
        assert_eq!(of(1e9, 60_000), 10_000);
        assert_eq!(connections(Mode::Closed { clients: 7 }, Duration::ZERO), 7);
    }
}
