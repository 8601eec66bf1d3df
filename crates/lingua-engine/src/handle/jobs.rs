//! What clients call.

use std::sync::Arc;

use lingua_core::JobId;
use lingua_core::job::{Event, Job, JobState};
use lingua_store::Store;
use lingua_store::contract::{CreateReply, JobFilter, JobRecord, NewJob};
use tokio::sync::{mpsc, watch};

use super::Handle;
use crate::clock::Timer;
use crate::error::SubmitError;
use crate::live::{LiveJob, ToJob};
use crate::request::{Ended, JobRequest, JobView, Progress};
use crate::runner::Runner;

/// How often the record of a job that runs elsewhere is looked at by who waits for it.
const LOOK_AGAIN_MS: u64 = 50;

/// Records read from the store at a time.
const PAGE: usize = 500;

/// A job that was accepted, now or by an earlier request with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// Its id.
    pub id: JobId,
    /// Whether it was there already.
    pub existed: bool,
}

/// What waiting for a job came to.
#[derive(Debug, Clone)]
pub enum Waited {
    /// It stands there.
    Reached(JobView),
    /// It has not got there in time.
    NotYet(JobView),
    /// There is no such job.
    NoSuchJob,
}

impl<S: Store, T: Timer> Handle<S, T> {
    /// Accepts a job: from here on it ends exactly once, and is known by its id. Waits until
    /// [`Service::run`](crate::Service::run) has taken up what a former life left behind.
    pub async fn submit(&self, request: JobRequest) -> Result<Submitted, SubmitError> {
        let shared = &self.shared;
        if shared.is_stopping() {
            return Err(SubmitError::Stopping);
        }
        let limit = shared.options.bounds.live_jobs_max;
        if shared.live.len() >= limit {
            return Err(SubmitError::Overloaded { limit });
        }
        shared.recovered().await;
        let id = request.id;
        let accepted_ms = shared.now_ms();
        let new = NewJob {
            id,
            owner: shared.options.instance.clone(),
            spec: Arc::clone(&request.spec),
            deadline_ms: request.deadline_ms.map(|ms| accepted_ms.saturating_add(ms)),
            recoverable: request.is_recoverable(),
        };
        match shared.timed("create_job", shared.store.create_job(new)).await? {
            CreateReply::Created => self.start(Arc::new(request), Job::new(), accepted_ms, None),
            CreateReply::Exists(_) => return Ok(Submitted { id, existed: true }),
        }
        Ok(Submitted { id, existed: false })
    }

    /// Starts a job's runner; with something that has happened to the job before, if it was taken
    /// over.
    pub(crate) fn start(
        &self,
        request: Arc<JobRequest>,
        job: Job,
        accepted_ms: u64,
        before: Option<Event>,
    ) {
        let shared = &self.shared;
        let (inbox, messages) = mpsc::channel(shared.options.bounds.job_inbox_max);
        let stage = job.stage();
        let progress = Progress {
            state: stage.state,
            attempt: stage.attempt,
            node: None,
            tries: vec![],
            ended: None,
            partial: None,
        };
        let (sender, progress) = watch::channel(progress);
        let live = LiveJob { inbox, progress, request: Arc::clone(&request), accepted_ms };
        shared.live.insert(request.id, live);
        let runner = Runner::new(Arc::clone(shared), request, job, messages, sender, accepted_ms);
        tokio::spawn(runner.run(before));
    }

    /// Waits until the job was sent to a node, or has ended.
    pub async fn wait_sent(&self, id: JobId, wait_ms: u64) -> Result<Waited, SubmitError> {
        self.wait(id, wait_ms, |progress| progress.node.is_some() || progress.ended.is_some()).await
    }

    /// Waits until the job has ended.
    pub async fn wait_ended(&self, id: JobId, wait_ms: u64) -> Result<Waited, SubmitError> {
        self.wait(id, wait_ms, |progress| progress.ended.is_some()).await
    }

    async fn wait(
        &self,
        id: JobId,
        wait_ms: u64,
        until: impl Fn(&Progress) -> bool + Send,
    ) -> Result<Waited, SubmitError> {
        if let Some(mut live) = self.shared.live.get(id) {
            let timer = self.shared.timer.clone();
            let reached = tokio::select! {
                biased;
                reached = live.progress.wait_for(|progress| until(progress)) => reached.is_ok(),
                () = timer.sleep(wait_ms) => false,
            };
            let progress = live.progress.borrow().clone();
            if reached || !progress.state.is_terminal() && self.shared.live.get(id).is_some() {
                let view = self.view_of(id, &live, progress);
                return Ok(if reached { Waited::Reached(view) } else { Waited::NotYet(view) });
            }
        }
        self.wait_elsewhere(id, wait_ms, until).await
    }

    /// Waits for a job that does not run here by looking at its record from time to time.
    async fn wait_elsewhere(
        &self,
        id: JobId,
        wait_ms: u64,
        until: impl Fn(&Progress) -> bool + Send,
    ) -> Result<Waited, SubmitError> {
        let give_up_ms = self.shared.now_ms().saturating_add(wait_ms);
        loop {
            let Some(record) = self.shared.store.job(id).await? else {
                return Ok(Waited::NoSuchJob);
            };
            let view = view_of_record(record);
            if until(&view.progress) {
                return Ok(Waited::Reached(view));
            }
            let left_ms = give_up_ms.saturating_sub(self.shared.now_ms());
            if left_ms == 0 {
                return Ok(Waited::NotYet(view));
            }
            self.shared.timer.sleep(left_ms.min(LOOK_AGAIN_MS)).await;
        }
    }

    /// A job as it stands.
    pub async fn job(&self, id: JobId) -> Result<Option<JobView>, SubmitError> {
        match self.wait(id, 0, |_| true).await? {
            Waited::Reached(view) | Waited::NotYet(view) => Ok(Some(view)),
            Waited::NoSuchJob => Ok(None),
        }
    }

    /// Jobs, the newest first. Only jobs that got their id from an idempotency key can stand out of
    /// turn: beyond `limit`, ids decide who is listed.
    pub async fn jobs(
        &self,
        state: Option<JobState>,
        limit: usize,
    ) -> Result<Vec<JobView>, SubmitError> {
        let mut views = vec![];
        let mut after = None;
        while views.len() < limit {
            let filter =
                JobFilter { after, limit: PAGE, newest_first: true, ..JobFilter::default() };
            let page = self.shared.store.jobs(filter).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            // What is live is ahead of its record: only some of its steps are written.
            let page = page.into_iter().map(|record| match self.shared.live.get(record.id) {
                Some(live) => self.view_of(record.id, &live, live.progress.borrow().clone()),
                None => view_of_record(record),
            });
            let wanted = page.filter(|view| state.is_none_or(|state| view.progress.state == state));
            views.extend(wanted.take(limit - views.len()));
        }
        views.sort_by_key(|view| std::cmp::Reverse(view.accepted_ms));
        Ok(views)
    }

    /// Calls a job off and waits until it has ended, one way or the other.
    pub async fn cancel(&self, id: JobId) -> Result<Option<JobView>, SubmitError> {
        if let Some(live) = self.shared.live.get(id) {
            live.inbox.send(ToJob::Cancel).await.ok();
            return match self.wait_ended(id, self.shared.options.times.ack_ms).await? {
                Waited::Reached(view) | Waited::NotYet(view) => Ok(Some(view)),
                Waited::NoSuchJob => Ok(None),
            };
        }
        self.job(id).await
    }

    fn view_of(&self, id: JobId, live: &LiveJob, progress: Progress) -> JobView {
        JobView {
            id,
            owner: self.shared.options.instance.clone(),
            progress,
            request: Some(Arc::clone(&live.request)),
            spec: Arc::clone(&live.request.spec),
            accepted_ms: live.accepted_ms,
            updated_ms: self.shared.now_ms(),
        }
    }
}

fn view_of_record(record: JobRecord) -> JobView {
    let ended: Option<Ended> =
        record.outcome.as_ref().and_then(|outcome| serde_json::from_slice(outcome).ok());
    let tries = ended.as_ref().map(|ended| ended.tries.clone()).unwrap_or_default();
    let ended = match (ended, record.stage.state.is_terminal()) {
        (Some(ended), _) => Some(Arc::new(ended)),
        // Ended by an instance that could not say how.
        (None, true) => Some(Arc::new(Ended {
            error: None,
            detail: None,
            result: None,
            tries: vec![],
            accepted_ms: record.created_ms,
            ended_ms: record.updated_ms,
            waited_ms: 0,
        })),
        (None, false) => None,
    };
    let progress = Progress {
        state: record.stage.state,
        attempt: record.stage.attempt,
        node: record.grant.map(|grant| grant.node),
        tries,
        ended,
        partial: None,
    };
    JobView {
        id: record.id,
        owner: record.owner,
        progress,
        request: None,
        spec: record.spec,
        accepted_ms: record.created_ms,
        updated_ms: record.updated_ms,
    }
}
