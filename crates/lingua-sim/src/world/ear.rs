//! What a node hears of a job: all of it with the order, or piece by piece while it is being said.
//!
//! Start at [`Ear::of`]. It does what the SDK's node does: what ends with another number of bytes than it was told is not whole.

use lingua_engine::node::Assignment;
use std::sync::Arc;

use lingua_core::job::JobSpec;

use super::segment_echo::SegmentEcho;

/// What was heard of a job so far.
#[derive(Debug)]
pub(super) struct Ear {
    spec: Arc<JobSpec>,
    sound: Vec<u8>,
    /// It has all come; not if pieces got lost.
    end: Option<bool>,
}

impl Ear {
    pub(super) fn of(assignment: &Assignment) -> Self {
        let request = &assignment.request;
        let whole = (!assignment.stream).then(|| request.audio()).flatten();
        let sound = whole.map(|(_, _, sound)| sound.to_vec()).unwrap_or_default();
        Self { spec: Arc::clone(&request.spec), sound, end: (!assignment.stream).then_some(true) }
    }

    /// Whether more is to come.
    pub(super) fn is_open(&self) -> bool {
        self.end.is_none()
    }

    /// Whether something got lost.
    pub(super) fn is_cut(&self) -> bool {
        self.end == Some(false)
    }

    /// More of it comes.
    pub(super) fn hear(&mut self, sound: &[u8]) {
        if self.is_open() {
            self.sound.extend_from_slice(sound);
        }
    }

    /// That was all, so many bytes; says whether it was open until now.
    pub(super) fn end(&mut self, bytes: usize) -> bool {
        let was_open = self.is_open();
        if was_open {
            self.end = Some(bytes == self.sound.len());
        }
        was_open
    }

    /// What it makes of it, behind its name.
    pub(super) fn echo(&self, name: String) -> String {
        match SegmentEcho::of(&self.spec, &self.sound) {
            Some(echo) => format!("{name} {echo}"),
            None => name,
        }
    }
}
