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
mod tests {
    use super::*;

    /// 20 ms that sound somewhat like a vowel, or a steady hiss that is no speech.
    fn frame(rate: u32, n: u32, voiced: bool) -> Vec<u8> {
        let samples = rate / 50;
        let mut noise = n.wrapping_mul(2_654_435_761) | 1;
        let sample = |i: u32| {
            let t = f64::from(n * samples + i) / f64::from(rate);
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let hiss = f64::from(noise >> 16) / 65_536.0 - 0.5;
            let pitch = 120.0 + 20.0 * (t * 5.0).sin();
            let vowel: f64 = (1..30)
                .map(|k| {
                    let f = pitch * f64::from(k);
                    let formants = [(700.0, 90.0), (1_200.0, 110.0), (2_600.0, 160.0)];
                    let gain: f64 =
                        formants.iter().map(|(at, wide)| (-((f - at) / wide).powi(2)).exp()).sum();
                    gain * (t * f * std::f64::consts::TAU).sin()
                })
                .sum();
            let loud = 0.6 + 0.4 * (t * 25.0).sin();
            let value = if voiced { vowel * loud * 6_000.0 } else { hiss * 60.0 };
            (value as i16).to_le_bytes()
        };
        (0..samples).flat_map(sample).collect()
    }

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
