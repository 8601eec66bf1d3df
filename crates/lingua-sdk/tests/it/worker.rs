//! A node whose jobs end when the test says so.
//!
//! Start at [`start`].

use std::time::Duration;

use lingua_core::NodeId;
use lingua_sdk::NodeRunError;
use lingua_sdk::{Context, Failure, Handler, Job, Node, NodeOptions, Output, Stats};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::scheduler::{Peer, Scheduler};

/// Hands every job to the test and waits for its outcome.
struct ManualHandler(mpsc::Sender<Work>);

/// A job that the test ends.
pub(crate) struct Work {
    pub(crate) job: Job,
    pub(crate) context: Context,
    outcome: oneshot::Sender<Result<Output, Failure>>,
}

impl Work {
    pub(crate) fn end(self, outcome: Result<Output, Failure>) {
        self.outcome.send(outcome).expect("the handler waits");
    }

    /// Waits until the handler is dropped.
    pub(crate) async fn dropped(mut self) {
        self.outcome.closed().await;
    }
}

impl Handler for ManualHandler {
    async fn handle(&self, job: Job, context: Context) -> Result<Output, Failure> {
        let (outcome, ended) = oneshot::channel();
        self.0.send(Work { job, context, outcome }).await.expect("the test listens");
        ended.await.expect("the test has dropped the job: a panic on purpose")
    }
}

/// A node that runs.
pub(crate) struct Running {
    pub(crate) work: mpsc::Receiver<Work>,
    pub(crate) stats: Stats,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), NodeRunError>>,
}

impl Running {
    /// The next job that a handler was started with.
    pub(crate) async fn work(&mut self) -> Work {
        self.work.recv().await.expect("the node runs")
    }

    /// Asks the node to stop.
    pub(crate) fn stop(&mut self) {
        self.stop.take().expect("once").send(()).expect("the node runs");
    }

    /// How the node ended.
    pub(crate) async fn ended(self) -> Result<(), NodeRunError> {
        self.task.await.unwrap()
    }
}

/// Options of a node that does not wait long for anything.
pub(crate) fn options(scheduler: &Scheduler) -> NodeOptions {
    let langs = ["zh", "en"];
    NodeOptions::new(scheduler.url())
        .node_id(NodeId::new("node-1").unwrap())
        .languages(&langs, &langs, &langs)
        .slots(2)
        .backoff(Duration::from_millis(1), Duration::from_millis(5))
        .seed(7)
}

/// Starts a node.
pub(crate) fn start(options: NodeOptions) -> Running {
    let (started, work) = mpsc::channel(64);
    let node = Node::new(options, ManualHandler(started));
    let stats = node.stats();
    let (stop, asked) = oneshot::channel::<()>();
    let task = tokio::spawn(node.run(async {
        // A test that ends without asking the node to stop just drops it.
        if asked.await.is_err() {
            std::future::pending::<()>().await;
        }
    }));
    Running { work, stats, stop: Some(stop), task }
}

/// A scheduler and a node with these options that is registered there.
pub(crate) async fn connected(
    change: impl FnOnce(NodeOptions) -> NodeOptions,
) -> (Scheduler, Running, Peer) {
    let scheduler = Scheduler::start().await;
    let node = start(change(options(&scheduler)));
    let peer = scheduler.accept_registered(1).await;
    (scheduler, node, peer)
}
