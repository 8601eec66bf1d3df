//! States, attempts, and which may follow which.

use std::fmt;

use crate::id::Attempt;

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobState {
    /// Accepted.
    New,
    /// Searching or waiting for a slot.
    Selecting,
    /// Has a slot.
    Reserved,
    /// Sent to the node.
    Dispatched,
    /// The node has confirmed it.
    Acked,
    /// An attempt failed; the next is being prepared.
    Retrying,
    /// Has its result.
    Done,
    /// Failed for good.
    Failed,
    /// Cancelled by its client.
    Cancelled,
}

impl JobState {
    /// Every state.
    pub const ALL: [Self; 9] = [
        Self::New,
        Self::Selecting,
        Self::Reserved,
        Self::Dispatched,
        Self::Acked,
        Self::Retrying,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Whether the job has ended.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }

    /// The name on the wire and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::Selecting => "SELECTING",
            Self::Reserved => "RESERVED",
            Self::Dispatched => "DISPATCHED",
            Self::Acked => "ACKED",
            Self::Retrying => "RETRYING",
            Self::Done => "DONE",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// The state of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// How far along an attempt it is.
    fn order(self) -> u8 {
        match self {
            Self::New | Self::Retrying => 0,
            Self::Selecting => 1,
            Self::Reserved => 2,
            Self::Dispatched => 3,
            Self::Acked => 4,
            Self::Done | Self::Failed | Self::Cancelled => 5,
        }
    }

    fn may_become(self, next: Self) -> bool {
        use JobState::{Acked, Dispatched, Done, New, Reserved, Retrying, Selecting};
        match (self, next) {
            (Self::Done | Self::Failed | Self::Cancelled, _) => false,
            // An open job may fail, be cancelled, or be tried again (after an attempt failed or
            // after its instance was lost).
            (_, Self::Failed | Self::Cancelled | Retrying) => true,
            (New | Retrying, Selecting) => true,
            (Selecting, Reserved) => true,
            (Reserved, Dispatched) => true,
            // A result may overtake its ACK.
            (Dispatched, Acked | Done) => true,
            (Acked, Done) => true,
            _ => false,
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A state and the attempt it belongs to: what a store compares before it changes a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stage {
    /// The state of the attempt.
    pub state: JobState,
    /// The current attempt.
    pub attempt: Attempt,
}

impl Stage {
    /// Whether any event leads from here to there.
    pub fn may_become(self, next: Self) -> bool {
        let attempt = match next.state {
            JobState::Retrying => self.attempt.next(),
            _ => self.attempt,
        };
        self.state.may_become(next.state) && next.attempt == attempt
    }

    /// Whether some events lead from here to there, in any number of steps: an owner does not write
    /// the steps that nobody else has to know.
    pub fn may_reach(self, next: Self) -> bool {
        let later_attempt = next.attempt > self.attempt && next.state != JobState::New;
        let onwards = next.attempt == self.attempt && next.state.order() > self.state.order();
        !self.state.is_terminal() && (later_attempt || onwards)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (attempt {})", self.state, self.attempt)
    }
}
