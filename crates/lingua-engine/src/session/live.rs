//! One session: takes the client's audio and text, and opens and closes segments.
//!
//! Start at [`LiveSession::audio`]. Input changes the [`SessionState`] under one lock and never
//! waits; whatever takes time (jobs, the store) runs in a task per segment.
//!
//! Invariant: every segment gets one number, and ends as a result or as missing.

use std::sync::Arc;

use bytes::Bytes;
use lingua_core::JobId;
use lingua_core::job::Payload;
use lingua_core::planted::{self, Bug};
use lingua_core::session::{AudioEncoding, DeliveryQueue, SegmentStart, Segmenter, Speaker};
use lingua_store::Store;
use lingua_store::contract::StoreIdentity;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::connection::{ClientConnection, CloseReason};
use super::options::SessionRefusal;
use super::record::{SegmentRecord, StoredSession};
use super::registry::{NewSession, SessionRegistry};
use super::state::{KEPT_DELIVERIES, OpenSpeech, QueuedOutcome, SegmentJob, SessionState};
use crate::speech::Speech;
use crate::usage_limit::{HeldUsage, OverLimit, Usage};
use crate::{Handle, Timer};

/// Segments beyond `open_segments_max` that are delivered as missing, in their place in the order.
/// Further input is refused at once, and takes no place.
const REFUSED_SEGMENTS_MAX: usize = 256;

/// How long after a takeover to wait for jobs that the store does not know: the instance that had
/// the session may be about to write them.
const UNKNOWN_JOB_MS: u64 = 3_000;

#[derive(Debug)]
pub(super) struct LiveSession<S, T> {
    pub(super) registry: Arc<SessionRegistry<S, T>>,
    pub(super) info: NewSession,
    /// Random; tells this copy of the session from those at other instances.
    pub(super) incarnation: u64,
    /// How often the session was taken over before. The highest number owns the session.
    pub(super) takeovers: u64,
    /// The version of the record; locked while the record is being written.
    pub(super) version: tokio::sync::Mutex<u64>,
    /// Until then, a job that the store does not know may still appear.
    pub(super) jobs_appear_until_ms: u64,
    pub(super) state: Mutex<SessionState>,
    /// What it counts towards the limits of its tenant and token while it is registered.
    pub(super) usage: Mutex<Option<HeldUsage>>,
    /// Notified when there may be something for the client.
    pub(super) client_wakeup: Notify,
    /// Notified when the timer task has to look earlier than it planned.
    pub(super) timer_wakeup: Notify,
}

impl<S: Store, T: Timer> LiveSession<S, T> {
    pub(super) fn new(registry: Arc<SessionRegistry<S, T>>, info: NewSession) -> Self {
        let state = SessionState::new(&registry.options, &info.plan, registry.engine.now_ms());
        Self {
            incarnation: registry.engine.random_u64(),
            registry,
            info,
            takeovers: 0,
            version: tokio::sync::Mutex::new(0),
            jobs_appear_until_ms: 0,
            state: Mutex::new(state),
            usage: Mutex::default(),
            client_wakeup: Notify::new(),
            timer_wakeup: Notify::new(),
        }
    }

    /// Continues a session from its record. The client has seen everything up to `last_seq`.
    pub(super) fn taken_over(
        registry: Arc<SessionRegistry<S, T>>,
        info: NewSession,
        (version, stored_in): (u64, StoreIdentity),
        record: &StoredSession,
        last_seq: u64,
    ) -> Self {
        let options = registry.options;
        let rules = options.segment_rules(&info.plan);
        let mut session = Self::new(registry, info);
        let now_ms = session.now_ms();
        session.jobs_appear_until_ms = now_ms.saturating_add(UNKNOWN_JOB_MS);
        session.takeovers = record.takeovers.saturating_add(1);
        *session.version.get_mut() = version;
        let state = session.state.get_mut();
        state.stored_in = Some(stored_in);
        state.segmenter = Segmenter::new(rules, record.turns);
        let first = record.segments.first().map_or(1, SegmentRecord::seq);
        state.queue = DeliveryQueue::new(first, KEPT_DELIVERIES);
        let due_ms = options.deadline_ms.saturating_add(options.segments.segment_max_ms);
        for segment in &record.segments {
            let id = segment.id();
            let seq = state.queue.open(id);
            match segment.job() {
                Some(job) if seq <= last_seq => {
                    state.queue.end(seq, QueuedOutcome::InStore(job));
                }
                Some(job) => {
                    let (began_ms, ended_ms) = (now_ms, Some(now_ms));
                    state.jobs.insert(seq, SegmentJob { id, job, began_ms, ended_ms });
                    if !planted::is(Bug::MissingNotReported) {
                        state.queue.set_due(seq, now_ms.saturating_add(due_ms));
                    }
                }
                None => state.refuse_segment(seq, options.open_segments_max),
            }
            state.segments.push_back(*segment);
        }
        session
    }

    /// Adds the session to the registry, starts its tasks and connects its client.
    pub(super) fn register(
        self: &Arc<Self>,
        last_seq: u64,
    ) -> Result<ClientConnection<S, T>, SessionRefusal> {
        self.registry.insert(self)?;
        // A session that was taken over has open jobs.
        let open: Vec<_> = self.state.lock().jobs.iter().map(|(seq, s)| (*seq, s.job)).collect();
        for (seq, job) in open {
            let session = Arc::clone(self);
            tokio::spawn(async move { session.follow(seq, job).await });
        }
        tokio::spawn(Arc::clone(self).run_timers());
        Ok(ClientConnection::new(Arc::clone(self), last_seq))
    }

    pub(super) fn engine(&self) -> &Handle<S, T> {
        &self.registry.engine
    }

    pub(super) fn take_usage(&self, kind: Usage, amount: usize) -> Result<HeldUsage, OverLimit> {
        let NewSession { tenant, limited, .. } = &self.info;
        self.engine().usage.take(*tenant, limited.as_deref(), &[(kind, amount)])
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.engine().now_ms()
    }

    /// Takes a frame of audio. `is_speech` is the verdict of a voice detector, if there is one.
    pub(super) fn audio(
        self: &Arc<Self>,
        frame: Bytes,
        is_speech: Option<bool>,
    ) -> Result<(), SessionRefusal> {
        let mut measure = self.info.plan.audio.measure(&frame)?;
        measure.is_speech = is_speech.unwrap_or(measure.is_speech);
        let now_ms = self.now_ms();
        let mut state = self.state.lock();
        state.last_input_ms = now_ms;
        if state.open_speech.is_none() {
            self.check_room(&state)?;
        }
        let rate = self.registry.options.rate_max;
        let taken = state.rate_limit.take(measure.us, now_ms);
        taken.map_err(|wait_ms| SessionRefusal::TooFast { rate, wait_ms })?;
        let usage = self.take_usage(Usage::OpenBytes, frame.len())?;
        let held = self.engine().budgets.audio.take(frame.len())?;
        let outcome = state.segmenter.audio(measure, now_ms);
        if outcome.ended_before.is_some() {
            self.close_segment(&mut state);
        }
        if let Some(start) = outcome.begins {
            self.open_speech(&mut state, start);
        }
        if !outcome.is_kept {
            state.push_lead_in(frame, measure.us);
        } else if let Some(open) = &state.open_speech
            && open.speech.push(self.node_encoding(frame))
        {
            open.speech.hold(held, usage);
            self.engine().audio_added(open.job);
        }
        if outcome.ends.is_some() {
            self.close_segment(&mut state);
        }
        self.set_timer(&state);
        Ok(())
    }

    /// A frame as nodes get it: `pcm16` as it is, an Opus packet after its length in two bytes.
    fn node_encoding(&self, frame: Bytes) -> [Bytes; 2] {
        let length = match self.info.plan.audio {
            AudioEncoding::Pcm16 { .. } => Bytes::new(),
            AudioEncoding::Opus => {
                let length = u16::try_from(frame.len()).unwrap_or(u16::MAX);
                Bytes::copy_from_slice(&length.to_be_bytes())
            }
        };
        [length, frame]
    }

    pub(super) fn turn_start(self: &Arc<Self>, speaker: Option<Speaker>) {
        let now_ms = self.now_ms();
        let mut state = self.state.lock();
        if state.segmenter.turn_start(speaker, now_ms).is_some() {
            self.close_segment(&mut state);
        }
        self.end_input(state, now_ms);
    }

    pub(super) fn turn_end(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.segmenter.turn_end().is_some() {
            self.close_segment(&mut state);
        }
        self.end_input(state, self.now_ms());
    }

    /// Refuses a further segment if too many wait for their outcome.
    fn check_room(&self, state: &SessionState) -> Result<(), SessionRefusal> {
        let limit = self.registry.options.open_segments_max.saturating_add(REFUSED_SEGMENTS_MAX);
        match state.queue.undelivered() < limit {
            true => Ok(()),
            false => Err(SessionRefusal::TooManySegments { limit }),
        }
    }

    pub(super) fn text(
        self: &Arc<Self>,
        text: &str,
        speaker: Option<Speaker>,
    ) -> Result<(), SessionRefusal> {
        let now_ms = self.now_ms();
        let mut state = self.state.lock();
        state.last_input_ms = now_ms;
        if text.trim().is_empty() {
            return Ok(());
        }
        self.check_room(&state)?;
        let (ended, start) = state.segmenter.text(speaker);
        if ended.is_some() {
            self.close_segment(&mut state);
        }
        let opened = self.open_segment(&mut state, start, Payload::Text(text.into()), None);
        if let Some((seq, _)) = opened {
            self.start_deadline(&mut state, seq);
        }
        self.end_input(state, now_ms);
        Ok(())
    }

    fn end_input(&self, mut state: parking_lot::MutexGuard<'_, SessionState>, now_ms: u64) {
        state.last_input_ms = now_ms;
        state.take_lead_in();
        self.set_timer(&state);
    }

    /// The client ends the session; open segments are still delivered.
    pub(super) fn end(self: &Arc<Self>) {
        self.turn_end();
        self.state.lock().is_ending = true;
        self.client_wakeup.notify_one();
        self.timer_wakeup.notify_one();
    }

    fn open_speech(self: &Arc<Self>, state: &mut SessionState, start: SegmentStart) {
        let (format, sample_rate) = match self.info.plan.audio {
            AudioEncoding::Pcm16 { sample_rate } => ("pcm16", sample_rate),
            AudioEncoding::Opus => ("opus_packets", 0),
        };
        let speech = Arc::new(Speech::new(format.into(), sample_rate));
        for (frame, _) in state.take_lead_in() {
            speech.push(self.node_encoding(frame));
        }
        let opened = self.open_segment(state, start, Payload::Absent, Some(Arc::clone(&speech)));
        state.open_speech = opened.map(|(seq, job)| OpenSpeech { seq, job, speech });
    }

    /// Ends the segment that the client is speaking.
    pub(super) fn close_segment(&self, state: &mut SessionState) {
        if let Some(OpenSpeech { seq, job, speech }) = state.open_speech.take() {
            speech.finish();
            self.start_deadline(state, seq);
            self.engine().audio_added(job);
        }
    }

    /// Numbers a segment and submits it as a job, unless too many are open.
    fn open_segment(
        self: &Arc<Self>,
        state: &mut SessionState,
        start: SegmentStart,
        payload: Payload,
        speech: Option<Arc<Speech>>,
    ) -> Option<(u64, JobId)> {
        let options = &self.registry.options;
        let is_refused = state.queue.undelivered() >= options.open_segments_max;
        let seq = state.queue.open(start.id);
        let now_ms = self.now_ms();
        let job = (!is_refused).then(|| self.registry.job_ids.next());
        state.push_segment(SegmentRecord::new(seq, start.id, job), options);
        let Some(job) = job else {
            state.refuse_segment(seq, options.open_segments_max);
            self.client_wakeup.notify_one();
            // One write at a time, however many segments are refused.
            if !std::mem::replace(&mut state.is_save_pending, true) {
                self.spawn_save();
            }
            return None;
        };
        let context = if self.info.plan.context { state.context() } else { vec![] };
        state.jobs.insert(seq, SegmentJob { id: start.id, job, began_ms: now_ms, ended_ms: None });
        let request = self.job_request(job, start, payload, speech, context);
        tokio::spawn(Arc::clone(self).submit_segment(seq, start.id, request));
        Some((seq, job))
    }

    /// A segment is complete: its deadline starts.
    fn start_deadline(&self, state: &mut SessionState, seq: u64) {
        let now_ms = self.now_ms();
        state.queue.set_due(seq, now_ms.saturating_add(self.registry.options.deadline_ms));
        if let Some(segment) = state.jobs.get_mut(&seq) {
            segment.ended_ms = Some(now_ms);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed.is_some()
    }

    /// Closes the session at this instance.
    pub(super) fn close(&self, reason: CloseReason) {
        self.state.lock().closed.get_or_insert(reason);
        if !planted::is(Bug::SessionNeverRemoved) {
            self.registry.remove(self);
        }
        self.client_wakeup.notify_one();
        self.timer_wakeup.notify_one();
    }
}

impl SessionState {
    /// Ends a segment that did not become a job.
    fn refuse_segment(&mut self, seq: u64, limit: usize) {
        let detail = format!("{limit} segments are open already; wait for results");
        self.end_as_missing(seq, None, "RATE_LIMITED", detail);
    }
}
