//! What somebody is saying, while it is being said.
//!
//! Start at [`Speech::push`]. A job can be given to a node with its first sound; the rest follows. The whole is kept until
//! the job has ended, so that another node can begin anew.
//!
//! Invariant: at most [`SPEECH_BYTES_MAX`] bytes; what is whole does not grow.

use std::sync::Arc;

use bytes::Bytes;

use parking_lot::Mutex;

/// Most bytes of one utterance.
pub const SPEECH_BYTES_MAX: usize = 2 << 20;

/// What somebody is saying.
#[derive(Debug)]
pub struct Speech {
    /// How it is coded.
    pub format: Arc<str>,
    /// In Hz; 0 if the format says.
    pub sample_rate: u32,
    said: Mutex<Said>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    sound: Vec<u8>,
    is_whole: bool,
}

impl Speech {
    /// Nothing yet.
    pub fn new(format: Arc<str>, sample_rate: u32) -> Self {
        Self { format, sample_rate, said: Mutex::default() }
    }

    /// Adds sound; not if it is whole already, or too long. Says whether it did.
    pub fn push(&self, sound: &[u8]) -> bool {
        let mut said = self.said.lock();
        if said.is_whole || said.sound.len() + sound.len() > SPEECH_BYTES_MAX {
            return false;
        }
        said.sound.extend_from_slice(sound);
        true
    }

    /// Nothing more will come.
    pub fn finish(&self) {
        self.said.lock().is_whole = true;
    }

    /// Whether nothing more will come.
    pub fn is_whole(&self) -> bool {
        self.said.lock().is_whole
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.said.lock().sound.len()
    }

    /// The sound from this byte on, and whether it is whole.
    pub fn since(&self, start: usize) -> (Bytes, bool) {
        let said = self.said.lock();
        (Bytes::copy_from_slice(said.sound.get(start..).unwrap_or_default()), said.is_whole)
    }
}

impl PartialEq for Speech {
    fn eq(&self, other: &Self) -> bool {
        let same = |a: &Self, b: &Self| a.format == b.format && a.sample_rate == b.sample_rate;
        // One lock at a time: they may be the same.
        same(self, other) && self.since(0) == other.since(0)
    }
}

impl Eq for Speech {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_whole_does_not_grow_and_nothing_grows_without_bound() {
        let speech = Speech::new("pcm16".into(), 16_000);
        assert!(speech.push(b"ab") && speech.push(b"cd"));
        assert_eq!(speech.since(1), (Bytes::from_static(b"bcd"), false));
        assert!(!speech.push(&vec![0; SPEECH_BYTES_MAX]), "too long");
        speech.finish();
        assert!(!speech.push(b"e"));
        assert_eq!((speech.since(9), speech.bytes()), ((Bytes::new(), true), 4));
    }
}
