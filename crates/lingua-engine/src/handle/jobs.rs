//! What clients call: submitting, waiting for and cancelling jobs.
//!
//! Start at [`Engine::submit`] and [`Engine::translate`].

use std::ops::ControlFlow;
use std::sync::Arc;

use lingua_core::job::{JobMachine, JobState};
use lingua_core::planted::{self, Bug};
use lingua_core::{JobId, Tenant};
use lingua_store::Store;
use lingua_store::contract::{CreateReply, JobRecord};

use crate::job_spec_codec;
use crate::live_jobs::{JobMessage, LiveJob, Milestone};
use crate::request::{JobEnd, JobRequest, JobStatus, OPEN_JOB_BYTES, Progress};
use crate::runner::{self, TakenOver};
use crate::state::timed;
use crate::usage_limit::Usage;
use crate::{Engine, SubmitError, Timer};

#[cfg(test)]
mod tests;

/// How often a waiting client reads the record of a job that runs on another instance.
const RECORD_POLL_MS: u64 = 50;

/// How often the record is read without a pause after the owner said that the job has ended.
const READS_AT_ONCE: u32 = 3;

/// By how much the clocks of two instances may differ.
const CLOCKS_DIFFER_MS: u64 = 5_000;

/// A job that was accepted, now or by an earlier request with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// The job's id.
    pub id: JobId,
    /// An earlier request submitted the job.
    pub existed: bool,
}

/// The result of waiting for a job.
#[derive(Debug, Clone)]
pub enum Waited {
    /// The job is as far as it was waited for.
    Reached(JobStatus),
    /// The time was up before.
    NotYet(JobStatus),
    /// There is no such job.
    NoSuchJob,
}

enum Accepted {
    Started(Arc<LiveJob>),
    /// An earlier request submitted the job.
    Existed(JobId),
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// Accepts a job: from here on it ends exactly once, and is known by its id. Waits until
    /// [`EngineService::run`](crate::EngineService::run) has taken over the jobs of an earlier
    /// incarnation.
    pub async fn submit(&self, request: JobRequest) -> Result<Submitted, SubmitError> {
        Ok(match self.accept(request).await? {
            Accepted::Started(live) => Submitted { id: live.request.id, existed: false },
            Accepted::Existed(id) => Submitted { id, existed: true },
        })
    }

    /// Accepts a job and waits for its end; says which job it is. If the caller goes away or the
    /// time is up, the job goes on.
    pub async fn translate(
        &self,
        request: JobRequest,
        wait_ms: u64,
    ) -> Result<(JobId, Waited), SubmitError> {
        match self.accept(request).await? {
            Accepted::Started(live) => {
                let waited = self.wait_live(&live, wait_ms, Milestone::Ended).await?;
                Ok((live.request.id, waited))
            }
            Accepted::Existed(id) => Ok((id, Box::pin(self.wait_ended(id, wait_ms)).await?)),
        }
    }

    /// Writes a job to the store and starts it, unless it was there already.
    async fn accept(&self, request: JobRequest) -> Result<Accepted, SubmitError> {
        if self.is_stopping() {
            return Err(SubmitError::Stopping);
        }
        let limit = self.options.bounds.live_jobs_max;
        if self.live.len() >= limit {
            return Err(SubmitError::Overloaded { limit });
        }
        // Before old jobs are resumed, new ones could be taken for old ones.
        self.recovered.wait().await;
        let mut request = match Box::pin(self.claim_key(request)).await? {
            ControlFlow::Continue(request) => request,
            ControlFlow::Break(id) => return Ok(Accepted::Existed(id)),
        };
        let accepted_ms = self.now_ms();
        let id = request.id;
        // Asked before the store, which may have forgotten a job that runs.
        if self.live.get(id).is_some() {
            return Ok(Accepted::Existed(id));
        }
        let new = self.new_job(&request, accepted_ms);
        self.hold_bytes(&mut request, new.spec.len())?;
        let Some(submission) = self.reconciler.begin_submit(id) else {
            return Ok(Accepted::Existed(id));
        };
        let created = timed!(self, "create_job", self.store.create_job(new));
        // Only if the outcome is unknown, the job has to be searched for in the store.
        if !matches!(created, Err(lingua_store::StoreError::TimedOut { .. })) {
            submission.settled();
        }
        match created? {
            CreateReply::Created if self.has_forgotten_end(id).await => Ok(Accepted::Existed(id)),
            CreateReply::Created => {
                let live = self.start(request, JobMachine::new(), accepted_ms, None);
                Ok(Accepted::Started(live))
            }
            CreateReply::Exists(record) => {
                self.adopt_own(*record, request);
                Ok(Accepted::Existed(id))
            }
        }
    }

    /// Takes what a job needs of the budgets. Speech of a session is counted as it is spoken.
    fn hold_bytes(&self, request: &mut JobRequest, spec_bytes: usize) -> Result<(), SubmitError> {
        let audio_bytes = if request.speech.is_some() { 0 } else { request.audio_bytes() };
        let job_bytes = OPEN_JOB_BYTES + spec_bytes;
        let amounts = [(Usage::OpenJobs, 1), (Usage::OpenBytes, job_bytes + audio_bytes)];
        let usage = self.usage.take(request.spec.tenant, request.token.as_deref(), &amounts)?;
        request.usage = Some(Arc::new(usage));
        let held = self.budgets.open_jobs.take(job_bytes)?;
        request.held = Some(Arc::new(held));
        request.held_audio = Some(Arc::new(self.budgets.audio.take(audio_bytes)?));
        Ok(())
    }

    /// Starts a job that exists already but has no runner, because the reply to the first
    /// request was lost.
    fn adopt_own(&self, record: JobRecord, request: JobRequest) {
        let is_ours = record.owner == self.options.instance && self.is_unowned(record.id);
        match record.stage.state {
            _ if !is_ours || planted::is(Bug::NoReconcile) => {}
            JobState::New if !self.reconciler.has_ended(record.id) => {
                let machine = JobMachine::recovered(record.stage, None);
                self.start(request, machine, self.now_ms(), None);
            }
            state if !state.is_terminal() => self.reconciler.request_scan(),
            _ => {}
        }
    }

    /// Starts the runner of a job. `taken_over` is what happened to a job that another instance has
    /// left.
    pub(crate) fn start(
        &self,
        request: JobRequest,
        machine: JobMachine,
        accepted_ms: u64,
        taken_over: Option<TakenOver>,
    ) -> Arc<LiveJob> {
        let inbox_max = self.options.bounds.job_inbox_max;
        let (event, so_far) = taken_over.map(|job| (job.event, job.attempts)).unzip();
        let so_far = so_far.unwrap_or_default();
        let progress = Progress { so_far, ..Progress::at(machine.stage()) };
        let live = Arc::new(LiveJob::new(request, accepted_ms, progress, inbox_max));
        self.live.insert(Arc::clone(&live));
        runner::spawn(self.handle(), Arc::clone(&live), machine, event);
        live
    }

    /// Waits until the job was sent to a node, or has ended.
    pub async fn wait_sent(&self, id: JobId, wait_ms: u64) -> Result<Waited, SubmitError> {
        self.wait(id, wait_ms, Milestone::Sent).await
    }

    /// Waits until the job has ended.
    pub async fn wait_ended(&self, id: JobId, wait_ms: u64) -> Result<Waited, SubmitError> {
        self.wait(id, wait_ms, Milestone::Ended).await
    }

    async fn wait(
        &self,
        id: JobId,
        wait_ms: u64,
        milestone: Milestone,
    ) -> Result<Waited, SubmitError> {
        match self.live.get(id) {
            Some(live) => self.wait_live(&live, wait_ms, milestone).await,
            None => self.wait_elsewhere(id, wait_ms, milestone).await,
        }
    }

    async fn wait_live(
        &self,
        live: &LiveJob,
        wait_ms: u64,
        milestone: Milestone,
    ) -> Result<Waited, SubmitError> {
        match self.timer.within(wait_ms, live.wait_reached(milestone)).await {
            Some(true) => Ok(Waited::Reached(self.status_of(live, live.progress()))),
            None => Ok(Waited::NotYet(self.status_of(live, live.progress()))),
            // It was abandoned: its new owner writes how it ended.
            Some(false) => Box::pin(self.wait_elsewhere(live.request.id, wait_ms, milestone)).await,
        }
    }

    /// Waits for a job that does not run here: its owner says when to read its record. If the owner
    /// does not answer, the record is read from time to time.
    async fn wait_elsewhere(
        &self,
        id: JobId,
        wait_ms: u64,
        milestone: Milestone,
    ) -> Result<Waited, SubmitError> {
        let give_up_ms = self.now_ms().saturating_add(wait_ms);
        let mut reads = 0;
        loop {
            let Some(record) = self.store.job(id).await? else {
                return Ok(Waited::NoSuchJob);
            };
            let mut status = status_of_record(record);
            if milestone.is_reached(&status.progress) {
                return Ok(Waited::Reached(status));
            }
            let left_ms = give_up_ms.saturating_sub(self.now_ms());
            let mut seen = None;
            if status.owner != self.options.instance {
                let asked = self.progress_elsewhere(&status.owner, id, milestone, left_ms);
                seen = asked.await.flatten();
            }
            if let Some(seen) = seen {
                let has_ended = seen.has_ended();
                seen.add_to(&mut status.progress);
                // An end is written before it is shown.
                if has_ended && reads < READS_AT_ONCE {
                    reads += 1;
                    continue;
                }
                if milestone.is_reached(&status.progress) {
                    return Ok(Waited::Reached(status));
                }
            }
            let left_ms = give_up_ms.saturating_sub(self.now_ms());
            if left_ms == 0 {
                return Ok(Waited::NotYet(status));
            }
            self.timer.sleep(left_ms.min(RECORD_POLL_MS)).await;
        }
    }

    /// Waits until a job has ended or has another partial text than this one. Jobs of other
    /// instances show no partial texts.
    pub async fn next_progress(
        &self,
        id: JobId,
        shown: Option<&Arc<str>>,
        wait_ms: u64,
    ) -> Result<Waited, SubmitError> {
        if let Some(live) = self.live.get(id) {
            let is_new = |progress: &Progress| {
                let partial = progress.partial.as_ref();
                progress.ended.is_some() || partial.is_some() && partial != shown
            };
            if live.wait_until(is_new).await {
                return Ok(Waited::Reached(self.status_of(&live, live.progress())));
            }
        }
        self.wait_elsewhere(id, wait_ms, Milestone::Ended).await
    }

    /// Tells a job that its speech has grown or is complete.
    pub fn audio_added(&self, id: JobId) {
        if let Some(live) = self.live.get(id) {
            live.wake();
        }
    }

    /// All that is known of a job.
    pub async fn job(&self, id: JobId) -> Result<Option<JobStatus>, SubmitError> {
        if let Some(live) = self.live.get(id) {
            return Ok(Some(self.status_of(&live, live.progress())));
        }
        Ok(self.store.job(id).await?.map(status_of_record))
    }

    /// The job with all that its node gave, speech included, if that is still in memory, here or at
    /// the job's owner. From then on it counts as delivered.
    pub async fn with_full_result(&self, mut status: JobStatus) -> JobStatus {
        if self.load_full_result(&status).await {
            self.deliver_full_result(&mut status);
        }
        status
    }

    /// Gets the full result of a job of another instance into the memory of this one. Says whether
    /// it is here.
    pub(crate) async fn load_full_result(&self, status: &JobStatus) -> bool {
        let Some(ended) = status.progress.ended.as_ref().filter(|ended| ended.had_more) else {
            return false;
        };
        let now_ms = self.now_ms();
        if self.recent_results.contains(status.id) {
            return true;
        }
        let gone_ms =
            ended.ended_ms.saturating_add(self.options.times.speech_ms + CLOCKS_DIFFER_MS);
        if status.owner == self.options.instance || gone_ms < now_ms {
            return false;
        }
        let full = self.full_result_elsewhere(&status.owner, status.id).await;
        if let Some(full) = full {
            let spec = status.spec.as_ref();
            let tenant = spec.map_or_else(Tenant::default, |spec| spec.tenant);
            let keeps_text = spec.is_none() || self.options.tenants.rules(tenant).keep_text;
            self.recent_results.put((tenant, status.id), full, now_ms, keeps_text);
        }
        self.recent_results.contains(status.id)
    }

    /// Puts the full result into the status, if it is in memory here.
    pub(crate) fn deliver_full_result(&self, status: &mut JobStatus) {
        let Some(ended) = status.progress.ended.as_ref().filter(|ended| ended.had_more) else {
            return;
        };
        if let Some(full) = self.recent_results.deliver(status.id, self.now_ms()) {
            let ended = JobEnd { result: Some(full), ..JobEnd::clone(ended) };
            status.progress.ended = Some(Arc::new(ended));
        }
    }

    /// Cancels a job and waits until it has ended, one way or the other.
    pub async fn cancel(&self, id: JobId) -> Result<Option<JobStatus>, SubmitError> {
        if let Some(live) = self.live.get(id) {
            self.send_to_job(&live, JobMessage::Cancel).await;
        } else {
            let Some(status) = self.job(id).await? else { return Ok(None) };
            if status.progress.ended.is_some()
                || status.owner == self.options.instance
                || !self.cancel_job_elsewhere(&status.owner, id).await
            {
                return Ok(Some(status));
            }
        }
        match self.wait_ended(id, self.options.times.ack_ms).await? {
            Waited::Reached(status) | Waited::NotYet(status) => Ok(Some(status)),
            Waited::NoSuchJob => Ok(None),
        }
    }

    pub(super) fn status_of(&self, live: &LiveJob, progress: Progress) -> JobStatus {
        let ended_ms = progress.ended.as_ref().map(|ended| ended.ended_ms);
        JobStatus {
            id: live.request.id,
            owner: self.options.instance.clone(),
            progress,
            spec: Some(Arc::clone(&live.request.spec)),
            accepted_ms: live.accepted_ms,
            updated_ms: ended_ms.unwrap_or_else(|| self.now_ms()),
        }
    }
}

pub(super) fn status_of_record(record: JobRecord) -> JobStatus {
    let spec = job_spec_codec::decode(&record.spec);
    let warn = |error: &_| tracing::warn!(job_id = %record.id, %error, "cannot read the record");
    let spec = spec.inspect_err(warn).ok().map(Arc::new);
    let outcome = record.outcome.as_deref().and_then(JobEnd::decode);
    let mut so_far = vec![];
    let ended = match (outcome, record.stage.state.is_terminal()) {
        (Some(ended), true) => Some(Arc::new(ended)),
        // An open job has its earlier attempts there.
        (Some(open), false) => {
            so_far = open.attempts;
            None
        }
        // The instance that ended it could not read its spec and wrote no outcome.
        (None, true) => Some(Arc::new(JobEnd {
            accepted_ms: record.created_ms,
            ended_ms: record.updated_ms,
            ..JobEnd::default()
        })),
        (None, false) => None,
    };
    let node = record.grant.map(|grant| grant.node);
    let progress = Progress { node, ended, so_far, ..Progress::at(record.stage) };
    JobStatus {
        id: record.id,
        owner: record.owner,
        progress,
        spec,
        accepted_ms: record.created_ms,
        updated_ms: record.updated_ms,
    }
}
