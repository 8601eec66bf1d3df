//! A client's connection to its session.
//!
//! Start at [`ClientConnection::next`], which yields everything that the client is sent, in order.
//! When the connection is dropped, the session waits to be resumed.

use std::sync::Arc;

use bytes::Bytes;
use lingua_core::planted::{self, Bug};
use lingua_core::session::{Delivery, SegmentId, SessionPlan, Speaker};
use lingua_core::{JobId, Needs, ServiceSet};
use lingua_store::Store;

use super::live::LiveSession;
use super::options::SessionRefusal;
use super::state::QueuedOutcome;
use crate::clock::Timer;
use crate::request::JobStatus;

/// Delivered results kept in memory; older ones are read from the store if a client needs them.
const RESULTS_IN_MEMORY: u64 = 4;

/// A client's connection to its session.
#[derive(Debug)]
pub struct ClientConnection<S: Store, T: Timer> {
    session: Arc<LiveSession<S, T>>,
    number: u64,
}

/// Something to send to the client.
#[derive(Debug, Clone)]
pub enum SessionOutput {
    /// A segment has become a job.
    Accepted(SegmentId, JobId),
    /// The text of a segment so far.
    Partial(SegmentId, Arc<str>),
    /// The outcome of a segment.
    Delivery(Delivery<SegmentOutcome>),
    /// The session has ended or moved; no message follows.
    Closed(CloseReason),
}

/// How a segment ended.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum SegmentOutcome {
    /// With a result. The client spoke for `speech_ms` (`None` if the result comes from the store),
    /// and the result came `delay_ms` after the end of the speech.
    Result { view: Arc<JobStatus>, speech_ms: Option<u64>, delay_ms: Option<u64> },
    /// Without a result: the error code, what happened and what to do. `job` is `None` if the
    /// segment did not become a job.
    Missing { job: Option<JobId>, error: String, detail: String },
}

/// Why a session, or this connection to it, is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The client ended the session, and everything was delivered.
    Ended,
    /// Another connection owns the session.
    Superseded,
    /// The client sent nothing for `idle_ms`.
    Idle,
    /// No client resumed the session within `resume_ms`.
    Abandoned,
}

/// What of a client's input has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedInput {
    /// How many turns the session has had.
    pub turns: u32,
    /// Whether the last of them is open.
    pub is_turn_open: bool,
    /// How much sound of the open turn has arrived; 0 if no turn is open.
    pub open_turn_ms: u64,
}

enum NextOutput {
    Ready(SessionOutput),
    /// A result that has to be read from the store.
    InStore(u64, SegmentId, JobId),
    None,
}

impl<S: Store, T: Timer> ClientConnection<S, T> {
    /// Makes this the connection that owns the session. The client has seen everything up to
    /// `last_seq`.
    pub(super) fn new(session: Arc<LiveSession<S, T>>, last_seq: u64) -> Self {
        let mut state = session.state.lock();
        state.connection += 1;
        let number = state.connection;
        state.disconnected_ms = None;
        state.last_input_ms = session.now_ms();
        state.accepted.clear();
        state.partials.clear();
        let repeated = u64::from(planted::is(Bug::DeliverTwice));
        state.resume(last_seq.saturating_sub(repeated));
        drop(state);
        // The previous connection waits in `next` and has to see that it is closed.
        session.client_wakeup.notify_waiters();
        session.timer_wakeup.notify_one();
        Self { session, number }
    }

    /// The session's id.
    pub fn id(&self) -> &Arc<str> {
        &self.session.info.id
    }

    /// What the client asked for when it started the session.
    pub fn plan(&self) -> &SessionPlan {
        &self.session.info.plan
    }

    /// What of the client's input has arrived.
    pub fn received(&self) -> ReceivedInput {
        let state = self.session.state.lock();
        ReceivedInput {
            turns: state.segmenter.turns(),
            is_turn_open: state.segmenter.is_turn_open(),
            open_turn_ms: state.segmenter.received_ms(),
        }
    }

    /// Whether silence ends a segment.
    pub fn detects_silence(&self) -> bool {
        let options = &self.session.registry.options;
        options.segment_rules(self.plan()).silence_ms.is_some()
    }

    /// What will not work now, for people: no node serves the session's languages.
    pub async fn warning(&self) -> Option<String> {
        let plan = self.plan();
        let (mut unserved, tenant) = (vec![], self.session.info.tenant);
        for pair in plan.direction.pairs() {
            let (tts, labels) = (plan.require_tts, plan.labels);
            let needs = Needs { asr: true, tts, extra: ServiceSet::EMPTY, labels };
            let private_to = (!self.session.is_public()).then_some(tenant);
            if self.session.engine().is_unserved(pair, needs, private_to).await {
                unserved.push(pair.to_string());
            }
        }
        (!unserved.is_empty()).then(|| {
            let pairs = unserved.join(" and ");
            let speech = if plan.require_tts { " with speech" } else { "" };
            let labelled = if plan.labels.is_empty() { "" } else { " with these labels" };
            format!(
                "no registered node{labelled} serves {pairs}{speech} now; what is said in that \
                 direction will be missing until one registers"
            )
        })
    }

    /// Takes a frame of audio. `is_speech` is the verdict of a voice detector, if there is one.
    pub fn audio(&self, frame: Bytes, is_speech: Option<bool>) -> Result<(), SessionRefusal> {
        self.owned()?.audio(frame, is_speech)
    }

    /// Opens a turn.
    pub fn turn_start(&self, speaker: Option<Speaker>) -> Result<(), SessionRefusal> {
        self.owned().map(|session| session.turn_start(speaker))
    }

    /// Ends the turn.
    pub fn turn_end(&self) -> Result<(), SessionRefusal> {
        self.owned().map(LiveSession::turn_end)
    }

    /// Takes a turn of text.
    pub fn text(&self, text: &str, speaker: Option<Speaker>) -> Result<(), SessionRefusal> {
        self.owned()?.text(text, speaker)
    }

    /// Ends the session: [`next`](Self::next) yields what is open, and then the end.
    pub fn end(&self) -> Result<(), SessionRefusal> {
        self.owned().map(LiveSession::end)
    }

    /// The session, if no later connection owns it.
    fn owned(&self) -> Result<&Arc<LiveSession<S, T>>, SessionRefusal> {
        match self.session.state.lock().connection == self.number {
            true => Ok(&self.session),
            false => Err(SessionRefusal::Superseded),
        }
    }

    /// Waits for the next message to the client.
    pub async fn next(&self) -> SessionOutput {
        loop {
            let wakeup = self.session.client_wakeup.notified();
            match self.take_next() {
                NextOutput::Ready(output) => return self.with_speech(output),
                NextOutput::InStore(seq, id, job) => {
                    let outcome = self.read_result(job).await;
                    let mut state = self.session.state.lock();
                    if state.connection == self.number {
                        state.queue.rewind(seq);
                    }
                    return SessionOutput::Delivery(Delivery { seq, id, outcome });
                }
                NextOutput::None => wakeup.await,
            }
        }
    }

    /// Adds the speech to a result, if it is in memory. Only the message to the client holds it.
    fn with_speech(&self, mut output: SessionOutput) -> SessionOutput {
        if let SessionOutput::Delivery(Delivery { outcome, .. }) = &mut output
            && let SegmentOutcome::Result { view, .. } = outcome
        {
            self.session.engine().deliver_full_result(Arc::make_mut(view));
        }
        output
    }

    fn take_next(&self) -> NextOutput {
        let mut state = self.session.state.lock();
        if state.connection != self.number {
            return NextOutput::Ready(SessionOutput::Closed(CloseReason::Superseded));
        }
        if let Some((id, job)) = state.accepted.pop_front() {
            return NextOutput::Ready(SessionOutput::Accepted(id, job));
        }
        if let Some(Delivery { seq, id, outcome }) = state.queue.deliver() {
            state.jobs.remove(&seq);
            state.partials.remove(&seq);
            state.queue.shrink(RESULTS_IN_MEMORY, |kept| {
                if let QueuedOutcome::Ready(SegmentOutcome::Result { view, .. }) = kept {
                    *kept = QueuedOutcome::InStore(view.id);
                }
            });
            return match outcome {
                QueuedOutcome::Ready(outcome) => {
                    NextOutput::Ready(SessionOutput::Delivery(Delivery { seq, id, outcome }))
                }
                QueuedOutcome::InStore(job) => {
                    // It is not delivered until it is read: the caller may stop waiting for that.
                    state.queue.rewind(seq - 1);
                    NextOutput::InStore(seq, id, job)
                }
            };
        }
        while let Some((seq, (id, text))) = state.partials.pop_first() {
            if state.queue.is_open(seq) {
                return NextOutput::Ready(SessionOutput::Partial(id, text));
            }
        }
        if state.is_ending && state.queue.undelivered() == 0 {
            drop(state);
            self.session.close(CloseReason::Ended);
            return NextOutput::Ready(SessionOutput::Closed(CloseReason::Ended));
        }
        match state.closed {
            Some(reason) => NextOutput::Ready(SessionOutput::Closed(reason)),
            None => NextOutput::None,
        }
    }

    /// Reads a result that was delivered before.
    async fn read_result(&self, job: JobId) -> SegmentOutcome {
        let missing = |error: &str, detail: &str| SegmentOutcome::Missing {
            job: Some(job),
            error: error.to_owned(),
            detail: detail.to_owned(),
        };
        match self.session.engine().job(job).await {
            Ok(Some(view)) if view.progress.ended.as_ref().is_some_and(|e| e.result.is_some()) => {
                let view = Arc::new(self.session.engine().with_full_result(view).await);
                SegmentOutcome::Result { view, speech_ms: None, delay_ms: None }
            }
            Ok(_) => missing("JOB_NOT_FOUND", "the result is not kept any more"),
            Err(error) => missing(error.code(), &error.to_string()),
        }
    }
}

impl<S: Store, T: Timer> Drop for ClientConnection<S, T> {
    fn drop(&mut self) {
        let mut state = self.session.state.lock();
        if state.connection == self.number {
            state.disconnected_ms = Some(self.session.now_ms());
            drop(state);
            self.session.timer_wakeup.notify_one();
        }
    }
}
