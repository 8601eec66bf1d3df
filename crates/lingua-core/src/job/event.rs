//! Events that happen to a job, effects that its owner performs, failures and refusals.

use super::{Grant, JobState, Stage};
use crate::id::{Attempt, Fence, NodeId};
use crate::named_enum;

/// Which attempt a node reports about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptReport {
    /// The attempt that the node was given.
    pub attempt: Attempt,
    /// The node that reports.
    pub node: NodeId,
    /// The fence of the attempt; `None` if the node does not send it.
    pub fence: Option<Fence>,
}

/// Something that happened to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum JobEvent {
    /// The owner starts to search for a slot.
    Select,
    /// A slot was taken.
    Granted(Grant),
    /// There is no slot for it.
    NoSlot(JobFailure),
    /// The job is about to be sent.
    Dispatch,
    /// The node has received it.
    Acked(AttemptReport),
    /// The node gave a result.
    Done(AttemptReport),
    /// The node failed; if `retryable`, another attempt could succeed.
    NodeFailed { report: AttemptReport, retryable: bool },
    /// The node had no free slot.
    Refused(AttemptReport),
    /// The node has seen a newer fence, because a later assignment overtook this one. It is not
    /// the node's fault.
    Overtaken(AttemptReport),
    /// The assignment of this attempt could not be sent.
    SendFailed(Attempt),
    /// The node did not confirm this attempt in time.
    AckTimeout(Attempt),
    /// The node did not finish this attempt in time.
    RunTimeout(Attempt),
    /// The node of this attempt is gone.
    NodeLost(Attempt),
    /// The owner died, and the new owner can start another attempt.
    Reclaimed,
    /// The owner died, and the job's audio was lost with it.
    InstanceLost,
    /// The client's deadline passed.
    DeadlinePassed,
    /// The client cancelled the job.
    Cancel,
    /// The instance that runs it has a bug: the task of the job panicked.
    InternalError,
}

impl JobEvent {
    /// The attempt that the event is about, if it is about one.
    pub fn attempt(&self) -> Option<Attempt> {
        match self {
            Self::SendFailed(attempt)
            | Self::AckTimeout(attempt)
            | Self::RunTimeout(attempt)
            | Self::NodeLost(attempt) => Some(*attempt),
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
            Self::Refused(_) | Self::Overtaken(_) | Self::AckTimeout(_) => state == Dispatched,
            Self::SendFailed(_) => matches!(state, Reserved | Dispatched),
            Self::RunTimeout(_) => state == Acked,
            Self::NodeLost(_) => matches!(state, Reserved | Dispatched | Acked),
            Self::Reclaimed
            | Self::InstanceLost
            | Self::DeadlinePassed
            | Self::Cancel
            | Self::InternalError => true,
        }
    }
}

/// Something that the owner has to perform, in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum Effect {
    /// Send the job to the node of its grant and start the ACK timer.
    Send,
    /// Turn the ACK lease into a run lease and start the run timer.
    Commit,
    /// Tell the node to stop.
    CancelOnNode { grant: Grant, attempt: Attempt },
    /// Release the slot; `outcome` is what the attempt says about its node.
    Release { grant: Grant, attempt: Attempt, outcome: AttemptOutcome },
    /// Start the next attempt.
    Retry { cause: Cause },
    /// The job has failed.
    Fail(JobFailure),
    /// The job was cancelled.
    ConfirmCancel,
}

/// What the end of an attempt says about its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttemptOutcome {
    /// The node gave a result.
    Succeeded,
    /// The node failed, or did not answer in time.
    Failed,
    /// Nothing: the job was cancelled, never reached the node, or the node had no room for it.
    Unknown,
}

named_enum! {
    /// Why an attempt failed.
    pub enum Cause {
        /// It could not be sent.
        SendFailed = "send_failed",
        /// The node did not confirm in time.
        AckTimeout = "ack_timeout",
        /// The node did not finish in time.
        RunTimeout = "run_timeout",
        /// The node failed.
        NodeFailed = "node_failed",
        /// The node is gone.
        NodeLost = "node_lost",
        /// The node had no free slot.
        Refused = "refused",
        /// The instance that owned the job is gone.
        Reclaimed = "reclaimed",
    }
}

impl Cause {
    /// What it says about the node.
    pub(super) fn outcome(self) -> AttemptOutcome {
        match self {
            Self::AckTimeout | Self::RunTimeout | Self::NodeFailed => AttemptOutcome::Failed,
            Self::SendFailed | Self::NodeLost | Self::Refused | Self::Reclaimed => {
                AttemptOutcome::Unknown
            }
        }
    }

    /// Whether the node may go on working unless it gets a message to stop.
    pub(super) fn leaves_node_working(self) -> bool {
        matches!(self, Self::AckTimeout | Self::RunTimeout | Self::SendFailed | Self::NodeLost)
    }
}

/// Why a job failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum JobFailure {
    /// No node can serve it.
    #[error("no registered node can serve this job")]
    NoCapableNode,
    /// Nodes can serve it, but none had a free slot in time.
    #[error("no node had a free slot in time")]
    NoSlot,
    /// It would have to wait, and the jobs that wait hold too many bytes.
    #[error("too many jobs wait for a slot")]
    QueueFull,
    /// The node that the client prefers cannot serve it.
    #[error("the preferred node cannot serve this job")]
    PreferredNotCapable,
    /// The store does not answer, and without it no slot can be taken.
    #[error("the store is unreachable")]
    StoreDown,
    /// Every attempt failed.
    #[error("the last attempt failed ({last}) and no retry is left")]
    RetriesExhausted { last: Cause },
    /// The node said that a retry cannot help.
    #[error("the node failed and said that a retry cannot help")]
    NotRetryable,
    /// The client's deadline passed.
    #[error("the deadline passed before the job was done; it has failed")]
    Deadline,
    /// The audio was lost with the instance that held it.
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
            Self::QueueFull => "RATE_LIMITED",
            Self::PreferredNotCapable => "PREFERRED_NODE_NOT_CAPABLE",
            Self::StoreDown => "SCHEDULER_DEPENDENCY_DOWN",
            Self::NotRetryable => "NODE_FAILED",
            Self::Deadline => "DEADLINE_EXCEEDED",
            Self::InstanceLost => "INSTANCE_LOST",
            Self::Internal => "INTERNAL",
        }
    }

    /// Whether this is the code of a failure after which the client may send the job again: there
    /// was no node or no slot for it, or the store or an instance was lost.
    pub fn asks_to_send_again(code: &str) -> bool {
        let failures = [
            Self::NoCapableNode,
            Self::NoSlot,
            Self::QueueFull,
            Self::StoreDown,
            Self::InstanceLost,
        ];
        failures.iter().any(|failure| failure.code() == code)
    }
}

/// Why an event was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum Refusal {
    /// It is about another attempt, node or fence.
    #[error("the report is about another attempt; the job is {current}")]
    StaleAttempt { current: Stage },
    /// The job has ended.
    #[error("the job has ended as {state}")]
    Ended { state: JobState },
    /// It cannot happen in this state.
    #[error("it cannot happen while the job is {state}")]
    OutOfPlace { state: JobState },
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
