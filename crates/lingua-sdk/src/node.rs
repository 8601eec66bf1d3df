//! A node: a machine that does jobs for a scheduler.
//!
//! | file | what |
//! |---|---|
//! | `options.rs` | [`NodeOptions`]: what it says of itself |
//! | `handler.rs` | [`Handler`]: what its author writes; [`Context`]: cancellation, partial texts |
//! | `job.rs` | [`Job`], [`Output`], [`Failure`] |
//! | `worker.rs` | the life of a node |
//! | `frames.rs`, `jobs.rs` | what follows from each message; handlers at work |
//! | `stream.rs` | [`SoundStream`]: audio that comes while it is being spoken |
//! | `desk.rs` | the rules for taking jobs and keeping results |
//! | `link.rs`, `report.rs` | one connection; frames about jobs |
//! | `backoff.rs`, `stop.rs`, `stats.rs`, `error.rs` | the rest |
//!
//! Start at [`Node::run`]. A node registers, says regularly that it is alive, and takes jobs up to
//! its slots. When the connection breaks, it connects again under the same name; jobs go on in the
//! meantime, and what came of them is kept until the scheduler has confirmed it.
//!
//! Invariant: a node does not fight. When another process takes its name, it stops with an error.

use std::future::Future;
use std::sync::Arc;

mod backoff;
mod desk;
mod error;
mod frames;
mod handler;
mod job;
mod jobs;
mod link;
mod options;
mod report;
mod stats;
mod stop;
mod stream;
mod worker;

pub use error::Error;
pub use handler::{Context, Handler};
pub use job::{Binding, Failure, Job, Output, Sound};
pub use options::NodeOptions;
pub use stats::Stats;
pub use stream::SoundStream;

use stop::Stop;
use worker::Worker;

/// A node that is not running yet.
#[derive(Debug)]
pub struct Node<H> {
    options: NodeOptions,
    handler: Arc<H>,
    stats: Stats,
}

impl<H: Handler> Node<H> {
    /// A node that does its jobs with this handler.
    pub fn new(options: NodeOptions, handler: H) -> Self {
        Self { options, handler: Arc::new(handler), stats: Stats::default() }
    }

    /// Counts of what it does, to be watched while it runs.
    pub fn stats(&self) -> Stats {
        self.stats.clone()
    }

    /// Works until `shutdown` resolves; then takes nothing new, finishes what it has within its
    /// grace, signs off and returns. It returns an error only where another try would not help.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        self.options.check()?;
        let mut stop = Stop::new(shutdown, self.options.grace);
        let worker = Worker::new(self.options, self.handler, self.stats);
        Box::pin(worker.run(&mut stop)).await
    }
}
