//! What clients call.

use std::sync::Arc;

use lingua_core::JobId;
use lingua_core::job::{JobEvent, JobMachine, JobState};
use lingua_core::planted::{self, Bug};
use lingua_store::Store;
use lingua_store::contract::{CreateReply, JobFilter, JobRecord};

use super::Handle;
use crate::alarm::Alarm;
use crate::clock::Timer;
use crate::error::SubmitError;
use crate::job_spec_codec;
use crate::live::{LiveJob, ToJob, Until};
use crate::request::{JobEnd, JobRequest, JobStatus, Progress};
use crate::runner::{Life, Runner};
use crate::state::timed;

/// How often the record of a job that runs elsewhere is looked at by who waits for it.
const LOOK_AGAIN_MS: u64 = 50;

/// How often the record is read at once when the owner says that the job is over.
const LOOKS_AT_ONCE: u32 = 3;

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
    Reached(JobStatus),
    /// It has not got there in time.
    NotYet(JobStatus),
    /// There is no such job.
    NoSuchJob,
}

impl<S: Store, T: Timer> Handle<S, T> {
    /// Accepts a job: from here on it ends exactly once, and is known by its id. Waits until
    /// [`Service::run`](crate::Service::run) has taken up what a former life left behind.
    pub async fn submit(&self, request: JobRequest) -> Result<Submitted, SubmitError> {
        let id = request.id;
        let live = self.accept(request).await?;
        let existed = live.is_none();
        if let Some(live) = live {
            self.shared.crew(id).take_on(self.life(live, JobMachine::new(), None));
        }
        Ok(Submitted { id, existed })
    }

    /// Accepts a job and waits for its end. If the caller leaves or has waited long enough, the job goes on.
    pub async fn translate(
        &self,
        request: JobRequest,
        wait_ms: u64,
    ) -> Result<Waited, SubmitError> {
        let id = request.id;
        let Some(live) = self.accept(request).await? else {
            return Box::pin(self.wait_ended(id, wait_ms)).await;
        };
        let crew = self.shared.crew(id);
        crew.begin(self.life(Arc::clone(&live), JobMachine::new(), None));
        let mut alarm = Alarm::new(Arc::clone(&crew.alarms));
        let too_late_ms = live.accepted_ms.saturating_add(wait_ms);
        let has_ended = tokio::select! {
            biased;
            has_ended = live.ended() => Some(has_ended),
            () = alarm.at(&self.shared.timer, too_late_ms) => None,
        };
        match has_ended {
            Some(true) => Ok(Waited::Reached(self.view_of(id, &live, live.progress()))),
            // It was let go of: whoever has it now writes how it ended.
            Some(false) => Box::pin(self.wait_elsewhere(id, wait_ms, Until::Ended)).await,
            None => Ok(Waited::NotYet(self.view_of(id, &live, live.progress()))),
        }
    }

    /// Writes a job down and makes it known here; `None` if it was there already.
    async fn accept(&self, request: JobRequest) -> Result<Option<Arc<LiveJob>>, SubmitError> {
        let shared = &self.shared;
        if shared.is_stopping() {
            return Err(SubmitError::Stopping);
        }
        let limit = shared.options.bounds.live_jobs_max;
        if shared.live.len() >= limit {
            return Err(SubmitError::Overloaded { limit });
        }
        shared.recovered().await;
        let accepted_ms = shared.now_ms();
        // Not only the store knows whether it is there: it may have forgotten a job that runs.
        if shared.live.get(request.id).is_some() {
            return Ok(None);
        }
        let Some(handing_in) = shared.reconciler.begin_submit(request.id) else { return Ok(None) };
        let new = shared.new_job(&request, accepted_ms);
        let (created, _) = timed!(shared, "create_job", shared.store.create_job(new));
        let created = created?;
        handing_in.settled();
        if let CreateReply::Exists(record) = created {
            self.take_up(record, request);
            return Ok(None);
        }
        Ok(Some(self.make_known(request, &JobMachine::new(), accepted_ms)))
    }

    /// A job that is there already may be one that nobody runs, because the answer to the first request was lost.
    fn take_up(&self, record: JobRecord, request: JobRequest) {
        let shared = &self.shared;
        let is_ours = record.owner == shared.options.instance && shared.is_unowned(record.id);
        match record.stage.state {
            _ if !is_ours || planted::is(Bug::NoReconcile) => {}
            JobState::New if !shared.reconciler.has_ended(record.id) => {
                let job = JobMachine::recovered(record.stage, None);
                self.start(request, job, shared.now_ms(), None);
            }
            state if !state.is_terminal() => shared.reconciler.request_scan(),
            _ => {}
        }
    }

    /// Starts a job's runner; with something that has happened to the job before, if it was taken
    /// over.
    pub(crate) fn start(
        &self,
        request: JobRequest,
        job: JobMachine,
        accepted_ms: u64,
        before: Option<JobEvent>,
    ) {
        let live = self.make_known(request, &job, accepted_ms);
        self.shared.crew(live.request.id).take_on(self.life(live, job, before));
    }

    /// The life of a job that is known here.
    fn life(&self, live: Arc<LiveJob>, job: JobMachine, before: Option<JobEvent>) -> Life {
        Runner::new(Arc::clone(&self.shared), live, job).run(before)
    }

    /// Makes a job known here.
    fn make_known(&self, request: JobRequest, job: &JobMachine, accepted_ms: u64) -> Arc<LiveJob> {
        let shared = &self.shared;
        let progress = Progress::at(job.stage());
        let words_max = shared.options.bounds.job_inbox_max;
        let id = request.id;
        let live = Arc::new(LiveJob::new(request, accepted_ms, progress, words_max));
        shared.live.insert(id, Arc::clone(&live));
        live
    }

    /// Waits until the job was sent to a node, or has ended.
    pub async fn wait_sent(&self, id: JobId, wait_ms: u64) -> Result<Waited, SubmitError> {
        self.wait(id, wait_ms, Until::Sent).await
    }

    /// Waits until the job has ended.
    pub async fn wait_ended(&self, id: JobId, wait_ms: u64) -> Result<Waited, SubmitError> {
        self.wait(id, wait_ms, Until::Ended).await
    }

    async fn wait(&self, id: JobId, wait_ms: u64, until: Until) -> Result<Waited, SubmitError> {
        if let Some(live) = self.shared.live.get(id) {
            let timer = self.shared.timer.clone();
            let reached = tokio::select! {
                biased;
                reached = live.reached(until) => reached,
                () = timer.sleep(wait_ms) => false,
            };
            let progress = live.progress();
            if reached || !progress.state.is_terminal() && self.shared.live.get(id).is_some() {
                let view = self.view_of(id, &live, progress);
                return Ok(if reached { Waited::Reached(view) } else { Waited::NotYet(view) });
            }
        }
        self.wait_elsewhere(id, wait_ms, until).await
    }

    /// Waits for a job that does not run here: its owner says when to look at its record. If nobody does, it is looked
    /// at from time to time.
    async fn wait_elsewhere(
        &self,
        id: JobId,
        wait_ms: u64,
        until: Until,
    ) -> Result<Waited, SubmitError> {
        let give_up_ms = self.shared.now_ms().saturating_add(wait_ms);
        let mut looks = 0;
        loop {
            let Some(record) = self.shared.store.job(id).await? else {
                return Ok(Waited::NoSuchJob);
            };
            let mut view = view_of_record(record);
            if until.is_reached(&view.progress) {
                return Ok(Waited::Reached(view));
            }
            let left_ms = give_up_ms.saturating_sub(self.shared.now_ms());
            let mut seen = None;
            if view.owner != self.shared.options.instance {
                seen = self.progress_elsewhere(&view.owner, id, until, left_ms).await.flatten();
            }
            if let Some(seen) = seen {
                let is_over = seen.is_over();
                seen.add_to(&mut view.progress);
                // An end is written before anybody is told of it.
                if is_over && looks < LOOKS_AT_ONCE {
                    looks += 1;
                    continue;
                }
                if until.is_reached(&view.progress) {
                    return Ok(Waited::Reached(view));
                }
            }
            let left_ms = give_up_ms.saturating_sub(self.shared.now_ms());
            if left_ms == 0 {
                return Ok(Waited::NotYet(view));
            }
            self.shared.timer.sleep(left_ms.min(LOOK_AGAIN_MS)).await;
        }
    }

    /// Waits until a job has ended or has another part of the text than this one. A job that runs elsewhere shows
    /// no parts.
    pub async fn news_of(
        &self,
        id: JobId,
        shown: Option<&Arc<str>>,
        wait_ms: u64,
    ) -> Result<Waited, SubmitError> {
        if let Some(live) = self.shared.live.get(id) {
            let is_news = |progress: &Progress| {
                let partial = progress.partial.as_ref();
                progress.ended.is_some() || partial.is_some() && partial != shown
            };
            if live.shows(is_news).await {
                return Ok(Waited::Reached(self.view_of(id, &live, live.progress())));
            }
        }
        self.wait_elsewhere(id, wait_ms, Until::Ended).await
    }

    /// More was said of what a job is about, or it is whole.
    pub fn sound_came(&self, id: JobId) {
        if let Some(live) = self.shared.live.get(id) {
            live.tell_room();
        }
    }

    /// A job as it stands.
    pub async fn job(&self, id: JobId) -> Result<Option<JobStatus>, SubmitError> {
        if let Some(live) = self.shared.live.get(id) {
            return Ok(Some(self.view_of(id, &live, live.progress())));
        }
        Ok(self.shared.store.job(id).await?.map(view_of_record))
    }

    /// Jobs, the newest first. Only jobs that got their id from an idempotency key can stand out of
    /// turn: beyond `limit`, ids decide who is listed.
    pub async fn jobs(
        &self,
        state: Option<JobState>,
        limit: usize,
    ) -> Result<Vec<JobStatus>, SubmitError> {
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
                Some(live) => self.view_of(record.id, &live, live.progress()),
                None => view_of_record(record),
            });
            let wanted = page.filter(|view| state.is_none_or(|state| view.progress.state == state));
            views.extend(wanted.take(limit - views.len()));
        }
        views.sort_by_key(|view| std::cmp::Reverse(view.accepted_ms));
        Ok(views)
    }

    /// Calls a job off and waits until it has ended, one way or the other.
    pub async fn cancel(&self, id: JobId) -> Result<Option<JobStatus>, SubmitError> {
        if let Some(live) = self.shared.live.get(id) {
            self.tell(&live, ToJob::Cancel).await;
            return match self.wait_ended(id, self.shared.options.times.ack_ms).await? {
                Waited::Reached(view) | Waited::NotYet(view) => Ok(Some(view)),
                Waited::NoSuchJob => Ok(None),
            };
        }
        let Some(view) = self.job(id).await? else { return Ok(None) };
        if view.progress.ended.is_some()
            || view.owner == self.shared.options.instance
            || !self.cancel_job_elsewhere(&view.owner, id).await
        {
            return Ok(Some(view));
        }
        match self.wait_elsewhere(id, self.shared.options.times.ack_ms, Until::Ended).await? {
            Waited::Reached(view) | Waited::NotYet(view) => Ok(Some(view)),
            Waited::NoSuchJob => Ok(None),
        }
    }

    fn view_of(&self, id: JobId, live: &LiveJob, progress: Progress) -> JobStatus {
        let ended_ms = progress.ended.as_ref().map(|ended| ended.ended_ms);
        JobStatus {
            id,
            owner: self.shared.options.instance.clone(),
            progress,
            spec: Some(Arc::clone(&live.request.spec)),
            accepted_ms: live.accepted_ms,
            updated_ms: ended_ms.unwrap_or_else(|| self.shared.now_ms()),
        }
    }
}

fn view_of_record(record: JobRecord) -> JobStatus {
    let spec = job_spec_codec::decode(&record.spec);
    let warn = |error: &_| tracing::warn!(job_id = %record.id, %error, "cannot read the record");
    let spec = spec.inspect_err(warn).ok().map(Arc::new);
    let ended: Option<JobEnd> =
        record.outcome.as_ref().and_then(|outcome| serde_json::from_slice(outcome).ok());
    let ended = match (ended, record.stage.state.is_terminal()) {
        (Some(ended), _) => Some(Arc::new(ended)),
        // Ended by an instance that could not say how.
        (None, true) => Some(Arc::new(JobEnd {
            accepted_ms: record.created_ms,
            ended_ms: record.updated_ms,
            ..JobEnd::default()
        })),
        (None, false) => None,
    };
    let node = record.grant.map(|grant| grant.node);
    let progress = Progress { node, ended, ..Progress::at(record.stage) };
    JobStatus {
        id: record.id,
        owner: record.owner,
        progress,
        spec,
        accepted_ms: record.created_ms,
        updated_ms: record.updated_ms,
    }
}
