//! Where the embedded store gets the time from.
//!
//! A shared store has its own clock; the embedded one is given one, so that tests and simulations
//! can move it by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Something that tells the time in milliseconds since the Unix epoch.
pub trait Clock: Send + Sync + 'static {
    /// The time now. It never goes backwards.
    fn now_ms(&self) -> u64;
}

/// The machine's clock: the wall time at the start, and from then on the monotonic clock, so that a
/// step of the wall clock expires nothing.
#[derive(Debug, Clone)]
pub struct SystemClock {
    started: Instant,
    wall_at_start: Duration,
}

impl SystemClock {
    /// Starts at the wall time.
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
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

/// A clock that stands still until it is moved. Clones share the time.
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Stands at this time.
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
