//! The input of a job on a node: whole with the assignment, or streamed while it is spoken.
//!
//! Start at [`JobAudio::of`]. As in the SDK, audio is incomplete if its length differs from the
//! announced number of bytes.

use lingua_engine::node::Assignment;
use std::sync::Arc;

use lingua_core::job::JobSpec;

use super::segment_echo::SegmentEcho;

/// The input that has arrived so far.
#[derive(Debug)]
pub(super) struct JobAudio {
    spec: Arc<JobSpec>,
    sound: Vec<u8>,
    /// Set at the end of the stream: whether all of it arrived.
    end: Option<bool>,
}

impl JobAudio {
    pub(super) fn of(assignment: &Assignment) -> Self {
        let request = &assignment.request;
        let whole = (!assignment.stream).then(|| request.audio()).flatten();
        let sound = whole.map(|(_, _, sound)| sound.to_vec()).unwrap_or_default();
        Self { spec: Arc::clone(&request.spec), sound, end: (!assignment.stream).then_some(true) }
    }

    /// Whether the stream is still open.
    pub(super) fn is_open(&self) -> bool {
        self.end.is_none()
    }

    /// Whether a part was lost.
    pub(super) fn is_incomplete(&self) -> bool {
        self.end == Some(false)
    }

    /// Appends a part.
    pub(super) fn push(&mut self, sound: &[u8]) {
        if self.is_open() {
            self.sound.extend_from_slice(sound);
        }
    }

    /// Ends the stream of this many bytes; whether it was open.
    pub(super) fn end(&mut self, bytes: usize) -> bool {
        let was_open = self.is_open();
        if was_open {
            self.end = Some(bytes == self.sound.len());
        }
        was_open
    }

    /// The result for this input, after a name.
    pub(super) fn echo(&self, name: String) -> String {
        match SegmentEcho::of(&self.spec, &self.sound) {
            Some(echo) => format!("{name} {echo}"),
            None => name,
        }
    }
}
