//! Whether anybody speaks: voice activity detection, for sessions whose clients never say when a turn ends.
//!
//! Start at [`Voice::hears`]. The detector wants 256 samples at 16 kHz at a time; what comes at another rate is sampled anew, coarsely:
//! it is only listened to, never passed on.
//!
//! Invariant: the state of one session costs about 10 KiB.

use earshot::Detector;

/// What the detector listens to.
const RATE: u64 = 16_000;
const SAMPLES: usize = 256;

/// From this score on somebody speaks.
const SPEECH: f32 = 0.5;

/// Listens to one session.
pub(super) struct Voice {
    detector: Box<Detector>,
    sample_rate: u64,
    /// Samples at 16 kHz that the detector has not heard yet.
    waiting: Vec<i16>,
    /// How many samples have come, and how many of them were taken.
    came: u64,
    taken: u64,
    is_speech: bool,
}

impl Voice {
    pub(super) fn new(sample_rate: u32) -> Self {
        Self {
            detector: Detector::default_boxed(),
            sample_rate: u64::from(sample_rate.max(1)),
            waiting: Vec::with_capacity(2 * SAMPLES),
            came: 0,
            taken: 0,
            is_speech: false,
        }
    }

    /// Whether somebody speaks at the end of this frame, or did within it.
    pub(super) fn hears(&mut self, frame: &[u8]) -> bool {
        let mut any = self.is_speech;
        for &pair in frame.as_chunks::<2>().0 {
            self.came += 1;
            // The sample that is nearest to each moment of 1/16,000 s.
            while self.taken * self.sample_rate < self.came * RATE {
                self.waiting.push(i16::from_le_bytes(pair));
                self.taken += 1;
                if self.waiting.len() == SAMPLES {
                    self.is_speech = self.detector.predict_i16(&self.waiting) >= SPEECH;
                    self.waiting.clear();
                    any |= self.is_speech;
                }
            }
        }
        any
    }
}

impl std::fmt::Debug for Voice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Voice").field("is_speech", &self.is_speech).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod vowel;

#[cfg(test)]
mod tests {
    use super::vowel::frame;
    use super::*;

    #[test]
    fn a_vowel_is_heard_at_any_rate_and_a_faint_hiss_is_not() {
        for rate in [8_000, 16_000, 24_000, 48_000] {
            let mut voice = Voice::new(rate);
            let hiss = (0..50).filter(|&n| voice.hears(&frame(rate, n, false))).count();
            let vowel = (50..150).filter(|&n| voice.hears(&frame(rate, n, true))).count();
            assert!(hiss <= 5, "{hiss} of 50 frames of hiss at {rate} Hz");
            assert!(vowel >= 50, "{vowel} of 100 frames of a vowel at {rate} Hz");
        }
    }

    #[test]
    fn as_many_samples_are_heard_as_time_has() {
        for rate in [8_000, 24_000, 48_000] {
            let mut voice = Voice::new(rate);
            for n in 0..50 {
                voice.hears(&frame(rate, n, true));
            }
            assert_eq!(voice.taken, RATE, "a second at {rate} Hz");
        }
    }
}
