//! Clients that ask as fast as they can, or at a rate.
//!
//! Start at [`Load::run`]. Invariant: in the open loop a latency starts when the request *should*
//! have been sent, so that a scheduler that falls behind cannot hide it (no coordinated omission).
//! The timer wakes in steps of a millisecond; that lateness is counted, too.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::score::Score;
use crate::api::Api;

/// Most requests that the open loop has on their way.
const IN_FLIGHT_MAX: usize = 10_000;

/// How long stragglers may take after the end.
const LINGER: Duration = Duration::from_secs(5);

/// The word for a request that was not sent because too many were on their way.
const NOT_SENT: &str = "TOO_MANY_OPEN";

/// How clients behave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Mode {
    /// Each asks, waits for the answer, and asks again.
    Closed {
        /// How many there are.
        clients: u32,
    },
    /// They come at a rate, whatever becomes of those before.
    Open {
        /// How many a second.
        per_s: f64,
    },
}

/// What clients do and for how long.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub(super) api: Api,
    pub(super) body: Bytes,
    pub(super) score: Arc<Mutex<Score>>,
    pub(super) count_from: Instant,
    pub(super) until: Instant,
}

impl Load {
    /// Asks until the end.
    pub(super) async fn run(&self, mode: Mode) {
        match mode {
            Mode::Closed { clients } => self.closed(clients).await,
            Mode::Open { per_s } => self.open(per_s).await,
        }
    }

    async fn closed(&self, clients: u32) {
        let mut tasks = JoinSet::new();
        for _ in 0..clients {
            let load = self.clone();
            tasks.spawn(async move {
                while Instant::now() < load.until {
                    load.ask(Instant::now()).await;
                }
            });
        }
        let all = async { while tasks.join_next().await.is_some() {} };
        timeout_at(self.until + LINGER, all).await.ok();
    }

    async fn open(&self, per_s: f64) {
        let room = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
        let start = Instant::now();
        for number in 0_u64.. {
            let intended = start + Duration::from_secs_f64(number as f64 / per_s);
            if intended >= self.until {
                break;
            }
            sleep_until(intended).await;
            match Arc::clone(&room).try_acquire_owned() {
                Ok(place) => {
                    let load = self.clone();
                    tokio::spawn(async move {
                        load.ask(intended).await;
                        drop(place);
                    });
                }
                Err(_) => self.count(intended, Err(NOT_SENT)),
            }
        }
        sleep_until(self.until).await;
        // All places free: nobody is on the way any more.
        let all = room.acquire_many(IN_FLIGHT_MAX as u32);
        timeout_at(self.until + LINGER, all).await.ok();
    }

    async fn ask(&self, intended: Instant) {
        let answer = self.api.post("/v1/translate", self.body.clone()).await;
        match answer {
            Ok(_) => self.count(intended, Ok(())),
            Err(error) => self.count(intended, Err(error.code())),
        }
    }

    fn count(&self, intended: Instant, outcome: Result<(), &str>) {
        if intended < self.count_from {
            return;
        }
        match outcome {
            Ok(()) => {
                let since = intended - self.count_from;
                self.score.lock().count_done(since, intended.elapsed());
            }
            Err(code) => self.score.lock().count_error(code),
        }
    }
}
