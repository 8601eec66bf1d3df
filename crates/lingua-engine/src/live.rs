//! The jobs that this instance owns and that have not ended.

use std::sync::Arc;

use hashbrown::HashMap;
use lingua_core::job::{Refusal, Report};
use lingua_core::{Attempt, JobId};
use parking_lot::RwLock;
use tokio::sync::{mpsc, oneshot, watch};

use crate::request::{JobRequest, Progress};

/// Tells a node that asked whether its word counted.
pub(crate) type Answer = oneshot::Sender<Result<(), Refusal>>;

/// Something that a job's runner is told.
#[derive(Debug)]
pub(crate) enum ToJob {
    /// A node says something, and may want to know whether it counted. In a box, because a channel
    /// makes room for 32 messages at once, and every job has a channel.
    Node(Box<NodeWord>, Option<Answer>),
    /// A node has a part of the text. In a box for the same reason.
    Partial(Box<Partial>),
    /// The node of this attempt is gone, or its lease is.
    NodeLost(Attempt),
    /// The client does not want it any more.
    Cancel,
}

/// What a node has of a job's text so far.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) report: Report,
    pub(crate) text: Arc<str>,
}

/// What a node says about a job.
#[derive(Debug)]
pub(crate) struct NodeWord {
    pub(crate) report: Report,
    pub(crate) said: Said,
}

#[derive(Debug)]
pub(crate) enum Said {
    Acked,
    Done { result: String },
    Failed { reason: String, retryable: bool },
    Refused,
}

/// How to reach a job's runner, and how to watch it.
#[derive(Debug, Clone)]
pub(crate) struct LiveJob {
    pub(crate) inbox: mpsc::Sender<ToJob>,
    pub(crate) progress: watch::Receiver<Progress>,
    pub(crate) request: Arc<JobRequest>,
    pub(crate) accepted_ms: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct LiveJobs {
    by_id: RwLock<HashMap<JobId, LiveJob>>,
}

impl LiveJobs {
    pub(crate) fn insert(&self, id: JobId, job: LiveJob) {
        self.by_id.write().insert(id, job);
    }

    pub(crate) fn remove(&self, id: JobId) {
        self.by_id.write().remove(&id);
    }

    pub(crate) fn get(&self, id: JobId) -> Option<LiveJob> {
        self.by_id.read().get(&id).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.read().len()
    }

    /// Tells a job that its node or its lease is gone. If its inbox is full it has much to hear, and
    /// the clean-up will say this again.
    pub(crate) fn lost(&self, id: JobId, attempt: Attempt) {
        if let Some(job) = self.by_id.read().get(&id) {
            job.inbox.try_send(ToJob::NodeLost(attempt)).ok();
        }
    }
}
