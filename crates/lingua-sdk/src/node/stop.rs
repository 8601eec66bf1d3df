//! The wish to stop, and how long the node may take to fulfil it.
//!
//! Start at [`Stop::next`].

use std::future::{Future, pending};
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// How far a node is on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nobody asked it to stop.
    Working,
    /// It finishes what it has, until then.
    Stopping {
        /// When it has to leave.
        until: Instant,
    },
    /// It has to leave now.
    Over,
}

/// Waits for the wish to stop and then for the end of the grace.
pub(super) struct Stop<F> {
    asked: Pin<Box<F>>,
    grace: Duration,
    phase: Phase,
}

impl<F: Future<Output = ()>> Stop<F> {
    pub(super) fn new(asked: F, grace: Duration) -> Self {
        Self { asked: Box::pin(asked), grace, phase: Phase::Working }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Waits for the next phase. It may be dropped and asked again without losing anything.
    pub(super) async fn next(&mut self) -> Phase {
        self.phase = match self.phase {
            Phase::Working => {
                self.asked.as_mut().await;
                Phase::Stopping { until: Instant::now() + self.grace }
            }
            Phase::Stopping { until } => {
                sleep_until(until).await;
                Phase::Over
            }
            Phase::Over => pending().await,
        };
        self.phase
    }

    /// Leaves at most this much time from now on.
    pub(super) fn hurry(&mut self, within: Duration) {
        if let Phase::Stopping { until } = &mut self.phase {
            *until = (*until).min(Instant::now() + within);
        }
    }
}
