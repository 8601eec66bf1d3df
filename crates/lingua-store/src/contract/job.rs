//! Job records, their steps, and orphans.

use lingua_core::job::{Grant, JobState, Stage};
use lingua_core::{Attempt, InstanceId, JobId};

use super::Bytes;

/// Most bytes that a job's specification or outcome may have in a store.
pub const JOB_BYTES_MAX: usize = 1 << 20;

/// A job that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// Its id.
    pub id: JobId,
    /// The instance that accepted it.
    pub owner: InstanceId,
    /// What is to be done.
    pub spec: Bytes,
    /// When it is too late, by the store's clock.
    pub deadline_ms: Option<u64>,
    /// Whether another instance could go on with it: its audio is not only in its owner's memory.
    pub recoverable: bool,
}

/// What is known of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRecord {
    /// Its id.
    pub id: JobId,
    /// The only instance that may move it.
    pub owner: InstanceId,
    /// Where it stands.
    pub stage: Stage,
    /// The slot of the current attempt.
    pub grant: Option<Grant>,
    /// What is to be done.
    pub spec: Bytes,
    /// What came of it.
    pub outcome: Option<Bytes>,
    /// When it is too late.
    pub deadline_ms: Option<u64>,
    /// Whether another instance could go on with it.
    pub recoverable: bool,
    /// When it was accepted.
    pub created_ms: u64,
    /// When it was last moved.
    pub updated_ms: u64,
}

impl JobRecord {
    /// A new job's record.
    pub fn new(job: NewJob, now_ms: u64) -> Self {
        Self {
            id: job.id,
            owner: job.owner,
            stage: Stage { state: JobState::New, attempt: Attempt::FIRST },
            grant: None,
            spec: job.spec,
            outcome: None,
            deadline_ms: job.deadline_ms,
            recoverable: job.recoverable,
            created_ms: now_ms,
            updated_ms: now_ms,
        }
    }
}

/// What writing down a job answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateReply {
    /// Written.
    Created,
    /// It is there already: the same request came before.
    Exists(JobRecord),
}

/// A step of a job, or several in one. It can only be made if the core's state machine knows a way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvanceRequest {
    job: JobId,
    owner: InstanceId,
    from: Stage,
    to: Stage,
    grant: Option<Grant>,
    outcome: Option<Bytes>,
    token: u64,
}

/// No events lead from the one stage to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a job that is {from} cannot become {to}")]
pub struct IllegalStep {
    /// Where it stands.
    pub from: Stage,
    /// Where it was to go.
    pub to: Stage,
}

impl AdvanceRequest {
    /// A step; `token` is drawn anew for each step and kept when it is repeated after a timeout.
    pub fn new(
        job: JobId,
        owner: InstanceId,
        from: Stage,
        to: Stage,
        token: u64,
    ) -> Result<Self, IllegalStep> {
        match from.may_reach(to) {
            true => Ok(Self { job, owner, from, to, grant: None, outcome: None, token }),
            false => Err(IllegalStep { from, to }),
        }
    }

    /// With the slot of the attempt.
    #[must_use]
    pub fn with_grant(mut self, grant: Option<Grant>) -> Self {
        self.grant = grant;
        self
    }

    /// With what came of it.
    #[must_use]
    pub fn with_outcome(mut self, outcome: impl Into<Bytes>) -> Self {
        self.outcome = Some(outcome.into());
        self
    }

    /// Which job.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// Who moves it.
    pub fn owner(&self) -> &InstanceId {
        &self.owner
    }

    /// Where it has to stand.
    pub fn from(&self) -> Stage {
        self.from
    }

    /// Where it goes.
    pub fn to(&self) -> Stage {
        self.to
    }

    /// The slot of the attempt, from then on.
    pub fn grant(&self) -> Option<&Grant> {
        self.grant.as_ref()
    }

    /// What came of it.
    pub fn outcome(&self) -> Option<&Bytes> {
        self.outcome.as_ref()
    }

    /// Tells a repeated call from a rival one.
    pub fn token(&self) -> u64 {
        self.token
    }
}

/// What a step answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdvanceReply {
    /// Made, now or by an earlier call with the same token.
    Advanced,
    /// The job stands elsewhere or belongs to another instance; nothing was changed.
    Conflict {
        /// Where it stands.
        stage: Stage,
        /// Whose it is.
        owner: InstanceId,
    },
    /// There is no such job.
    NotFound,
}

/// Which job records to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobFilter {
    /// Only in this state.
    pub state: Option<JobState>,
    /// Only of this instance.
    pub owner: Option<InstanceId>,
    /// Only after this one in the order of the list, for the next page.
    pub after: Option<JobId>,
    /// At most this many.
    pub limit: usize,
    /// The highest ids first: those rise with time, unless a job got its id from an idempotency key.
    pub newest_first: bool,
}
