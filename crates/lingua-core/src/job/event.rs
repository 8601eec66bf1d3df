//! What can happen to a job, what is to be done about it, and what is refused.

use super::{Grant, JobState, Stage};
use crate::id::{Attempt, Fence, NodeId};

/// What a node says about an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptReport {
    /// Which attempt.
    pub attempt: Attempt,
    /// Who says it.
    pub node: NodeId,
    /// The fence it was given, if it says so.
    pub fence: Option<Fence>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEvent {
    /// The owner starts to look for a slot.
    Select,
    /// A slot was taken.
    Granted(Grant),
    /// No slot is to be had.
    NoSlot(JobFailure),
    /// The job is about to be sent.
    Dispatch,
    /// The node has received it.
    Acked(AttemptReport),
    /// The node gave a result.
    Done(AttemptReport),
    /// The node gave up.
    NodeFailed {
        /// Who and which attempt.
        report: AttemptReport,
        /// Whether another try could help.
        retryable: bool,
    },
    /// The node had no room.
    Refused(AttemptReport),
    /// The node knew a newer fence: this order was overtaken by a later one. That says nothing about the node.
    Overtaken(AttemptReport),
    /// It could not be sent.
    SendFailed {
        /// Which attempt.
        attempt: Attempt,
    },
    /// The node did not confirm in time.
    AckTimeout {
        /// Which attempt.
        attempt: Attempt,
    },
    /// The node did not finish in time.
    RunTimeout {
        /// Which attempt.
        attempt: Attempt,
    },
    /// The node is gone.
    NodeLost {
        /// Which attempt.
        attempt: Attempt,
    },
    /// The owner died, and its heir can start over.
    Reclaimed,
    /// The owner died, and what is needed to start over died with it.
    InstanceLost,
    /// The time that the client gave is over.
    DeadlinePassed,
    /// The client does not want it any more.
    Cancel,
    /// The instance that runs it has a bug: the task of the job panicked.
    InternalError,
}

impl JobEvent {
    /// The attempt that it speaks of, if it speaks of one.
    pub fn attempt(&self) -> Option<Attempt> {
        match self {
            Self::SendFailed { attempt }
            | Self::AckTimeout { attempt }
            | Self::RunTimeout { attempt }
            | Self::NodeLost { attempt } => Some(*attempt),
            _ => self.report().map(|report| report.attempt),
        }
    }

    pub(super) fn report(&self) -> Option<&AttemptReport> {
        match self {
            Self::Acked(report)
            | Self::Done(report)
            | Self::Refused(report)
            | Self::Overtaken(report)
            | Self::NodeFailed { report, .. } => Some(report),
            _ => None,
        }
    }

    pub(super) fn is_possible_in(&self, state: JobState) -> bool {
        use JobState::{Acked, Dispatched, New, Reserved, Retrying, Selecting};
        match self {
            Self::Select => matches!(state, New | Retrying),
            Self::Granted(_) | Self::NoSlot(_) => state == Selecting,
            Self::Dispatch => state == Reserved,
            Self::Acked(_) | Self::Done(_) | Self::NodeFailed { .. } => {
                matches!(state, Dispatched | Acked)
            }
            Self::Refused(_) | Self::Overtaken(_) | Self::AckTimeout { .. } => state == Dispatched,
            Self::SendFailed { .. } => matches!(state, Reserved | Dispatched),
            Self::RunTimeout { .. } => state == Acked,
            Self::NodeLost { .. } => matches!(state, Reserved | Dispatched | Acked),
            Self::Reclaimed
            | Self::InstanceLost
            | Self::DeadlinePassed
            | Self::Cancel
            | Self::InternalError => true,
        }
    }
}

/// Something that the owner has to do, in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send the job to the node of its grant and start the ACK timer.
    Send,
    /// Turn the ACK lease into a run lease and start the run timer.
    Commit,
    /// Tell the node that its work is not wanted any more.
    CancelOnNode {
        /// Where it runs.
        grant: Grant,
        /// Which attempt.
        attempt: Attempt,
    },
    /// Give the slot back.
    Release {
        /// Which slot.
        grant: Grant,
        /// Which attempt.
        attempt: Attempt,
    },
    /// Start over with the next attempt.
    Retry {
        /// What was wrong with the last one.
        cause: Cause,
    },
    /// Tell the client that it came to nothing.
    Fail(JobFailure),
    /// Tell the client that it was called off.
    ConfirmCancel,
}

/// Why an attempt came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It could not be sent.
    SendFailed,
    /// No ACK in time.
    AckTimeout,
    /// No result in time.
    RunTimeout,
    /// The node gave up.
    NodeFailed,
    /// The node is gone.
    NodeLost,
    /// The node had no room.
    Refused,
    /// The instance that owned the job is gone.
    Reclaimed,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 7] = [
        Self::SendFailed,
        Self::AckTimeout,
        Self::RunTimeout,
        Self::NodeFailed,
        Self::NodeLost,
        Self::Refused,
        Self::Reclaimed,
    ];

    /// The word in metrics and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SendFailed => "send_failed",
            Self::AckTimeout => "ack_timeout",
            Self::RunTimeout => "run_timeout",
            Self::NodeFailed => "node_failed",
            Self::NodeLost => "node_lost",
            Self::Refused => "refused",
            Self::Reclaimed => "reclaimed",
        }
    }

    /// Whether the node may go on working unless it is told not to.
    pub(super) fn leaves_node_working(self) -> bool {
        matches!(self, Self::AckTimeout | Self::RunTimeout | Self::SendFailed)
    }
}

/// Why a job came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum JobFailure {
    /// No node can do it.
    #[error("no registered node can serve this job")]
    NoCapableNode,
    /// Nodes can, but none had room in time.
    #[error("no node had a free slot in time")]
    NoSlot,
    /// The node that the client wants cannot do it.
    #[error("the preferred node cannot serve this job")]
    PreferredNotCapable,
    /// The store does not answer, and without it nothing may be granted.
    #[error("the store is unreachable")]
    StoreDown,
    /// Every attempt failed.
    #[error("the last attempt failed ({}) and no retry is left", last.as_str())]
    RetriesExhausted {
        /// What was wrong with the last one.
        last: Cause,
    },
    /// The node said that no other try can help.
    #[error("the node failed and said that a retry cannot help")]
    NotRetryable,
    /// Out of time.
    #[error("the deadline passed")]
    Deadline,
    /// Lost with its instance.
    #[error("the instance that held the audio was lost")]
    InstanceLost,
    /// The task of the job panicked.
    #[error("the scheduler failed while it ran this job; its log says why")]
    Internal,
}

impl JobFailure {
    /// The error code that users see.
    pub fn code(self) -> &'static str {
        match self {
            Self::NoCapableNode => "NO_CAPABLE_NODE",
            Self::NoSlot | Self::RetriesExhausted { .. } => "ALL_CANDIDATES_FULL_OR_FAILED",
            Self::PreferredNotCapable => "PREFERRED_NODE_NOT_CAPABLE",
            Self::StoreDown => "SCHEDULER_DEPENDENCY_DOWN",
            Self::NotRetryable => "NODE_FAILED",
            Self::Deadline => "DEADLINE_EXCEEDED",
            Self::InstanceLost => "INSTANCE_LOST",
            Self::Internal => "INTERNAL",
        }
    }
}

/// Why an event changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It speaks of another attempt, node or fence.
    #[error("it is about another attempt; the job is {current}")]
    StaleAttempt {
        /// Where the job stands.
        current: Stage,
    },
    /// The job has ended.
    #[error("the job has ended as {state}")]
    Ended {
        /// How.
        state: JobState,
    },
    /// It cannot happen in this state.
    #[error("it cannot happen while the job is {state}")]
    OutOfPlace {
        /// Which state.
        state: JobState,
    },
}

impl Refusal {
    /// The error code that users see.
    pub fn code(self) -> &'static str {
        match self {
            Self::StaleAttempt { .. } | Self::Ended { .. } => "STALE_ATTEMPT",
            Self::OutOfPlace { .. } => "INVALID_REQUEST",
        }
    }
}
