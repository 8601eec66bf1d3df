//! One segment's way: it becomes a job, is followed, and ends.
//!
//! Start at [`Talk::carry`].

use std::sync::Arc;

use lingua_core::JobId;
use lingua_core::planted::{self, Bug};
use lingua_core::session::Cut;
use lingua_store::Store;

use super::options::{SegmentAsk, SegmentInput};
use super::talk::{Spoken, Talk};
use crate::clock::Timer;
use crate::handle::Waited;
use crate::request::JobStatus;

/// How long a job that runs elsewhere is waited for at a time.
const FOLLOW_MS: u64 = 60_000;

/// How often a job is looked for that is not there yet.
const LOOK_AGAIN_MS: u64 = 100;

/// Longest text that goes along with later jobs, in bytes.
const CONTEXT_BYTES_MAX: usize = 1024;

/// What came of a segment.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    /// A result.
    Done {
        /// The job, without what was said.
        view: Arc<JobStatus>,
        /// How long it was spoken.
        speech_ms: u64,
        /// How long it took after that.
        delay_ms: u64,
    },
    /// A result that the store keeps.
    Kept(JobId),
    /// Nothing.
    Missing {
        /// The job, if it became one.
        job: Option<JobId>,
        /// Why.
        error: String,
        /// Why, in words.
        detail: String,
    },
}

impl<S: Store, T: Timer> Talk<S, T> {
    /// Carries a segment from its beginning to its end.
    pub(super) async fn carry(
        self: Arc<Self>,
        seq: u64,
        cut: Cut,
        job: JobId,
        input: SegmentInput,
        context: Vec<Arc<str>>,
        bind_key: Arc<str>,
    ) {
        let options = &self.hub.options;
        let spoken_ms = options.segments.segment_max_ms + options.segments.pause_ms;
        let request = self.hub.compose.job(SegmentAsk {
            plan: &self.new.plan,
            id: job,
            session: Arc::clone(&self.new.id),
            at: cut.id,
            speaker: cut.speaker,
            input,
            context: if self.new.context { context } else { vec![] },
            bind_key,
            deadline_ms: options.deadline_ms + spoken_ms,
        });
        let Some(request) = request else {
            let detail = "what the session was started with cannot be read; start a new one";
            return self.miss(seq, "INTERNAL", detail.to_owned());
        };
        // Written first: whoever goes on with the session must find every segment.
        match self.save().await {
            Ok(true) => {}
            // Another instance has the session; it waits for this job if it can know of it.
            Ok(false) if self.state.lock().written_seq >= Some(seq) => {}
            Ok(false) => return,
            Err(error) => return self.miss(seq, error.code(), error.to_string()),
        }
        match self.hub.engine.submit(request).await {
            Ok(_) if self.state.lock().note_accepted(seq, cut.id, job) => {
                self.for_client.notify_one();
                self.follow(seq, job).await;
            }
            // It took so long that it is missing already.
            Ok(_) => drop(self.hub.engine.cancel(job).await),
            Err(error) => self.miss(seq, error.code(), error.to_string()),
        }
    }

    /// Follows a job to its end.
    pub(super) async fn follow(&self, seq: u64, job: JobId) {
        let mut shown: Option<Arc<str>> = None;
        loop {
            match self.hub.engine.news_of(job, shown.as_ref(), FOLLOW_MS).await {
                Ok(Waited::Reached(view)) if view.progress.ended.is_some() => {
                    return self.ended(seq, view);
                }
                Ok(Waited::Reached(view)) => {
                    shown.clone_from(&view.progress.partial);
                    if self.new.partials
                        && let Some(text) = view.progress.partial
                    {
                        self.show(seq, text);
                    }
                }
                Ok(Waited::NotYet(_)) => {}
                Ok(Waited::NoSuchJob) if self.now_ms() < self.patient_until_ms => {
                    self.hub.engine.shared.timer.sleep(LOOK_AGAIN_MS).await;
                }
                Ok(Waited::NoSuchJob) if planted::is(Bug::MissingNotReported) => return,
                Ok(Waited::NoSuchJob) => {
                    let detail = "the instance that heard it is gone; say it again";
                    return self.miss(seq, "INSTANCE_LOST", detail.to_owned());
                }
                Err(error) => return self.miss(seq, error.code(), error.to_string()),
            }
            if !self.state.lock().order.is_open(seq) {
                return;
            }
        }
    }

    fn show(&self, seq: u64, text: Arc<str>) {
        let mut state = self.state.lock();
        let Some(spoken) = state.jobs.get(&seq).copied() else { return };
        if state.order.is_open(seq) && state.away_since_ms.is_none() {
            state.partials.insert(seq, (spoken.id, text));
            drop(state);
            self.for_client.notify_one();
        }
    }

    fn ended(&self, seq: u64, view: JobStatus) {
        let Some(ended) = view.progress.ended.clone() else { return };
        if ended.result.is_none() {
            let error = ended.error.clone().unwrap_or_else(|| "NODE_FAILED".to_owned());
            let detail = ended.detail.clone().unwrap_or_default();
            return self.miss(seq, &error, detail);
        }
        let now_ms = self.now_ms();
        let text = match self.new.context {
            true => ended.result.as_ref().and_then(|result| self.hub.compose.text_of(result)),
            false => None,
        };
        let mut state = self.state.lock();
        let spoken = state.jobs.get(&seq);
        let (began_ms, ended_ms) = spoken.map_or((now_ms, now_ms), |spoken: &Spoken| {
            (spoken.began_ms, spoken.ended_ms.unwrap_or(now_ms))
        });
        let speech_ms = ended_ms.saturating_sub(began_ms);
        let delay_ms = now_ms.saturating_sub(ended_ms);
        let outcome = Outcome::Done { view: Arc::new(view), speech_ms, delay_ms };
        if state.order.end(seq, outcome)
            && let Some(text) = text
        {
            let end = text.floor_char_boundary(CONTEXT_BYTES_MAX);
            state.remember_text(seq, text[..end].into());
        }
        drop(state);
        self.for_client.notify_one();
    }

    /// Nothing came of a segment.
    pub(super) fn miss(&self, seq: u64, error: &str, detail: String) {
        let mut state = self.state.lock();
        let job = state.jobs.get(&seq).map(|spoken| spoken.job);
        state.order.end(seq, Outcome::Missing { job, error: error.to_owned(), detail });
        drop(state);
        self.for_client.notify_one();
    }
}
