//! The jobs that this instance owns and that have not ended.
//!
//! Start at [`LiveJob`]: one allocation that a job's runner, the node's connection and whoever waits
//! for the job share. Nodes put words into it, the runner takes them out and says how far the job is.
//!
//! Invariant: when the runner is over, whoever waits knows; nothing waits for a job that has no runner.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use hashbrown::HashMap;
use lingua_core::job::{AttemptReport, Refusal};
use lingua_core::{Attempt, InstanceId, JobId};
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::{Notify, oneshot};

use crate::queue::Wake;
use crate::request::{AttemptRecord, JobRequest, Progress, ResultJson};

/// Tells a node that asked whether its word counted.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Somebody here waits for it.
    Caller(oneshot::Sender<Result<(), Refusal>>),
    /// Another instance has the node, and asked with this number.
    Peer { to: InstanceId, id: u64 },
}

/// Something that a job's runner is told.
#[derive(Debug)]
pub(crate) enum ToJob {
    /// A node says something, and may want to know whether it counted.
    Node(NodeReport, Option<Answer>),
    /// A node has a part of the text. In a box, because it is rare.
    Partial(Box<Partial>),
    /// The node of this attempt is gone, or its lease is.
    NodeLost(Attempt),
    /// The order of this attempt did not get to its node.
    NotSent(Attempt),
    /// Another instance has taken it over.
    NotOurs,
    /// The client does not want it any more.
    Cancel,
}

/// What a node has of a job's text so far.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) report: AttemptReport,
    pub(crate) text: Arc<str>,
}

/// What a node says about a job.
#[derive(Debug)]
pub(crate) struct NodeReport {
    pub(crate) report: AttemptReport,
    pub(crate) kind: ReportKind,
}

#[derive(Debug, Clone)]
pub(crate) enum ReportKind {
    Acked,
    Done { result: ResultJson },
    Failed { reason: String, retryable: bool },
    Refused,
    Overtaken,
}

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// It was sent to a node, or has ended.
    Sent,
    /// It has ended.
    Ended,
}

impl Until {
    pub(crate) fn is_reached(self, progress: &Progress) -> bool {
        progress.ended.is_some() || self == Self::Sent && progress.node.is_some()
    }
}

/// Why a word did not get through.
#[derive(Debug)]
pub(crate) enum Unheard {
    /// The job is over.
    Over,
    /// Too much is waiting for it already.
    Full(ToJob),
}

/// How to reach a job's runner, and how to watch it.
#[derive(Debug)]
pub(crate) struct LiveJob {
    pub(crate) request: JobRequest,
    pub(crate) accepted_ms: u64,
    inbox: Mutex<Inbox>,
    progress: Mutex<Progress>,
    /// Who handed the job in, while it waits for the end.
    client: Mutex<Option<Waker>>,
    /// Rung when the job was sent, and when it is over.
    sent: Notify,
    /// Rung when the job is over. Most wait for this only: they are not woken by every step.
    over: Notify,
    /// Whether anybody has ever waited: most jobs are worked on by who waits for them.
    is_watched: AtomicBool,
}

#[derive(Debug)]
struct Inbox {
    words: VecDeque<ToJob>,
    words_max: usize,
    /// A slot may be free.
    has_room: bool,
    is_over: bool,
    /// The runner, while it waits.
    listener: Option<Waker>,
}

/// What a runner hears.
#[derive(Debug)]
pub(crate) enum Heard {
    /// Somebody says something.
    Word(ToJob),
    /// A slot may be free.
    Room,
}

impl LiveJob {
    pub(crate) fn new(
        request: JobRequest,
        accepted_ms: u64,
        progress: Progress,
        words_max: usize,
    ) -> Self {
        let inbox = Inbox {
            words: VecDeque::new(),
            words_max,
            has_room: false,
            is_over: false,
            listener: None,
        };
        Self {
            request,
            accepted_ms,
            inbox: Mutex::new(inbox),
            progress: Mutex::new(progress),
            client: Mutex::new(None),
            sent: Notify::new(),
            over: Notify::new(),
            is_watched: AtomicBool::new(false),
        }
    }

    /// Tells the runner something.
    pub(crate) fn tell(&self, word: ToJob) -> Result<(), Unheard> {
        let mut inbox = self.inbox.lock();
        if inbox.is_over {
            return Err(Unheard::Over);
        }
        if inbox.words.len() >= inbox.words_max {
            return Err(Unheard::Full(word));
        }
        inbox.words.push_back(word);
        Self::wake(inbox);
        Ok(())
    }

    /// Tells the runner that a slot may be free.
    pub(crate) fn tell_room(&self) {
        let mut inbox = self.inbox.lock();
        inbox.has_room = true;
        Self::wake(inbox);
    }

    fn wake(mut inbox: MutexGuard<'_, Inbox>) {
        let listener = inbox.listener.take();
        drop(inbox);
        if let Some(listener) = listener {
            listener.wake();
        }
    }

    /// The next thing that the runner hears. Only the runner listens.
    pub(crate) async fn next(&self) -> Heard {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&self, context: &Context<'_>) -> Poll<Heard> {
        let mut inbox = self.inbox.lock();
        if let Some(word) = inbox.words.pop_front() {
            return Poll::Ready(Heard::Word(word));
        }
        if std::mem::take(&mut inbox.has_room) {
            return Poll::Ready(Heard::Room);
        }
        match &mut inbox.listener {
            Some(listener) => listener.clone_from(context.waker()),
            listener => *listener = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// The runner says how far the job is.
    pub(crate) fn set_progress(&self, change: impl FnOnce(&mut Progress)) {
        let mut progress = self.progress.lock();
        change(&mut progress);
        let has_ended = progress.ended.is_some();
        drop(progress);
        self.ring(has_ended);
    }

    /// The runner notes something of its tries. Nobody is woken for that.
    pub(crate) fn edit_attempts<R>(&self, edit: impl FnOnce(&mut Vec<AttemptRecord>) -> R) -> R {
        edit(&mut self.progress.lock().so_far)
    }

    /// Whoever waits said so before it looked, so it is either seen here or has seen the change.
    fn ring(&self, is_over: bool) {
        if is_over && let Some(client) = self.client.lock().take() {
            client.wake();
        }
        if self.is_watched.load(Ordering::SeqCst) {
            self.sent.notify_waiters();
            if is_over {
                self.over.notify_waiters();
            }
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress.lock().clone()
    }

    /// Waits for the end; says whether it came before the runner was over. Only one waits here, who handed the job in.
    pub(crate) async fn ended(&self) -> bool {
        poll_fn(|context| self.poll_ended(context)).await
    }

    fn poll_ended(&self, context: &Context<'_>) -> Poll<bool> {
        if self.progress.lock().ended.is_some() {
            return Poll::Ready(true);
        }
        // Before it is asked again: whatever comes later wakes.
        *self.client.lock() = Some(context.waker().clone());
        let is_over = self.inbox.lock().is_over;
        match self.progress.lock().ended.is_some() {
            true => Poll::Ready(true),
            false if is_over => Poll::Ready(false),
            false => Poll::Pending,
        }
    }

    /// Waits for a job; says whether that was reached before its runner was over.
    pub(crate) async fn reached(&self, until: Until) -> bool {
        let bell = match until {
            Until::Sent => &self.sent,
            Until::Ended => &self.over,
        };
        self.comes_to(bell, |progress| until.is_reached(progress)).await
    }

    /// Waits until the job's progress is what somebody waits for; says whether that was before its runner was over.
    pub(crate) async fn shows(&self, is_it: impl Fn(&Progress) -> bool) -> bool {
        self.comes_to(&self.sent, is_it).await
    }

    async fn comes_to(&self, bell: &Notify, is_it: impl Fn(&Progress) -> bool) -> bool {
        self.is_watched.store(true, Ordering::SeqCst);
        loop {
            let rung = bell.notified();
            // Asked first: the runner tells its progress and is over then, so an end that comes between the two
            // questions is seen by the second.
            let is_over = self.inbox.lock().is_over;
            if is_it(&self.progress.lock()) {
                return true;
            }
            if is_over {
                return false;
            }
            rung.await;
        }
    }

    /// The runner is over: gives back what it did not listen to.
    pub(crate) fn close(&self) -> VecDeque<ToJob> {
        let mut inbox = self.inbox.lock();
        inbox.is_over = true;
        let unheard = std::mem::take(&mut inbox.words);
        drop(inbox);
        self.ring(true);
        unheard
    }
}

impl Wake for LiveJob {
    fn wake(&self) {
        self.tell_room();
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct LiveJobs {
    by_id: RwLock<HashMap<JobId, Arc<LiveJob>>>,
}

impl LiveJobs {
    pub(crate) fn insert(&self, id: JobId, job: Arc<LiveJob>) {
        self.by_id.write().insert(id, job);
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

    /// Their ids, in order.
    pub(crate) fn ids(&self) -> Vec<JobId> {
        let mut ids: Vec<JobId> = self.by_id.read().keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Tells a job that its node or its lease is gone; says whether it runs here. If its inbox is full it has
    /// much to hear, and the clean-up will say this again.
    pub(crate) fn lost(&self, id: JobId, attempt: Attempt) -> bool {
        let by_id = self.by_id.read();
        let job = by_id.get(&id);
        if let Some(job) = job {
            job.tell(ToJob::NodeLost(attempt)).ok();
        }
        job.is_some()
    }
}

#[cfg(test)]
mod tests {
    use lingua_core::job::{JobMachine, JobSpec, Payload};

    use super::*;

    fn live(words_max: usize) -> LiveJob {
        let spec = JobSpec::new("zh:en".parse().unwrap(), Payload::Absent);
        let request = JobRequest::new(JobId::new(1), spec);
        let progress = Progress::at(JobMachine::new().stage());
        LiveJob::new(request, 0, progress, words_max)
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_before_the_wait_is_not_lost() {
        let live = live(2);
        live.wake();
        assert!(matches!(live.next().await, Heard::Room));
        live.tell(ToJob::Cancel).unwrap();
        live.wake();
        assert!(matches!(live.next().await, Heard::Word(ToJob::Cancel)), "words go first");
        assert!(matches!(live.next().await, Heard::Room));
    }

    #[tokio::test(start_paused = true)]
    async fn an_inbox_is_bounded_and_closes() {
        let live = live(2);
        live.tell(ToJob::Cancel).unwrap();
        live.tell(ToJob::Cancel).unwrap();
        assert!(matches!(live.tell(ToJob::Cancel), Err(Unheard::Full(ToJob::Cancel))));
        assert_eq!(live.close().len(), 2, "what was not heard is given back");
        assert!(matches!(live.tell(ToJob::Cancel), Err(Unheard::Over)));
        assert!(!live.reached(Until::Ended).await, "nobody waits for a runner that is over");
    }
}
