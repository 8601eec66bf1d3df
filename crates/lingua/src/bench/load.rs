//! Clients that send jobs as fast as they can, or at a rate.
//!
//! Start at [`ClientLoad::run`]. Invariant: at a rate, a latency starts when the job *should* have
//! been sent, so that a scheduler that falls behind cannot hide it (no coordinated omission). The
//! timer is up to a millisecond late; that counts, too.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lingua_sdk::Client;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::stats::ClientStats;

/// Most jobs under way at a rate.
const UNDER_WAY_MAX: usize = 10_000;

/// How long the last replies may take after the end.
const LAST_REPLIES_MAX: Duration = Duration::from_secs(5);

/// The error code of a job that was not sent because too many were under way.
const NOT_SENT: &str = "TOO_MANY_OPEN";

/// The jobs to send, and when.
#[derive(Debug, Clone)]
pub(crate) struct ClientLoad {
    pub(crate) client: Client,
    pub(crate) body: Bytes,
    pub(crate) stats: Arc<Mutex<ClientStats>>,
    pub(crate) count_from: Instant,
    pub(crate) until: Instant,
}

impl ClientLoad {
    /// Sends jobs at a rate, or else with so many clients that each send one job at a time.
    pub(crate) async fn run(&self, clients: u32, rate: Option<f64>) {
        match rate {
            Some(per_s) => self.run_open(per_s).await,
            None => self.run_closed(clients).await,
        }
    }

    async fn run_closed(&self, clients: u32) {
        let mut tasks = JoinSet::new();
        for _ in 0..clients {
            let load = self.clone();
            tasks.spawn(async move {
                while Instant::now() < load.until {
                    load.send(Instant::now()).await;
                }
            });
        }
        let all = async { while tasks.join_next().await.is_some() {} };
        timeout_at(self.until + LAST_REPLIES_MAX, all).await.ok();
    }

    async fn run_open(&self, per_s: f64) {
        let permits = Arc::new(Semaphore::new(UNDER_WAY_MAX));
        let start = Instant::now();
        for number in 0_u64.. {
            let intended = start + Duration::from_secs_f64(number as f64 / per_s);
            if intended >= self.until {
                break;
            }
            sleep_until(intended).await;
            match Arc::clone(&permits).try_acquire_owned() {
                Ok(permit) => {
                    let load = self.clone();
                    tokio::spawn(async move {
                        load.send(intended).await;
                        drop(permit);
                    });
                }
                Err(_) => self.count(intended, Err(NOT_SENT)),
            }
        }
        // When all permits are back, no job is under way any more.
        let all = permits.acquire_many(UNDER_WAY_MAX as u32);
        timeout_at(self.until + LAST_REPLIES_MAX, all).await.ok();
    }

    async fn send(&self, intended: Instant) {
        match self.client.post_raw("/v1/translate", self.body.clone()).await {
            Ok(_) => self.count(intended, Ok(())),
            Err(error) => self.count(intended, Err(error.code())),
        }
    }

    fn count(&self, intended: Instant, outcome: Result<(), &str>) {
        if intended < self.count_from {
            return;
        }
        match outcome {
            Ok(()) => self.stats.lock().count_done(intended.elapsed()),
            Err(code) => self.stats.lock().count_error(code),
        }
    }
}
