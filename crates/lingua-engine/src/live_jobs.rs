//! The jobs that this instance runs and that have not ended.
//!
//! Start at [`LiveJob`]: one allocation that a job's runner, the connections of nodes and the
//! clients that wait for the job share. Everybody sends messages to it; the runner receives them
//! and publishes the job's progress.
//!
//! Invariant: when the runner has stopped, all tasks that wait for the job are woken; no task
//! waits for a job without a runner.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use lingua_core::job::{AttemptReport, Refusal};
use lingua_core::{Attempt, InstanceId, JobId, NodeId};
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};

use crate::request::{AttemptRecord, JobOutput, JobRequest, Progress};

/// Whether a node's report counted.
pub(crate) type ReportVerdict = Result<(), Refusal>;

/// Who wants to know the verdict on a report.
#[derive(Debug)]
pub(crate) enum VerdictTo {
    /// A request that waits here.
    Caller(oneshot::Sender<ReportVerdict>),
    /// The instance that the node is connected to; it waits for this number.
    Peer { to: InstanceId, id: u64 },
}

/// A message to a job's runner.
#[derive(Debug)]
pub(crate) enum JobMessage {
    Report(NodeReport, Option<VerdictTo>),
    /// In a box, because it is rare.
    Partial(Box<PartialText>),
    /// The node of this attempt is gone, or its lease is.
    NodeLost(Attempt, Option<NodeId>),
    /// The assignment of this attempt did not get to its node.
    NotSent(Attempt),
    /// Another instance has taken the job over.
    NotOwner,
    Cancel,
    /// A slot may be free, or there is more audio. It takes no room in the inbox.
    Wake,
}

/// The text that a node has recognised so far.
#[derive(Debug)]
pub(crate) struct PartialText {
    pub(crate) report: AttemptReport,
    pub(crate) text: Arc<str>,
}

/// What a node reports about an attempt.
#[derive(Debug, Clone)]
pub(crate) struct NodeReport {
    pub(crate) report: AttemptReport,
    pub(crate) kind: ReportKind,
}

impl NodeReport {
    /// Whether the node has nothing more to report about the attempt.
    pub(crate) fn is_last(&self) -> bool {
        !matches!(self.kind, ReportKind::Acked)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReportKind {
    Acked,
    Done {
        output: JobOutput,
    },
    Failed {
        reason: String,
        retryable: bool,
    },
    /// The node had no free slot.
    Refused,
    /// The node has seen a newer fence.
    Overtaken,
}

/// How far a job must be for a waiting client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Milestone {
    /// It was sent to a node, or has ended.
    Sent,
    Ended,
}

impl Milestone {
    pub(crate) fn is_reached(self, progress: &Progress) -> bool {
        progress.ended.is_some() || self == Self::Sent && progress.node.is_some()
    }
}

/// Why a message did not get into a job's inbox.
#[derive(Debug)]
pub(crate) enum InboxError {
    /// The job has ended.
    Closed,
    /// Too many messages wait already.
    Full(JobMessage),
}

/// A job that runs here.
#[derive(Debug)]
pub(crate) struct LiveJob {
    pub(crate) request: JobRequest,
    pub(crate) accepted_ms: u64,
    /// Most messages in the inbox.
    inbox_max: usize,
    inbox: Mutex<JobInbox>,
    /// Notified for the runner.
    arrived: Notify,
    progress: Mutex<Progress>,
    /// Notified with every progress.
    changed: Notify,
    /// Notified once, at the end: most clients wait for nothing else.
    ended: Notify,
}

#[derive(Debug, Default)]
struct JobInbox {
    messages: VecDeque<JobMessage>,
    is_woken: bool,
    is_closed: bool,
}

impl JobInbox {
    fn take(&mut self) -> Option<JobMessage> {
        let wake = || std::mem::take(&mut self.is_woken).then_some(JobMessage::Wake);
        self.messages.pop_front().or_else(wake)
    }
}

impl LiveJob {
    pub(crate) fn new(
        request: JobRequest,
        accepted_ms: u64,
        progress: Progress,
        inbox_max: usize,
    ) -> Self {
        Self {
            request,
            accepted_ms,
            inbox_max,
            inbox: Mutex::default(),
            arrived: Notify::new(),
            progress: Mutex::new(progress),
            changed: Notify::new(),
            ended: Notify::new(),
        }
    }

    /// Puts a message into the inbox.
    pub(crate) fn send(&self, message: JobMessage) -> Result<(), InboxError> {
        let mut inbox = self.inbox.lock();
        if inbox.is_closed {
            return Err(InboxError::Closed);
        }
        if inbox.messages.len() >= self.inbox_max {
            return Err(InboxError::Full(message));
        }
        inbox.messages.push_back(message);
        drop(inbox);
        self.arrived.notify_one();
        Ok(())
    }

    /// Tells the runner that a slot may be free, or that there is more audio. A wake that comes
    /// while the runner is busy is not lost.
    pub(crate) fn wake(&self) {
        self.inbox.lock().is_woken = true;
        self.arrived.notify_one();
    }

    /// The next message. Only the runner calls this.
    pub(crate) async fn next(&self) -> JobMessage {
        loop {
            if let Some(message) = self.inbox.lock().take() {
                return message;
            }
            self.arrived.notified().await;
        }
    }

    /// Publishes the job's progress. Only the runner calls this.
    pub(crate) fn set_progress(&self, change: impl FnOnce(&mut Progress)) {
        let mut progress = self.progress.lock();
        change(&mut progress);
        let has_ended = progress.ended.is_some();
        drop(progress);
        self.notify(has_ended);
    }

    /// Changes the records of the job's attempts without waking anybody.
    pub(crate) fn edit_attempts<R>(&self, edit: impl FnOnce(&mut Vec<AttemptRecord>) -> R) -> R {
        edit(&mut self.progress.lock().so_far)
    }

    fn notify(&self, has_ended: bool) {
        self.changed.notify_waiters();
        if has_ended {
            self.ended.notify_waiters();
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress.lock().clone()
    }

    /// Waits for a milestone; says whether it was reached before the runner stopped.
    pub(crate) async fn wait_reached(&self, milestone: Milestone) -> bool {
        let notify = match milestone {
            Milestone::Sent => &self.changed,
            Milestone::Ended => &self.ended,
        };
        self.wait(notify, |progress| milestone.is_reached(progress)).await
    }

    /// Waits until the progress is as wanted; says whether that was before the runner stopped.
    pub(crate) async fn wait_until(&self, is_wanted: impl Fn(&Progress) -> bool) -> bool {
        self.wait(&self.changed, is_wanted).await
    }

    async fn wait(&self, notify: &Notify, is_wanted: impl Fn(&Progress) -> bool) -> bool {
        loop {
            // Made before the look: a change that comes after the look wakes it.
            let notified = notify.notified();
            // Read first: the runner publishes its progress before it closes the inbox, so an end
            // that comes between the two looks is seen by the second.
            let is_closed = self.inbox.lock().is_closed;
            if is_wanted(&self.progress.lock()) {
                return true;
            }
            if is_closed {
                return false;
            }
            notified.await;
        }
    }

    /// Closes the inbox when the runner stops; gives back the messages that it did not receive.
    pub(crate) fn close(&self) -> VecDeque<JobMessage> {
        let mut inbox = self.inbox.lock();
        inbox.is_closed = true;
        let unread = std::mem::take(&mut inbox.messages);
        drop(inbox);
        self.notify(true);
        unread
    }
}

/// All jobs that run here, by id.
#[derive(Debug, Default)]
pub(crate) struct LiveJobs {
    by_id: RwLock<HashMap<JobId, Arc<LiveJob>>>,
}

impl LiveJobs {
    pub(crate) fn insert(&self, job: Arc<LiveJob>) {
        self.by_id.write().insert(job.request.id, job);
    }

    pub(crate) fn remove(&self, id: JobId) {
        self.by_id.write().remove(&id);
    }

    pub(crate) fn get(&self, id: JobId) -> Option<Arc<LiveJob>> {
        self.by_id.read().get(&id).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.read().len()
    }

    /// The ids, in order.
    pub(crate) fn ids(&self) -> Vec<JobId> {
        let mut ids: Vec<JobId> = self.by_id.read().keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Tells a job that its node or its lease is gone; says whether the job runs here. If its inbox
    /// is full, the clean-up will tell it again.
    pub(crate) fn send_node_lost(
        &self,
        id: JobId,
        attempt: Attempt,
        node: Option<&NodeId>,
    ) -> bool {
        let job = self.get(id);
        if let Some(job) = &job {
            job.send(JobMessage::NodeLost(attempt, node.cloned())).ok();
        }
        job.is_some()
    }
}

#[cfg(test)]
mod tests {
    use lingua_core::job::{JobMachine, JobSpec, Payload};

    use super::*;

    impl LiveJob {
        pub(crate) fn at_start(inbox_max: usize) -> Self {
            let spec = JobSpec::new("zh:en".parse().unwrap(), Payload::Absent);
            let progress = Progress::at(JobMachine::new().stage());
            Self::new(JobRequest::new(JobId::new(1), spec), 0, progress, inbox_max)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_before_the_wait_is_not_lost() {
        let live = LiveJob::at_start(2);
        live.wake();
        assert!(matches!(live.next().await, JobMessage::Wake));
        live.send(JobMessage::Cancel).unwrap();
        live.wake();
        let first = live.next().await;
        assert!(matches!(first, JobMessage::Cancel), "messages go first");
        assert!(matches!(live.next().await, JobMessage::Wake));
    }

    #[tokio::test(start_paused = true)]
    async fn an_inbox_is_bounded_and_closes() {
        let live = LiveJob::at_start(2);
        live.send(JobMessage::Cancel).unwrap();
        live.send(JobMessage::Cancel).unwrap();
        let third = live.send(JobMessage::Cancel);
        assert!(matches!(third, Err(InboxError::Full(JobMessage::Cancel))));
        assert_eq!(live.close().len(), 2, "unread messages are given back");
        assert!(matches!(live.send(JobMessage::Cancel), Err(InboxError::Closed)));
        assert!(!live.wait_reached(Milestone::Ended).await, "nobody waits for a stopped runner");
    }
}
