//! The request to stop, and how long the node may take to follow it.
//!
//! Start at [`StopSignal::next`].

use std::future::{Future, pending};
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// How far a node is with stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopPhase {
    /// The node was not asked to stop.
    Running,
    /// The node finishes its jobs, until this moment at most.
    Stopping { until: Instant },
    /// The node has to end now.
    Expired,
}

/// Waits for the request to stop and then for the end of the grace.
pub(super) struct StopSignal<'a> {
    requested: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
    grace: Duration,
    phase: StopPhase,
}

impl<'a> StopSignal<'a> {
    pub(super) fn new(requested: impl Future<Output = ()> + Send + 'a, grace: Duration) -> Self {
        Self { requested: Box::pin(requested), grace, phase: StopPhase::Running }
    }

    pub(super) fn phase(&self) -> StopPhase {
        self.phase
    }

    /// Waits for the next phase. Cancel safe.
    pub(super) async fn next(&mut self) -> StopPhase {
        self.phase = match self.phase {
            StopPhase::Running => {
                self.requested.as_mut().await;
                StopPhase::Stopping { until: Instant::now() + self.grace }
            }
            StopPhase::Stopping { until } => {
                sleep_until(until).await;
                StopPhase::Expired
            }
            StopPhase::Expired => pending().await,
        };
        self.phase
    }

    /// Leaves at most this much time from now on.
    pub(super) fn shorten(&mut self, within: Duration) {
        if let StopPhase::Stopping { until } = &mut self.phase {
            *until = (*until).min(Instant::now() + within);
        }
    }
}
