//! How fast somebody may speak: not much faster than time passes.
//!
//! A client may send a file faster than real time, but not without bound: what it sends has to be kept until nodes
//! have done it. Start at [`Pace::take`].

/// A bucket of audio that refills with time.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Times real time.
    rate: u64,
    /// Most that may be sent at once, in microseconds of audio.
    burst_us: u64,
    left_us: u64,
    at_ms: u64,
}

impl Pace {
    /// At most `rate` times real time, over a window of so many milliseconds.
    pub fn new(rate: u64, window_ms: u64, now_ms: u64) -> Self {
        let burst_us = rate.saturating_mul(window_ms).saturating_mul(1000);
        Self { rate, burst_us, left_us: burst_us, at_ms: now_ms }
    }

    /// Takes this much audio; if it is too much, says for how many milliseconds to wait.
    pub fn take(&mut self, us: u64, now_ms: u64) -> Result<(), u64> {
        let passed_ms = now_ms.saturating_sub(self.at_ms);
        self.at_ms = self.at_ms.max(now_ms);
        let refill_us = passed_ms.saturating_mul(self.rate).saturating_mul(1000);
        self.left_us = self.left_us.saturating_add(refill_us).min(self.burst_us);
        match self.left_us.checked_sub(us) {
            Some(left_us) => {
                self.left_us = left_us;
                Ok(())
            }
            None => Err((us - self.left_us).div_ceil(1000 * self.rate.max(1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_times_real_time_passes_for_ever_and_five_times_does_not() {
        for (times, passes) in [(1, true), (4, true), (5, false)] {
            let mut pace = Pace::new(4, 5_000, 0);
            let all = (0..100_000).all(|n| pace.take(20_000, n * 20 / times).is_ok());
            assert_eq!(all, passes, "{times} times real time");
        }
    }

    #[test]
    fn whoever_waits_as_told_may_go_on() {
        let mut pace = Pace::new(4, 1_000, 0);
        pace.take(4_000_000, 0).unwrap();
        let wait_ms = pace.take(20_000, 0).unwrap_err();
        assert_eq!(wait_ms, 5);
        assert!(pace.take(20_000, wait_ms - 1).is_err());
        assert!(pace.take(20_000, wait_ms).is_ok());
        assert!(pace.take(20_000, 0).is_err(), "a clock that goes back gives nothing");
    }
}
