//! States, attempts, and which may follow which.

use std::fmt;

use crate::id::Attempt;
use crate::named_enum;

named_enum! {
    /// The state of a job.
    pub enum JobState {
        /// Accepted; no node has been chosen yet.
        New = "NEW",
        /// Searching or waiting for a slot.
        Selecting = "SELECTING",
        /// Has a slot.
        Reserved = "RESERVED",
        /// Sent to the node.
        Dispatched = "DISPATCHED",
        /// The node has confirmed it.
        Acked = "ACKED",
        /// An attempt failed; the next is being prepared.
        Retrying = "RETRYING",
        /// Has its result.
        Done = "DONE",
        /// Failed for good.
        Failed = "FAILED",
        /// Cancelled by its client.
        Cancelled = "CANCELLED",
    }
}

impl JobState {
    /// Whether the job has ended.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
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
    /// Whether some events lead from here to there, in any number of steps: an owner does not write
    /// the steps that no other instance has to know.
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
