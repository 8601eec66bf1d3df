//! Audio that arrives while it is being spoken.
//!
//! Start at [`SoundStream::next`] on the handler's side and at [`SoundStreams`] on the node's.
//!
//! Invariant: a stream that ends incomplete belongs to a job that was cancelled.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use lingua_wire::node::JobRef;
use tokio::sync::{Mutex, mpsc};

use super::job::Sound;

/// Most pieces that wait for a handler: minutes of speech in frames of 20 ms.
const PIECES_MAX: usize = 8192;

/// Audio that arrives while it is being spoken. Clones share it: each piece goes to one of them.
#[derive(Debug, Clone)]
pub struct SoundStream {
    /// `pcm16`, or `opus_packets` (each packet after its length in two bytes, big-endian).
    pub format: String,
    /// Samples a second, if the format does not say.
    pub sample_rate: Option<u32>,
    pieces: Arc<Mutex<mpsc::Receiver<Bytes>>>,
    is_whole: Arc<AtomicBool>,
}

impl SoundStream {
    /// The next piece; `None` at the end.
    pub async fn next(&self) -> Option<Bytes> {
        self.pieces.lock().await.recv().await
    }

    /// Whether all audio has arrived, once [`next`](Self::next) has returned `None`.
    pub fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Acquire)
    }
}

impl PartialEq for SoundStream {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pieces, &other.pieces)
    }
}

impl Eq for SoundStream {}

/// The streams that are open.
#[derive(Debug, Default)]
pub(super) struct SoundStreams(HashMap<JobRef, OpenStream>);

#[derive(Debug)]
struct OpenStream {
    pieces: mpsc::Sender<Bytes>,
    is_whole: Arc<AtomicBool>,
    bytes: u64,
}

impl SoundStreams {
    /// Opens the stream of a job; `sound` has its format and no bytes yet.
    pub(super) fn open(&mut self, job: JobRef, sound: Sound) -> SoundStream {
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        let is_whole = Arc::new(AtomicBool::new(false));
        let open = OpenStream { pieces: sender, is_whole: Arc::clone(&is_whole), bytes: 0 };
        self.0.insert(job, open);
        let Sound { format, sample_rate, .. } = sound;
        SoundStream { format, sample_rate, pieces: Arc::new(Mutex::new(pieces)), is_whole }
    }

    /// Passes on a piece; returns whether the handler keeps up.
    pub(super) fn push(&mut self, job: JobRef, piece: Bytes) -> bool {
        match self.0.get_mut(&job) {
            Some(open) => {
                open.bytes += piece.len() as u64;
                !matches!(open.pieces.try_send(piece), Err(mpsc::error::TrySendError::Full(_)))
            }
            // The job has ended, or was refused.
            None => true,
        }
    }

    /// Ends a stream of so many bytes. If another number arrived, the stream is not whole.
    pub(super) fn end(&mut self, job: JobRef, bytes: u64) {
        if let Some(open) = self.0.remove(&job) {
            open.is_whole.store(open.bytes == bytes, Ordering::Release);
        }
    }

    /// Ends all streams, because the connection is lost; gives their jobs.
    pub(super) fn close_all(&mut self) -> Vec<JobRef> {
        self.0.drain().map(|(job, _)| job).collect()
    }
}
