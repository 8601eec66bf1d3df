//! Sound that says whose it is: each frame carries the number of its session and its own.
//!
//! Start at [`frame`] and [`hear`]. Numbers are written in samples that are too quiet to count as speech, so that a silent
//! frame has one, too.

/// How long a frame is.
pub(super) const FRAME_MS: u64 = 100;

/// Samples a second.
pub(super) const RATE: u32 = 8_000;

const FRAME_BYTES: usize = 2 * RATE as usize * FRAME_MS as usize / 1000;

/// A sample that is speech.
const LOUD: i16 = 0x4000;

/// Five bits to a sample: far from what counts as speech.
const DIGITS: usize = 4;
const DIGIT_BITS: usize = 5;

/// A frame of this session, with this number.
pub(super) fn frame(session: u32, item: u32, is_loud: bool) -> Vec<u8> {
    let mut samples = vec![if is_loud { LOUD } else { 0 }];
    for number in [session, item] {
        let digit = |at: usize| (number >> (DIGIT_BITS * at)) as i16 & ((1 << DIGIT_BITS) - 1);
        samples.extend((0..DIGITS).map(digit));
    }
    samples.resize(FRAME_BYTES / 2, 0);
    samples.into_iter().flat_map(i16::to_le_bytes).collect()
}

/// What a node makes of sound: the numbers of its frames as runs, `12-18,20-25`, if they are all of this session.
pub(super) fn hear(session: u32, sound: &[u8]) -> String {
    let mut runs: Vec<(u32, u32)> = vec![];
    for frame in sound.chunks(FRAME_BYTES) {
        let Some((of, item)) = numbers(frame).filter(|(of, _)| *of == session) else {
            return format!("garbled after {runs:?}");
        };
        debug_assert_eq!(of, session);
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

/// Reads runs back.
pub(super) fn read_runs(runs: &str) -> Option<Vec<(u32, u32)>> {
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
    fn sound_says_whose_it_is_and_what_is_missing_in_it() {
        let said = |items: &[u32]| -> Vec<u8> {
            items.iter().flat_map(|&item| frame(7, item, item % 2 == 0)).collect()
        };
        assert_eq!(hear(7, &said(&[998, 999, 1000, 1024])), "998-1000,1024-1024");
        assert_eq!(read_runs("998-1000,1024-1024"), Some(vec![(998, 1000), (1024, 1024)]));
        assert!(hear(8, &said(&[1])).starts_with("garbled"), "of another session");
        assert!(hear(7, &said(&[1, 2])[..2_000]).starts_with("garbled"), "half a frame");
        assert_eq!(hear(7, &said(&[2, 1])), "2-2,1-1");
    }

    #[test]
    fn silence_is_silent() {
        let format = lingua_core::session::Format::Pcm16 { sample_rate: RATE };
        let silent = format.measure(&frame(u32::MAX >> 12, u32::MAX >> 12, false)).unwrap();
        assert_eq!((silent.us, silent.speech), (1000 * FRAME_MS, false));
        assert!(format.measure(&frame(0, 0, true)).unwrap().speech);
    }
}
