//! The demo's scheduler, inside this process.
//!
//! Start at [`DemoScheduler::start`]. It runs as `lingua serve` does, on a thread of its own, so
//! that the demo's nodes and clients do not delay it.

use std::thread;

use anyhow::{Context, bail};
use tokio::sync::oneshot;

use crate::config::Config;
use crate::serve;

#[derive(Debug)]
pub(crate) struct DemoScheduler {
    pub(crate) url: String,
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<anyhow::Result<()>>,
}

impl DemoScheduler {
    /// Starts a scheduler and waits until it listens.
    pub(crate) async fn start(config: Config) -> anyhow::Result<Self> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (listening, address) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let run = move || {
            let stop = async { drop(stopped.await) };
            serve::runtime(config.server.threads)?.block_on(serve::serve(config, stop, |address| {
                listening.send(address).ok();
            }))
        };
        thread::Builder::new()
            .name("scheduler".to_owned())
            .spawn(|| end.send(run()).ok())
            .context("cannot start a thread")?;
        match address.await {
            Ok(address) => Ok(Self { url: format!("http://{address}"), stop, ended }),
            Err(_) => {
                until_end(ended).await?;
                bail!("the scheduler ended before it listened")
            }
        }
    }

    /// Stops it and waits for its end.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        until_end(self.ended).await
    }
}

async fn until_end(ended: oneshot::Receiver<anyhow::Result<()>>) -> anyhow::Result<()> {
    ended.await.context("the scheduler's thread panicked")?
}
