//! The audio of a segment, while it is being spoken.
//!
//! Start at [`Speech::push`]. A streaming node gets the job with the first speech and the rest as
//! it arrives ([`Speech::since`]); any other node gets the whole at the end ([`Speech::to_bytes`]).
//! All audio is kept until the job has ended, so that another node can start from the beginning.
//!
//! Invariant: at most [`SPEECH_BYTES_MAX`] bytes; complete speech does not grow. Chunks are the
//! frames that the client's socket received; they are not copied.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::byte_budget::HeldBytes;
use crate::usage_limit::HeldUsage;

/// Most bytes of one segment.
pub const SPEECH_BYTES_MAX: usize = 2 << 20;

/// The audio of a segment.
#[derive(Debug)]
pub struct Speech {
    /// `pcm16` or `opus_packets`.
    pub format: Arc<str>,
    /// In Hz; 0 if the format says.
    pub sample_rate: u32,
    buffer: Mutex<SpeechBuffer>,
}

#[derive(Debug, Default)]
struct SpeechBuffer {
    chunks: Vec<Bytes>,
    bytes: usize,
    is_complete: bool,
    /// The bytes that it takes of the instance's budget.
    held: Option<HeldBytes>,
    /// The same for the limits of its tenant and token.
    usage: Option<HeldUsage>,
}

impl Speech {
    /// Without audio yet.
    pub fn new(format: Arc<str>, sample_rate: u32) -> Self {
        Self { format, sample_rate, buffer: Mutex::default() }
    }

    /// Adds audio: all chunks or none. Returns false if the speech is complete or would be too
    /// long.
    pub fn push<const N: usize>(&self, chunks: [Bytes; N]) -> bool {
        let mut buffer = self.buffer.lock();
        let bytes = buffer.bytes + chunks.iter().map(Bytes::len).sum::<usize>();
        if buffer.is_complete || bytes > SPEECH_BYTES_MAX {
            return false;
        }
        buffer.bytes = bytes;
        buffer.chunks.extend(chunks.into_iter().filter(|chunk| !chunk.is_empty()));
        true
    }

    /// Counts bytes of a budget as held by this speech.
    pub(crate) fn hold(&self, bytes: HeldBytes, usage: HeldUsage) {
        let mut buffer = self.buffer.lock();
        match &mut buffer.held {
            Some(held) => held.absorb(bytes),
            none => *none = Some(bytes),
        }
        match &mut buffer.usage {
            Some(held) => held.absorb(usage),
            none => *none = Some(usage),
        }
    }

    /// Marks the speech as complete.
    pub fn finish(&self) {
        self.buffer.lock().is_complete = true;
    }

    /// Whether all audio has arrived.
    pub fn is_complete(&self) -> bool {
        self.buffer.lock().is_complete
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.buffer.lock().bytes
    }

    /// Whether there is no audio yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The audio from byte `start` on, and whether it is complete. Copies nothing.
    pub fn since(&self, start: usize) -> (Vec<Bytes>, bool) {
        let buffer = self.buffer.lock();
        let mut chunks = vec![];
        let mut at = buffer.bytes;
        for chunk in buffer.chunks.iter().rev() {
            if at <= start {
                break;
            }
            at -= chunk.len();
            chunks.push(chunk.slice(start.saturating_sub(at).min(chunk.len())..));
        }
        chunks.reverse();
        (chunks, buffer.is_complete)
    }

    /// All audio so far in one piece.
    pub fn to_bytes(&self) -> Bytes {
        match &self.since(0).0[..] {
            [one] => one.clone(),
            chunks => chunks.concat().into(),
        }
    }
}

impl PartialEq for Speech {
    fn eq(&self, other: &Self) -> bool {
        self.format == other.format
            && self.sample_rate == other.sample_rate
            && self.is_complete() == other.is_complete()
            && self.to_bytes() == other.to_bytes()
    }
}

impl Eq for Speech {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_speech_does_not_grow_and_none_grows_without_bound() {
        let speech = Speech::new("pcm16".into(), 16_000);
        assert!(speech.push(["ab".into()]) && speech.push(["".into(), "cde".into()]));
        assert_eq!(speech.since(1), (vec!["b".into(), "cde".into()], false));
        assert_eq!(speech.since(2), (vec!["cde".into()], false));
        assert_eq!(speech.since(4), (vec!["e".into()], false));
        assert!(!speech.push([vec![0; SPEECH_BYTES_MAX].into()]), "too long");
        speech.finish();
        assert!(!speech.push(["f".into()]));
        assert_eq!((speech.since(9), speech.since(5)), ((vec![], true), (vec![], true)));
        assert_eq!((speech.to_bytes(), speech.len()), ("abcde".into(), 5));
    }

    #[test]
    fn a_chunk_is_the_frame_that_was_pushed() {
        let (speech, frame) = (Speech::new("pcm16".into(), 16_000), Bytes::from(vec![1, 2, 3]));
        speech.push([frame.clone()]);
        assert_eq!(speech.since(0).0[0].as_ptr(), frame.as_ptr());
        assert_eq!(speech.to_bytes().as_ptr(), frame.as_ptr());
    }
}
