//! A node: a machine that runs jobs for a scheduler.
//!
//! | file | what it holds |
//! |---|---|
//! | `options.rs` | [`NodeOptions`]: languages, slots, address, timing |
//! | `handler.rs` | [`Handler`]: what the author writes; [`Context`]: cancellation, partial texts |
//! | `job.rs` | [`Job`], [`Output`], [`Failure`] |
//! | `worker.rs` | the loop: connect, serve, connect again |
//! | `messages.rs` | what the node does on each message of the scheduler |
//! | `tasks.rs` | the tasks in which handlers run |
//! | `stream.rs` | [`SoundStream`]: audio that arrives while it is being spoken |
//! | `admission.rs` | which jobs are accepted, and which results wait for confirmation |
//! | `connection.rs` | one WebSocket connection of a registered node |
//! | `report.rs` | messages about jobs |
//! | `backoff.rs`, `stop.rs`, `stats.rs`, `error.rs` | delays, shutdown, counters, errors |
//!
//! Start at [`Node::run`]. A node registers, sends heartbeats, and accepts jobs up to its slots.
//! When the connection breaks, the node connects again under the same id. Jobs go on meanwhile, and
//! their results are kept until the scheduler has confirmed them.
//!
//! Invariant: when another process takes over its id, a node stops with an error and does not
//! register again.

use std::future::Future;
use std::sync::Arc;

mod admission;
mod backoff;
mod connection;
mod error;
mod handler;
mod job;
mod messages;
mod options;
mod report;
mod stats;
mod stop;
mod stream;
mod tasks;
mod worker;

pub use error::NodeRunError;
pub use handler::{Context, Handler};
pub use job::{Binding, Failure, Job, Output, Sound};
pub use options::NodeOptions;
pub use stats::Stats;
pub use stream::SoundStream;

use stop::StopSignal;
use worker::Worker;

/// A node that is not running yet.
#[derive(Debug)]
pub struct Node<H> {
    options: NodeOptions,
    handler: Arc<H>,
    stats: Stats,
}

impl<H: Handler> Node<H> {
    /// A node that runs its jobs with this handler.
    pub fn new(options: NodeOptions, handler: H) -> Self {
        Self { options, handler: Arc::new(handler), stats: Stats::default() }
    }

    /// Counters of this node, to be read while it runs.
    pub fn stats(&self) -> Stats {
        self.stats.clone()
    }

    /// Runs until `shutdown` resolves. Then the node accepts no more jobs, finishes those that run
    /// within its grace, says `bye` and returns. It returns an error only if another try to connect
    /// would not help.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), NodeRunError> {
        self.options.check()?;
        let mut stop = StopSignal::new(shutdown, self.options.grace);
        let worker = Worker::new(self.options, self.handler, self.stats);
        Box::pin(worker.run(&mut stop)).await
    }
}
