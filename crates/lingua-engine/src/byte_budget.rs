//! Bounds on what an instance holds, in bytes.
//!
//! Start at `ByteBudget::take`. Code that keeps data of a client in memory takes its bytes from
//! a budget and gives them back by dropping [`HeldBytes`].
//!
//! Invariant: the bytes in use are the sum of all [`HeldBytes`] of the budget, and never more than
//! its limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lingua_store::Store;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::EngineMetrics;
use crate::options::Bounds;
use crate::{Engine, Timer};

/// The budgets of an instance.
#[derive(Debug)]
pub(crate) struct ByteBudgets {
    /// Jobs that have not ended: what was asked for, without audio.
    pub(crate) open_jobs: Arc<ByteBudget>,
    /// Those that wait for a slot: with their audio.
    pub(crate) waiting_jobs: Arc<ByteBudget>,
    /// Audio of clients, inline or spoken in a session, until its job has ended.
    pub(crate) audio: Arc<ByteBudget>,
    /// Bodies of requests that are being received.
    pub(crate) requests: Arc<ByteBudget>,
    /// Long responses that their clients have not read yet.
    pub(crate) responses: Arc<ByteBudget>,
}

impl ByteBudgets {
    pub(crate) fn new(bounds: &Bounds, metrics: &EngineMetrics) -> Self {
        let budget = |what, kind, limit| {
            let (held, refused) = (metrics.held_bytes.of(kind), metrics.bytes_refused.of(kind));
            Arc::new(ByteBudget { what, limit, used: AtomicUsize::new(0), held, refused })
        };
        Self {
            open_jobs: budget("open jobs", "open_jobs", bounds.open_bytes_max),
            waiting_jobs: budget("waiting jobs", "waiting_jobs", bounds.waiting_bytes_max),
            audio: budget("audio of clients", "audio", bounds.audio_bytes_max),
            requests: budget("bodies of requests", "requests", bounds.request_bytes_max),
            responses: budget("unread responses", "responses", bounds.response_bytes_max),
        }
    }
}

/// How many bytes may be held at a time.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    /// Named in the error when it is full.
    what: &'static str,
    limit: usize,
    used: AtomicUsize,
    held: Gauge,
    refused: Counter,
}

/// There is no room for so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum OverBudget {
    /// There will be room when something else has ended.
    #[error("the {what} of this instance are at their limit of {limit} bytes; try again later")]
    Full { what: &'static str, limit: usize },
    /// There will never be room.
    #[error("it has {bytes} bytes, and all {what} together may have {limit}; send less at a time")]
    TooLarge { what: &'static str, bytes: usize, limit: usize },
}

impl OverBudget {
    /// The error code that users see.
    pub fn code(self) -> &'static str {
        match self {
            Self::Full { .. } => "RATE_LIMITED",
            Self::TooLarge { .. } => "PAYLOAD_TOO_LARGE",
        }
    }
}

impl ByteBudget {
    /// Takes so many bytes until the result is dropped.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Result<HeldBytes, OverBudget> {
        let more = |used: usize| used.checked_add(bytes).filter(|more| *more <= self.limit);
        if self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            self.refused.inc();
            let Self { what, limit, .. } = **self;
            return Err(match bytes > limit {
                true => OverBudget::TooLarge { what, bytes, limit },
                false => OverBudget::Full { what, limit },
            });
        }
        self.held.inc_by(bytes as i64);
        Ok(HeldBytes { budget: Arc::clone(self), bytes })
    }
}

/// Bytes of a budget, until this is dropped.
#[derive(Debug)]
pub struct HeldBytes {
    budget: Arc<ByteBudget>,
    bytes: usize,
}

impl HeldBytes {
    /// Adds bytes of the same budget.
    pub fn absorb(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.budget, &other.budget), "bytes of another budget");
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// Takes bytes for the body of a request.
    pub fn hold_request(&self, bytes: usize) -> Result<HeldBytes, OverBudget> {
        self.budgets.requests.take(bytes)
    }

    /// Takes bytes for a response that its client has not read yet.
    pub fn hold_response(&self, bytes: usize) -> Result<HeldBytes, OverBudget> {
        self.budgets.responses.take(bytes)
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.held.dec_by(self.bytes as i64);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    fn budget(limit: usize) -> Arc<ByteBudget> {
        let bounds = Bounds { audio_bytes_max: limit, ..Bounds::default() };
        ByteBudgets::new(&bounds, &EngineMetrics::new(&mut Registry::default())).audio
    }

    #[test]
    fn bytes_are_taken_up_to_the_limit_and_given_back() {
        let budget = budget(100);
        let mut first = budget.take(60).unwrap();
        first.absorb(budget.take(30).unwrap());
        assert_eq!(budget.take(20).unwrap_err().code(), "RATE_LIMITED");
        assert_eq!((budget.held.get(), budget.refused.get()), (90, 1));
        drop(first);
        assert_eq!(budget.held.get(), 0);
        assert!(budget.take(100).is_ok());
    }

    #[test]
    fn what_never_fits_is_too_large() {
        assert_eq!(budget(100).take(101).unwrap_err().code(), "PAYLOAD_TOO_LARGE");
        assert!(budget(100).take(usize::MAX).is_err());
    }
}
