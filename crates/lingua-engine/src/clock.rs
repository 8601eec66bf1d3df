//! The engine's clock, which can also be waited on.

use std::future::Future;
use std::time::Duration;

use lingua_store::Clock;
use tokio::time::Instant;

/// A clock that can also be waited on.
pub trait Timer: Clock + Clone {
    /// Waits for this long.
    fn sleep(&self, ms: u64) -> impl Future<Output = ()> + Send;

    /// Waits for this future, at most for so long; `None` if the time was up before.
    fn within<F: Future<Output: Send> + Send>(
        &self,
        ms: u64,
        future: F,
    ) -> impl Future<Output = Option<F::Output>> + Send {
        async move {
            tokio::select! {
                biased;
                output = future => Some(output),
                () = self.sleep(ms) => None,
            }
        }
    }
}

/// Tokio's clock, which tests can pause and advance: the wall time at the start plus the time
/// that has passed since.
#[derive(Debug, Clone)]
pub struct TokioTimer {
    started: Instant,
    wall_at_start_ms: u64,
}

impl TokioTimer {
    /// A clock that shows this wall time now, in milliseconds since the epoch.
    pub fn starting_at(wall_ms: u64) -> Self {
        Self { started: Instant::now(), wall_at_start_ms: wall_ms }
    }
}

impl Clock for TokioTimer {
    fn now_ms(&self) -> u64 {
        self.wall_at_start_ms + self.started.elapsed().as_millis() as u64
    }
}

impl Timer for TokioTimer {
    async fn sleep(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}
