//! How much faster than real time a client may send audio.
//!
//! A client may send a file faster than real time, but not without bound: the scheduler keeps the
//! audio until nodes have processed it. Start at [`AudioRateLimit::take`].

/// A token bucket of audio that refills with time.
#[derive(Debug, Clone)]
pub struct AudioRateLimit {
    /// Multiple of real time.
    rate: u64,
    /// Most audio that may arrive at once, in microseconds.
    burst_us: u64,
    available_us: u64,
    refilled_ms: u64,
}

impl AudioRateLimit {
    /// Allows `rate` times real time, averaged over `window_ms`.
    pub fn new(rate: u64, window_ms: u64, now_ms: u64) -> Self {
        let burst_us = rate.saturating_mul(window_ms).saturating_mul(1000);
        Self { rate, burst_us, available_us: burst_us, refilled_ms: now_ms }
    }

    /// Takes this much audio; if that is too much, returns for how many milliseconds to wait.
    pub fn take(&mut self, us: u64, now_ms: u64) -> Result<(), u64> {
        let passed_ms = now_ms.saturating_sub(self.refilled_ms);
        self.refilled_ms = self.refilled_ms.max(now_ms);
        let refill_us = passed_ms.saturating_mul(self.rate).saturating_mul(1000);
        self.available_us = self.available_us.saturating_add(refill_us).min(self.burst_us);
        match self.available_us.checked_sub(us) {
            Some(available_us) => {
                self.available_us = available_us;
                Ok(())
            }
            None => Err((us - self.available_us).div_ceil(1000 * self.rate.max(1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_times_real_time_passes_for_ever_and_five_times_does_not() {
        for (times, passes) in [(1, true), (4, true), (5, false)] {
            let mut limit = AudioRateLimit::new(4, 5_000, 0);
            let all = (0..100_000).all(|n| limit.take(20_000, n * 20 / times).is_ok());
            assert_eq!(all, passes, "{times} times real time");
        }
    }

    #[test]
    fn a_client_that_waits_as_long_as_told_may_go_on() {
        let mut limit = AudioRateLimit::new(4, 1_000, 0);
        limit.take(4_000_000, 0).unwrap();
        let wait_ms = limit.take(20_000, 0).unwrap_err();
        assert_eq!(wait_ms, 5);
        assert!(limit.take(20_000, wait_ms - 1).is_err());
        assert!(limit.take(20_000, wait_ms).is_ok());
        assert!(limit.take(20_000, 0).is_err(), "a clock that goes back refills nothing");
    }
}
