//! A client's connection to its session.
//!
//! Start at [`Attached::next`]: everything that the client is told, in the order in which it is told. When it is dropped, the
//! session waits for another.

use std::sync::Arc;

use lingua_core::JobId;
use lingua_core::planted::{self, Bug};
use lingua_core::session::{Delivery, SegmentId, Speaker};
use lingua_store::Store;

use super::options::SessionError;
use super::segment::Outcome;
use super::talk::Talk;
use crate::clock::Timer;
use crate::request::JobStatus;

/// Deliveries that are kept here as they were; of older ones, only the store has the result.
const RECENT: u64 = 4;

/// A client's connection to its session.
#[derive(Debug)]
pub struct Attached<S: Store, T: Timer> {
    talk: Arc<Talk<S, T>>,
    number: u64,
}

/// Something that the client is told.
#[derive(Debug, Clone)]
pub enum ToClient {
    /// A segment has become a job.
    Accepted(SegmentId, JobId),
    /// A part of a text.
    Partial(SegmentId, Arc<str>),
    /// What came of a segment.
    Delivered(Delivered),
    /// There is nothing more.
    Over(Over),
}

/// What came of a segment.
#[derive(Debug, Clone)]
pub struct Delivered {
    /// Its number in the session.
    pub seq: u64,
    /// Which segment.
    pub id: SegmentId,
    /// What.
    pub what: What,
}

/// What came of a segment.
#[derive(Debug, Clone)]
pub enum What {
    /// A result.
    Result {
        /// The job.
        view: Arc<JobStatus>,
        /// How long it was spoken, if that is still known.
        speech_ms: Option<u64>,
        /// How long it took after that.
        delay_ms: Option<u64>,
    },
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

/// Why a session, or this connection to it, is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// The client wanted to leave, and has everything.
    Ended,
    /// Another connection has it.
    Superseded,
    /// Nothing was heard for too long.
    Idle,
    /// Nobody came back.
    Away,
}

/// What there is for the client.
enum Found {
    Told(ToClient),
    /// A result that has to be read from the store.
    Kept(u64, SegmentId, JobId),
    Nothing,
}

impl<S: Store, T: Timer> Attached<S, T> {
    /// Takes the session over from any other connection. The client has seen everything up to `last_seq`.
    pub(super) fn new(talk: Arc<Talk<S, T>>, last_seq: u64) -> Self {
        let mut state = talk.state.lock();
        state.connection += 1;
        let number = state.connection;
        state.away_since_ms = None;
        state.heard_ms = talk.now_ms();
        state.accepted.clear();
        state.partials.clear();
        let again = u64::from(planted::is(Bug::DeliverTwice));
        state.come_back(last_seq.saturating_sub(again));
        drop(state);
        // The connection before sits in `next` and has to see that it is over.
        talk.for_client.notify_waiters();
        talk.for_keeper.notify_one();
        Self { talk, number }
    }

    /// The session's name.
    pub fn id(&self) -> &Arc<str> {
        &self.talk.new.id
    }

    /// What the session was started with.
    pub fn plan(&self) -> &[u8] {
        &self.talk.new.plan
    }

    /// A frame of audio; a detector may know better whether anything is said in it.
    pub fn audio(&self, frame: &[u8], is_speech: Option<bool>) -> Result<(), SessionError> {
        self.check()?;
        self.talk.audio(frame, is_speech)
    }

    /// A turn begins.
    pub fn turn_start(&self, speaker: Option<Speaker>) -> Result<(), SessionError> {
        self.check()?;
        self.talk.turn_start(speaker);
        Ok(())
    }

    /// A turn ends.
    pub fn turn_end(&self) -> Result<(), SessionError> {
        self.check()?;
        self.talk.turn_end();
        Ok(())
    }

    /// A turn that is written.
    pub fn text(&self, text: &str, speaker: Option<Speaker>) -> Result<(), SessionError> {
        self.check()?;
        self.talk.text(text, speaker);
        Ok(())
    }

    /// The client leaves: [`next`](Self::next) gives what is open, and then the end.
    pub fn end(&self) -> Result<(), SessionError> {
        self.check()?;
        self.talk.end();
        Ok(())
    }

    /// Only the latest connection is heard.
    fn check(&self) -> Result<(), SessionError> {
        match self.talk.state.lock().connection == self.number {
            true => Ok(()),
            false => Err(SessionError::Superseded),
        }
    }

    /// Waits for what the client is told next.
    pub async fn next(&self) -> ToClient {
        loop {
            let rung = self.talk.for_client.notified();
            match self.look() {
                Found::Told(told) => return told,
                Found::Kept(seq, id, job) => {
                    let what = self.read(job).await;
                    let mut state = self.talk.state.lock();
                    if state.connection == self.number {
                        state.order.rewind(seq);
                    }
                    return ToClient::Delivered(Delivered { seq, id, what });
                }
                Found::Nothing => rung.await,
            }
        }
    }

    fn look(&self) -> Found {
        let mut state = self.talk.state.lock();
        if state.connection != self.number {
            return Found::Told(ToClient::Over(Over::Superseded));
        }
        if let Some((id, job)) = state.accepted.pop_front() {
            return Found::Told(ToClient::Accepted(id, job));
        }
        if let Some(Delivery { seq, id, outcome }) = state.order.deliver() {
            state.jobs.remove(&seq);
            if !planted::is(Bug::PartialAfterResult) {
                state.partials.remove(&seq);
            }
            state.order.shrink(RECENT, |kept| {
                if let Outcome::Done { view, .. } = kept {
                    *kept = Outcome::Kept(view.id);
                }
            });
            return match outcome {
                Outcome::Done { view, speech_ms, delay_ms } => {
                    let (speech_ms, delay_ms) = (Some(speech_ms), Some(delay_ms));
                    let what = What::Result { view, speech_ms, delay_ms };
                    Found::Told(ToClient::Delivered(Delivered { seq, id, what }))
                }
                Outcome::Missing { job, error, detail } => {
                    let what = What::Missing { job, error, detail };
                    Found::Told(ToClient::Delivered(Delivered { seq, id, what }))
                }
                Outcome::Kept(job) => {
                    // Not delivered before it was read: whoever waits may give up meanwhile.
                    state.order.rewind(seq - 1);
                    Found::Kept(seq, id, job)
                }
            };
        }
        while let Some((seq, (id, text))) = state.partials.pop_first() {
            if state.order.is_open(seq) || planted::is(Bug::PartialAfterResult) {
                return Found::Told(ToClient::Partial(id, text));
            }
        }
        if state.is_ending && state.order.undelivered() == 0 {
            drop(state);
            self.talk.finish(Over::Ended);
            return Found::Told(ToClient::Over(Over::Ended));
        }
        match state.over {
            Some(over) => Found::Told(ToClient::Over(over)),
            None => Found::Nothing,
        }
    }

    /// A result that was delivered before, from the store.
    async fn read(&self, job: JobId) -> What {
        let missing = |error: &str, detail: &str| What::Missing {
            job: Some(job),
            error: error.to_owned(),
            detail: detail.to_owned(),
        };
        match self.talk.hub.engine.job(job).await {
            Ok(Some(view)) if view.progress.ended.as_ref().is_some_and(|e| e.result.is_some()) => {
                let view = Arc::new(view);
                What::Result { view, speech_ms: None, delay_ms: None }
            }
            Ok(_) => missing("JOB_NOT_FOUND", "its result is not kept any more"),
            Err(error) => missing(error.code(), &error.to_string()),
        }
    }
}

impl<S: Store, T: Timer> Drop for Attached<S, T> {
    fn drop(&mut self) {
        let mut state = self.talk.state.lock();
        if state.connection == self.number {
            state.away_since_ms = Some(self.talk.now_ms());
            drop(state);
            self.talk.for_keeper.notify_one();
        }
    }
}
