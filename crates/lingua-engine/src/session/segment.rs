//! A segment's job: built from the session's plan, submitted, followed, and turned into the
//! segment's outcome.
//!
//! Start at [`LiveSession::submit_segment`].

use std::sync::Arc;

use lingua_core::id::hex;
use lingua_core::job::{JobSpec, Payload};
use lingua_core::planted::{self, Bug};
use lingua_core::session::{SegmentDirection, SegmentId, SegmentStart};
use lingua_core::{JobId, Needs, ServiceSet};
use lingua_store::Store;
use serde::Deserialize;

use super::connection::SegmentOutcome;
use super::live::LiveSession;
use super::state::QueuedOutcome;
use crate::clock::Timer;
use crate::handle::Waited;
use crate::request::{JobRequest, JobStatus, ResultJson};
use crate::speech::Speech;

/// How long to wait at a time for a job that runs at another instance.
const FOLLOW_MS: u64 = 60_000;

/// How often to look for a job that the store does not know yet.
const RETRY_MS: u64 = 100;

impl<S: Store, T: Timer> LiveSession<S, T> {
    /// Submits a segment and follows its job to the end.
    pub(super) async fn submit_segment(
        self: Arc<Self>,
        seq: u64,
        id: SegmentId,
        request: JobRequest,
    ) {
        let job = request.id;
        // The record comes first: an instance that takes the session over must find every segment.
        match self.save().await {
            Ok(true) => {}
            // Another instance owns the session. It waits for this job if the record has it.
            Ok(false) if self.state.lock().saved_seq >= Some(seq) => {}
            Ok(false) => return,
            Err(error) => return self.end_as_missing(seq, error.code(), error.to_string()),
        }
        match self.engine().submit(request).await {
            Ok(_) if self.state.lock().push_accepted(seq, id, job) => {
                self.client_wakeup.notify_one();
                self.follow(seq, job).await;
            }
            // The deadline passed meanwhile.
            Ok(_) => drop(self.engine().cancel(job).await),
            Err(error) => self.end_as_missing(seq, error.code(), error.to_string()),
        }
    }

    /// The job of a segment: a text, or speech that may still be growing.
    pub(super) fn job_request(
        &self,
        job: JobId,
        start: SegmentStart,
        payload: Payload,
        speech: Option<Arc<Speech>>,
        context: Vec<Arc<str>>,
    ) -> JobRequest {
        let options = &self.registry.options;
        let speech_ms = options.segments.segment_max_ms + options.segments.pause_ms;
        let plan = &self.info.plan;
        let SegmentDirection { pair, two_way } = plan.direction_of(start.speaker);
        let (asr, tts) = (speech.is_some(), plan.require_tts);
        let spec = JobSpec {
            session: Arc::clone(&self.info.id),
            tenant: self.info.tenant,
            public: self.is_public(),
            trace: String::from_utf8_lossy(&hex(job.number())).into(),
            two_way,
            needs: Needs { asr, tts, extra: ServiceSet::EMPTY, labels: plan.labels },
            context,
            bind_key: Some(format!("{}/{}", self.info.id, start.id.turn).into()),
            preferred: plan.preferred.clone(),
            wait_ms: Some(options.wait_ms),
            deadline_ms: Some(options.deadline_ms + speech_ms),
            ..JobSpec::new(pair, payload)
        };
        let token = self.info.limited.clone();
        JobRequest { speech, token, ..JobRequest::new(job, spec) }
    }

    /// Whether nodes of others may run the session's jobs.
    pub(super) fn is_public(&self) -> bool {
        let own = || self.engine().options.tenants.rules(self.info.tenant).public;
        self.info.plan.public.unwrap_or_else(own)
    }

    /// Follows a job to its end.
    pub(super) async fn follow(&self, seq: u64, job: JobId) {
        let mut partial: Option<Arc<str>> = None;
        loop {
            match self.engine().next_progress(job, partial.as_ref(), FOLLOW_MS).await {
                Ok(Waited::Reached(view)) if view.progress.ended.is_some() => {
                    let mut view = view;
                    let is_loaded = self.engine().load_full_result(&view).await;
                    if is_loaded && view.progress.ended.as_ref().is_some_and(|e| e.result.is_none())
                    {
                        // Its text is not kept in the store.
                        self.engine().deliver_full_result(&mut view);
                    }
                    return self.end_segment(seq, view);
                }
                Ok(Waited::Reached(view)) => {
                    partial.clone_from(&view.progress.partial);
                    if self.info.plan.partials
                        && let Some(text) = view.progress.partial
                    {
                        self.push_partial(seq, text);
                    }
                }
                Ok(Waited::NotYet(_)) => {}
                Ok(Waited::NoSuchJob) if self.now_ms() < self.jobs_appear_until_ms => {
                    self.engine().timer.sleep(RETRY_MS).await;
                }
                Ok(Waited::NoSuchJob) if planted::is(Bug::MissingNotReported) => return,
                Ok(Waited::NoSuchJob) => {
                    let detail = "the instance that received the segment is gone; say it again";
                    return self.end_as_missing(seq, "INSTANCE_LOST", detail.to_owned());
                }
                Err(error) => return self.end_as_missing(seq, error.code(), error.to_string()),
            }
            if !self.state.lock().queue.is_open(seq) {
                return;
            }
        }
    }

    fn push_partial(&self, seq: u64, text: Arc<str>) {
        let mut state = self.state.lock();
        let Some(segment) = state.jobs.get(&seq).copied() else { return };
        if state.queue.is_open(seq) && state.disconnected_ms.is_none() {
            state.partials.insert(seq, (segment.id, text));
            drop(state);
            self.client_wakeup.notify_one();
        }
    }

    fn end_segment(&self, seq: u64, view: JobStatus) {
        let Some(ended) = view.progress.ended.clone() else { return };
        let Some(result) = &ended.result else {
            let error = ended.error.as_deref().unwrap_or("NODE_FAILED");
            return self.end_as_missing(seq, error, ended.detail.clone().unwrap_or_default());
        };
        let text = self.info.plan.context.then(|| text_of(result)).flatten();
        let now_ms = self.now_ms();
        let mut state = self.state.lock();
        let (began_ms, ended_ms) = match state.jobs.get(&seq) {
            Some(segment) => (segment.began_ms, segment.ended_ms.unwrap_or(now_ms)),
            None => (now_ms, now_ms),
        };
        let outcome = SegmentOutcome::Result {
            view: Arc::new(view),
            speech_ms: Some(ended_ms.saturating_sub(began_ms)),
            delay_ms: Some(now_ms.saturating_sub(ended_ms)),
        };
        if state.queue.end(seq, QueuedOutcome::Ready(outcome))
            && let Some(text) = text
        {
            state.push_context(seq, &text);
        }
        drop(state);
        self.client_wakeup.notify_one();
    }

    /// Ends a segment without a result.
    pub(super) fn end_as_missing(&self, seq: u64, error: &str, detail: String) {
        let mut state = self.state.lock();
        let job = state.jobs.get(&seq).map(|segment| segment.job);
        state.end_as_missing(seq, job, error, detail);
        drop(state);
        self.client_wakeup.notify_one();
    }
}

/// The text that later jobs get as context. A result that is only a string is the text itself.
fn text_of(result: &ResultJson) -> Option<String> {
    #[derive(Deserialize)]
    struct Texts {
        text_asr: Option<String>,
        text_translated: Option<String>,
    }
    let json = result.as_str();
    match serde_json::from_str::<Texts>(json) {
        Ok(texts) => texts.text_asr.or(texts.text_translated),
        Err(_) => serde_json::from_str(json).ok(),
    }
}
