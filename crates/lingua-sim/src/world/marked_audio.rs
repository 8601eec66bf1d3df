//! Audio whose frames carry the number of their session and their own.
//!
//! Start at [`frame`] and [`decode`]. The numbers are in samples that are too quiet to count as
//! speech, so that silent frames have numbers too.

/// Length of a frame.
pub(super) const FRAME_MS: u64 = 100;

/// Samples per second.
pub(super) const RATE: u32 = 8_000;

const FRAME_BYTES: usize = 2 * RATE as usize * FRAME_MS as usize / 1000;

/// A sample that counts as speech.
const LOUD: i16 = 0x4000;

/// Five bits per sample: far below what counts as speech.
const DIGITS: usize = 4;
const DIGIT_BITS: usize = 5;

/// Frame number `item` of a session.
pub(super) fn frame(session: u32, item: u32, is_loud: bool) -> Vec<u8> {
    let mut samples = vec![if is_loud { LOUD } else { 0 }];
    for number in [session, item] {
        let digit = |at: usize| (number >> (DIGIT_BITS * at)) as i16 & ((1 << DIGIT_BITS) - 1);
        samples.extend((0..DIGITS).map(digit));
    }
    samples.resize(FRAME_BYTES / 2, 0);
    samples.into_iter().flat_map(i16::to_le_bytes).collect()
}

/// The numbers of the frames as ranges, `12-18,20-25`, if all are of this session.
pub(super) fn decode(session: u32, audio: &[u8]) -> String {
    let mut runs: Vec<(u32, u32)> = vec![];
    for frame in audio.chunks(FRAME_BYTES) {
        let Some((_, item)) = numbers(frame).filter(|(of, _)| *of == session) else {
            return format!("garbled after {runs:?}");
        };
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == item => *last = item,
            _ => runs.push((item, item)),
        }
    }
    runs.iter().map(|(from, to)| format!("{from}-{to}")).collect::<Vec<_>>().join(",")
}

fn numbers(frame: &[u8]) -> Option<(u32, u32)> {
    let samples = frame.as_chunks::<2>().0;
    let number = |from: usize| -> u32 {
        let digits = samples[from..from + DIGITS].iter().enumerate();
        digits.map(|(at, s)| u32::from(u16::from_le_bytes(*s)) << (DIGIT_BITS * at)).sum()
    };
    (frame.len() == FRAME_BYTES).then(|| (number(1), number(1 + DIGITS)))
}

/// Reads ranges back.
pub(super) fn parse_runs(runs: &str) -> Option<Vec<(u32, u32)>> {
    let run = |run: &str| {
        let (from, to) = run.split_once('-')?;
        Some((from.parse().ok()?, to.parse().ok()?))
    };
    runs.split(',').map(run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_other_sessions_and_missing_frames_are_seen() {
        let audio = |items: &[u32]| -> Vec<u8> {
            items.iter().flat_map(|&item| frame(7, item, item % 2 == 0)).collect()
        };
        assert_eq!(decode(7, &audio(&[998, 999, 1000, 1024])), "998-1000,1024-1024");
        assert_eq!(parse_runs("998-1000,1024-1024"), Some(vec![(998, 1000), (1024, 1024)]));
        assert!(decode(8, &audio(&[1])).starts_with("garbled"), "of another session");
        assert!(decode(7, &audio(&[1, 2])[..2_000]).starts_with("garbled"), "half a frame");
        assert_eq!(decode(7, &audio(&[2, 1])), "2-2,1-1");
    }

    #[test]
    fn silent_frames_are_silent_despite_their_numbers() {
        let encoding = lingua_core::session::AudioEncoding::Pcm16 { sample_rate: RATE };
        let silent = encoding.measure(&frame(u32::MAX >> 12, u32::MAX >> 12, false)).unwrap();
        assert_eq!((silent.us, silent.is_speech), (1000 * FRAME_MS, false));
        assert!(encoding.measure(&frame(0, 0, true)).unwrap().is_speech);
    }
}
