//! Voice activity detection, for sessions whose clients do not say when a turn ends.
//!
//! Start at [`VoiceDetector::is_speech`]. The model takes 256 samples at 16 kHz at a time. Audio at
//! another rate is resampled coarsely, for the detector only.
//!
//! Invariant: the state of one session takes about 10 KiB.

use earshot::Detector;

/// The sample rate of the model, in Hz, and the samples of one prediction.
const RATE: u64 = 16_000;
const SAMPLES: usize = 256;

/// From this score on, the model hears a voice.
const SPEECH_SCORE: f32 = 0.5;

/// Detects speech in the audio of one session.
pub(crate) struct VoiceDetector {
    model: Box<Detector>,
    sample_rate: u64,
    /// Samples at 16 kHz that wait for the next prediction.
    pending: Vec<i16>,
    /// Samples received, and samples at 16 kHz made of them.
    received: u64,
    resampled: u64,
    is_speech: bool,
}

impl VoiceDetector {
    pub(crate) fn new(sample_rate: u32) -> Self {
        Self {
            model: Detector::default_boxed(),
            sample_rate: u64::from(sample_rate.max(1)),
            pending: Vec::with_capacity(2 * SAMPLES),
            received: 0,
            resampled: 0,
            is_speech: false,
        }
    }

    /// Whether there was speech before or within this frame of `pcm16`.
    pub(crate) fn is_speech(&mut self, frame: &[u8]) -> bool {
        let mut any = self.is_speech;
        for &pair in frame.as_chunks::<2>().0 {
            self.received += 1;
            // Takes the nearest sample for each 1/16,000 s.
            while self.resampled * self.sample_rate < self.received * RATE {
                self.pending.push(i16::from_le_bytes(pair));
                self.resampled += 1;
                if self.pending.len() == SAMPLES {
                    self.is_speech = self.model.predict_i16(&self.pending) >= SPEECH_SCORE;
                    self.pending.clear();
                    any |= self.is_speech;
                }
            }
        }
        any
    }
}

#[cfg(test)]
#[path = "../../tests/it/test_audio.rs"]
mod test_audio;

#[cfg(test)]
mod tests {
    use super::test_audio::frame;
    use super::*;

    #[test]
    fn a_vowel_is_speech_at_any_rate_and_a_faint_hiss_is_not() {
        for rate in [8_000, 16_000, 24_000, 48_000] {
            let mut voice = VoiceDetector::new(rate);
            let hiss = (0..50).filter(|&n| voice.is_speech(&frame(rate, n, false))).count();
            let vowel = (50..150).filter(|&n| voice.is_speech(&frame(rate, n, true))).count();
            assert!(hiss <= 5, "{hiss} of 50 frames of hiss at {rate} Hz");
            assert!(vowel >= 50, "{vowel} of 100 frames of a vowel at {rate} Hz");
        }
    }

    #[test]
    fn a_second_of_audio_becomes_16000_samples_at_any_rate() {
        for rate in [8_000, 24_000, 48_000] {
            let mut voice = VoiceDetector::new(rate);
            for n in 0..50 {
                voice.is_speech(&frame(rate, n, true));
            }
            assert_eq!(voice.resampled, RATE, "{rate} Hz");
        }
    }
}
