//! How long to wait before the next try to connect.
//!
//! Start at [`Backoff::next_delay`]. Each delay is random, between the shortest one and a ceiling
//! that doubles, so that a fleet that lost its scheduler does not come back all at once.
//!
//! Invariant: a delay lies between `min` and `max`.

use std::time::Duration;

use rand::{Rng, RngExt};

/// After a connection that lasted this long, the delays start small again.
pub(super) const HEALTHY: Duration = Duration::from_secs(60);

/// Doublings after which the ceiling has reached any sensible maximum.
const DOUBLINGS_MAX: u32 = 20;

/// The delays of one node.
#[derive(Debug)]
pub(super) struct Backoff {
    min: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    pub(super) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max: max.max(min), failures: 0 }
    }

    /// The delay after one more failure.
    pub(super) fn next_delay(&mut self, random: &mut impl Rng) -> Duration {
        self.failures = self.failures.saturating_add(1).min(DOUBLINGS_MAX);
        let ceiling = self.min.saturating_mul(1 << self.failures).min(self.max);
        random.random_range(self.min..=ceiling)
    }

    /// Resets the delays if the connection lasted long enough.
    pub(super) fn connected_for(&mut self, lasted: Duration) {
        if lasted >= HEALTHY {
            self.failures = 0;
        }
    }
}

#[cfg(test)]
mod tests;
