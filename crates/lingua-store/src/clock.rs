//! The clock of the embedded store, which its owner brings, and one that tests and simulations
//! move.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock in milliseconds since the Unix epoch.
pub trait Clock: Send + Sync + 'static {
    /// The present time. It never goes backwards.
    fn now_ms(&self) -> u64;
}

/// A clock that moves only by [`ManualClock::advance`]. Clones share the time.
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
