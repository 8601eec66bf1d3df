//! The demo's scheduler, inside this process.
//!
//! Start at [`DemoScheduler::start`]. It runs as `lingua serve` does, on a thread of its own, so
//! that the demo's nodes and clients do not delay it.

use std::net::SocketAddr;
use std::thread;

use anyhow::{Context, anyhow};
use tokio::sync::oneshot;

use crate::config::Config;
use crate::serve;

#[derive(Debug)]
pub(crate) struct DemoScheduler {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: thread::JoinHandle<anyhow::Result<()>>,
}

impl DemoScheduler {
    /// Starts a scheduler and waits until it listens.
    pub(crate) async fn start(config: Config) -> anyhow::Result<Self> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (listening, address) = oneshot::channel();
        let scheduler = move || {
            let stop = async { drop(stopped.await) };
            serve::runtime(config.server.threads)?.block_on(serve::serve(config, stop, |address| {
                listening.send(address).ok();
            }))
        };
        let thread = thread::Builder::new()
            .name("scheduler".to_owned())
            .spawn(scheduler)
            .context("cannot start a thread")?;
        match address.await {
            Ok(address) => Ok(Self { address, stop, thread }),
            Err(_) => Err(join(thread)
                .err()
                .unwrap_or_else(|| anyhow!("the scheduler ended before it listened"))),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops it and waits for its end.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        let thread = self.thread;
        tokio::task::spawn_blocking(move || join(thread)).await.context("cannot wait for it")?
    }
}

fn join(thread: thread::JoinHandle<anyhow::Result<()>>) -> anyhow::Result<()> {
    thread.join().map_err(|_| anyhow!("the scheduler's thread panicked"))?
}
