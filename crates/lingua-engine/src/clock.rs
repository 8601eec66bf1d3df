//! Time for the engine: telling it, and waiting for it.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use lingua_store::Clock;
use tokio::time::Instant;

/// A clock that can also be waited for.
pub trait Timer: Clock + Clone {
    /// Waits.
    fn sleep(&self, ms: u64) -> impl Future<Output = ()> + Send;
}

/// Tokio's clock, which tests can pause and move: the wall time at the start plus what has passed.
#[derive(Debug, Clone)]
pub struct TokioTimer {
    started: Instant,
    wall_at_start_ms: u64,
}

impl TokioTimer {
    /// Starts at this wall time.
    pub fn starting_at(wall_ms: u64) -> Self {
        Self { started: Instant::now(), wall_at_start_ms: wall_ms }
    }
}

impl Clock for TokioTimer {
    fn now_ms(&self) -> u64 {
        let now = TURN.get().unwrap_or_else(Instant::now);
        self.wall_at_start_ms + now.saturating_duration_since(self.started).as_millis() as u64
    }
}

thread_local! {
    /// When the turn began that this thread is in.
    static TURN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// A short piece of work during which the time stands still: it looks at the clock a dozen times, which takes longer
/// than some of what it does.
pub(crate) struct Turn(());

impl Turn {
    pub(crate) fn begin() -> Self {
        TURN.set(Some(Instant::now()));
        Self(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TURN.set(None);
    }
}

impl Timer for TokioTimer {
    async fn sleep(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}
