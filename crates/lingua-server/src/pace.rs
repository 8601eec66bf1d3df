//! How fast a peer may send on a WebSocket.
//!
//! Start at [`Pace::take`]. A socket has one pace for messages, beyond which it is read more
//! slowly, and one for pings, beyond which it is closed: each ping costs a pong that the peer may
//! leave unread.

use std::time::Duration;

use tokio::time::Instant;

/// Pings in a second, in the long run, and at once.
const PINGS_PER_SECOND: u32 = 10;
const PINGS_BURST: u32 = 100;

/// Allows so many in a second in the long run, and so many at once.
#[derive(Debug)]
pub(crate) struct Pace {
    each: Duration,
    burst: Duration,
    /// When the allowance would be whole again.
    whole_at: Instant,
}

impl Pace {
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        let each = Duration::from_secs(1) / per_second.max(1);
        Self { each, burst: each * burst, whole_at: Instant::now() }
    }

    /// The pace of pings.
    pub(crate) fn of_pings() -> Self {
        Self::new(PINGS_PER_SECOND, PINGS_BURST)
    }

    /// The pace of messages: a second's worth at once.
    pub(crate) fn of_messages(per_second: u32) -> Self {
        Self::new(per_second, per_second)
    }

    /// Counts one; if it came too early, says until when to wait before the next.
    pub(crate) fn take(&mut self) -> Option<Instant> {
        let now = Instant::now();
        self.whole_at = self.whole_at.max(now) + self.each;
        let early_until = self.whole_at.checked_sub(self.burst)?;
        (early_until > now).then_some(early_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_then_the_rate_holds() {
        let mut pace = Pace::new(10, 5);
        assert!((0..5).all(|_| pace.take().is_none()));
        let wait = pace.take().expect("one too many") - Instant::now();
        assert_eq!(wait, Duration::from_millis(100));
        tokio::time::advance(Duration::from_millis(200)).await;
        assert!(pace.take().is_none() && pace.take().is_some());
    }
}
