//! The clocks of the embedded store: the machine's, and one that tests and simulations move.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A clock in milliseconds since the Unix epoch.
pub trait Clock: Send + Sync + 'static {
    /// The present time. It never goes backwards.
    fn now_ms(&self) -> u64;
}

/// The machine's clock: the wall time at the start plus the monotonic time since, so that a step of
/// the wall clock expires nothing.
#[derive(Debug, Clone)]
pub struct SystemClock {
    started: Instant,
    wall_at_start: Duration,
}

impl SystemClock {
    /// Starts at the wall time.
    #[allow(clippy::disallowed_methods, reason = "the only place that reads the clock")]
    pub fn new() -> Self {
        let wall_at_start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), wall_at_start }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        (self.wall_at_start + self.started.elapsed()).as_millis() as u64
    }
}

/// A clock that only moves when it is told to. Clones share the time.
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Starts at this time.
    pub fn at(now_ms: u64) -> Self {
        Self(Arc::new(AtomicU64::new(now_ms)))
    }

    /// Moves the time forward.
    pub fn advance(&self, by_ms: u64) {
        self.0.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
