//! The state machine of a job: `NEW → SELECTING → RESERVED → DISPATCHED → ACKED → DONE`.
//!
//! Start at [`JobMachine::apply`]: a state and an event give the next state and the effects that
//! the job's owner has to perform, in order. [`Stage::may_reach`] is the same map without the
//! reasons; requests to stores use it to refuse steps that no events could have caused.
//!
//! | file | what |
//! |---|---|
//! | `spec.rs` | [`JobSpec`]: a job as its client asked for it, checked |
//! | `stage.rs` | states, attempts and which may follow which |
//! | `event.rs` | events, effects, failures and refusals |
//!
//! Invariants: an end is final; the attempt rises by one with each retry and never otherwise; a
//! report about another attempt, node or fence changes nothing; each slot that was taken is
//! released exactly once, by the effect [`Effect::Release`].

use crate::id::{Attempt, CellId, Epoch, Fence, InstanceId, NodeId, Slot};
use crate::planted::{self, Bug};

mod event;
mod spec;
mod stage;
#[cfg(test)]
mod tests;

pub use event::{AttemptOutcome, AttemptReport, Cause, Effect, JobEvent, JobFailure, Refusal};
pub use spec::{JobSpec, Payload};
pub use stage::{JobState, Stage};

/// Most refusals of nodes without a free slot before the job fails. A refusal says nothing about
/// the job, so it is not counted as a failed attempt.
pub const REFUSALS_MAX: u32 = 16;

/// A slot that was taken for an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The node that does the work.
    pub node: NodeId,
    /// The node's cell.
    pub cell: CellId,
    /// The node's place in the cell.
    pub slot: Slot,
    /// The node's incarnation.
    pub epoch: Epoch,
    /// The node refuses a fence below the highest that it has seen.
    pub fence: Fence,
    /// The instance that the node is connected to.
    pub via: InstanceId,
}

/// How often a failed attempt is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Most further attempts after the first.
    pub max_retry: u32,
}

/// A job, as its owner runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobMachine {
    stage: Stage,
    grant: Option<Grant>,
    failures: u32,
    refusals: u32,
    tried: Vec<(CellId, Slot)>,
}

impl Default for JobMachine {
    fn default() -> Self {
        Self::new()
    }
}

impl JobMachine {
    /// A job that was just accepted.
    pub fn new() -> Self {
        let stage = Stage { state: JobState::New, attempt: Attempt::FIRST };
        Self { stage, grant: None, failures: 0, refusals: 0, tried: Vec::new() }
    }

    /// A job that another instance left at this stage. Its count of failures starts anew.
    pub fn recovered(stage: Stage, grant: Option<Grant>) -> Self {
        Self { stage, grant, ..Self::new() }
    }

    /// The state and the current attempt.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The slot of the current attempt.
    pub fn grant(&self) -> Option<&Grant> {
        self.grant.as_ref()
    }

    /// Where earlier attempts failed: the next one goes to another node if it can.
    pub fn tried(&self) -> &[(CellId, Slot)] {
        &self.tried
    }

    /// Applies an event; gives the effects to perform, in order. A refused event changes nothing.
    pub fn apply(&mut self, event: JobEvent, retry: RetryPolicy) -> Result<Vec<Effect>, Refusal> {
        use AttemptOutcome::{Failed, Succeeded, Unknown};

        self.check(&event)?;
        Ok(match event {
            JobEvent::Select => self.proceed(JobState::Selecting, None),
            JobEvent::Granted(grant) => {
                self.grant = Some(grant);
                self.proceed(JobState::Reserved, None)
            }
            JobEvent::NoSlot(failure) => self.fail(failure, false, Unknown),
            JobEvent::Dispatch => self.proceed(JobState::Dispatched, Some(Effect::Send)),
            // The node may confirm twice.
            JobEvent::Acked(_) if self.stage.state == JobState::Acked => vec![],
            JobEvent::Acked(_) => self.proceed(JobState::Acked, Some(Effect::Commit)),
            JobEvent::Done(_) => self.end(JobState::Done, None, false, Succeeded),
            JobEvent::NodeFailed { retryable: false, .. } => {
                self.fail(JobFailure::NotRetryable, false, Failed)
            }
            JobEvent::NodeFailed { .. } => self.retry(Cause::NodeFailed, retry),
            JobEvent::Refused(_) => self.retry(Cause::Refused, retry),
            JobEvent::Overtaken(_) => {
                let effects = self.retry(Cause::Refused, retry);
                self.tried.pop();
                effects
            }
            JobEvent::SendFailed(_) => self.retry(Cause::SendFailed, retry),
            JobEvent::AckTimeout(_) => self.retry(Cause::AckTimeout, retry),
            JobEvent::RunTimeout(_) => self.retry(Cause::RunTimeout, retry),
            JobEvent::NodeLost(_) => self.retry(Cause::NodeLost, retry),
            JobEvent::Reclaimed => self.next_attempt(Cause::Reclaimed),
            JobEvent::DeadlinePassed => self.fail(JobFailure::Deadline, true, Unknown),
            JobEvent::InstanceLost => self.fail(JobFailure::InstanceLost, true, Unknown),
            JobEvent::InternalError => self.fail(JobFailure::Internal, true, Unknown),
            JobEvent::Cancel => {
                self.end(JobState::Cancelled, Some(Effect::ConfirmCancel), true, Unknown)
            }
        })
    }

    /// Whether a node's report about its attempt would count now. Changes nothing.
    pub fn would_accept(&self, report: &AttemptReport) -> Result<(), Refusal> {
        self.check(&JobEvent::Acked(report.clone()))
    }

    /// Whether [`JobMachine::apply`] would accept the event: it is about the current attempt and
    /// possible in this state. Changes nothing.
    pub fn check(&self, event: &JobEvent) -> Result<(), Refusal> {
        let stage = self.stage;
        let is_other = event.attempt().is_some_and(|attempt| attempt != stage.attempt);
        if is_other && !planted::is(Bug::ReportIgnoresAttempt) {
            return Err(Refusal::StaleAttempt { current: stage });
        }
        if stage.state.is_terminal() {
            return Err(Refusal::Ended { state: stage.state });
        }
        if let Some(report) = event.report() {
            let Some(grant) = &self.grant else {
                return Err(Refusal::StaleAttempt { current: stage });
            };
            let same_fence = report.fence.is_none_or(|fence| fence == grant.fence);
            if grant.node != report.node || !same_fence {
                return Err(Refusal::StaleAttempt { current: stage });
            }
        }
        match event.is_possible_in(stage.state) {
            true => Ok(()),
            false => Err(Refusal::OutOfPlace { state: stage.state }),
        }
    }

    /// Starts the next attempt, or fails the job if no retry is left.
    fn retry(&mut self, cause: Cause, policy: RetryPolicy) -> Vec<Effect> {
        let (count, limit) = match cause {
            Cause::Refused => (&mut self.refusals, REFUSALS_MAX),
            _ => (&mut self.failures, policy.max_retry),
        };
        *count += 1;
        if *count > limit {
            let failure = JobFailure::RetriesExhausted { last: cause };
            return self.fail(failure, cause.leaves_node_working(), cause.outcome());
        }
        if let Some(grant) = &self.grant {
            self.tried.push((grant.cell, grant.slot));
        }
        self.next_attempt(cause)
    }

    fn next_attempt(&mut self, cause: Cause) -> Vec<Effect> {
        let mut effects = self.leave_node(cause.leaves_node_working(), cause.outcome());
        self.stage = Stage { state: JobState::Retrying, attempt: self.stage.attempt.next() };
        effects.push(Effect::Retry { cause });
        effects
    }

    fn proceed(&mut self, state: JobState, effect: Option<Effect>) -> Vec<Effect> {
        self.stage.state = state;
        effect.into_iter().collect()
    }

    fn fail(
        &mut self,
        failure: JobFailure,
        node_may_work: bool,
        outcome: AttemptOutcome,
    ) -> Vec<Effect> {
        self.end(JobState::Failed, Some(Effect::Fail(failure)), node_may_work, outcome)
    }

    fn end(
        &mut self,
        state: JobState,
        last: Option<Effect>,
        node_may_work: bool,
        outcome: AttemptOutcome,
    ) -> Vec<Effect> {
        let mut effects = self.leave_node(node_may_work, outcome);
        self.stage.state = state;
        effects.extend(last);
        effects
    }

    /// Releases the slot; a node that may still be working on the job gets a message to stop first.
    fn leave_node(&mut self, node_may_work: bool, outcome: AttemptOutcome) -> Vec<Effect> {
        let Some(grant) = self.grant.take() else { return vec![] };
        let Stage { state, attempt } = self.stage;
        let mut effects = Vec::new();
        if node_may_work && matches!(state, JobState::Dispatched | JobState::Acked) {
            effects.push(Effect::CancelOnNode { grant: grant.clone(), attempt });
        }
        effects.push(Effect::Release { grant, attempt, outcome });
        effects
    }
}
