//! What clients call.

use std::sync::Arc;

use lingua_core::JobId;
use lingua_core::job::{Event, Job, JobState};
use lingua_core::planted::{self, Bug};
use lingua_store::Store;
use lingua_store::contract::{CreateReply, JobFilter, JobRecord};
use tokio::sync::mpsc;

use super::Handle;
use crate::board;
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
        // Not only the store knows whether it is there: it may have forgotten a job that runs.
        if shared.live.get(id).is_some() {
            return Ok(Submitted { id, existed: true });
        }
        let Some(handing_in) = shared.amends.hand_in(id) else {
            return Ok(Submitted { id, existed: true });
        };
        let new = shared.new_job(&request, accepted_ms);
        let created = shared.timed("create_job", shared.store.create_job(new)).await?;
        handing_in.settled();
        if let CreateReply::Exists(record) = created {
            self.take_up(record, request);
            return Ok(Submitted { id, existed: true });
        }
        self.start(Arc::new(request), Job::new(), accepted_ms, None);
        Ok(Submitted { id, existed: false })
    }

    /// A job that is there already may be one that nobody runs, because the answer to the first request was lost.
    fn take_up(&self, record: JobRecord, request: JobRequest) {
        let shared = &self.shared;
        let is_ours = record.owner == shared.options.instance && shared.is_nobodys(record.id);
        match record.stage.state {
            _ if !is_ours || planted::is(Bug::NobodyLooks) => {}
            JobState::New => {
                let job = Job::recovered(record.stage, None);
                self.start(Arc::new(request), job, shared.now_ms(), None);
            }
            state if !state.is_terminal() => shared.amends.want(),
            _ => {}
        }
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
        };
        let (sender, progress) = board::channel(progress);
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
        if let Some(live) = self.shared.live.get(id) {
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

    /// Jobs in the order of their ids.
    pub async fn jobs(
        &self,
        state: Option<JobState>,
        limit: usize,
    ) -> Result<Vec<JobView>, SubmitError> {
        let mut views = vec![];
        let mut after = None;
        while views.len() < limit {
            let filter = JobFilter { after, limit: PAGE, ..JobFilter::default() };
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
