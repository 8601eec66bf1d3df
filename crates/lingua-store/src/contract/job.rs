//! Job records, their steps, and pages of jobs.

use lingua_core::job::{Grant, JobState, Stage};
use lingua_core::{Attempt, InstanceId, JobId, NodeId};

use super::Bytes;

/// Most bytes of a job's specification, and of its outcome.
pub const JOB_BYTES_MAX: usize = 1 << 20;

/// Bytes that an ended job counts beside its specification and outcome: record, ids and lists.
pub const JOB_RECORD_BYTES: usize = 512;

/// Most jobs on one page.
pub const JOBS_PAGE_MAX: usize = 1000;

/// A page ends with the job whose specification and outcome bring it to this many bytes.
pub const JOBS_PAGE_BYTES: usize = 1 << 20;

/// Most records that are read for one page. Some may have expired or not be wanted, so that a page
/// can be short.
pub const JOBS_SCAN_MAX: usize = 2 * JOBS_PAGE_MAX;

/// A job that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// Chosen by the instance that accepted it.
    pub id: JobId,
    /// The instance that accepted it.
    pub owner: InstanceId,
    /// What the client asked for, at most [`JOB_BYTES_MAX`].
    pub spec: Bytes,
    /// The job fails when it has not ended by then; by the store's clock.
    pub deadline_ms: Option<u64>,
    /// Another instance can continue it: its audio is not in the owner's memory alone.
    pub recoverable: bool,
    /// A number that lists can be limited to; the engine uses hashes of tenant and session. Its
    /// upper half is the job's [group](KeptShare::group).
    pub label: u64,
}

/// The record of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRecord {
    /// Chosen by the caller; a repeated creation with it changes nothing.
    pub id: JobId,
    /// The only instance that may move it.
    pub owner: InstanceId,
    /// State and attempt.
    pub stage: Stage,
    /// The slot of the present attempt; once the job has ended, that of the last one.
    pub grant: Option<Grant>,
    /// What the client asked for.
    pub spec: Bytes,
    /// Present once the job has ended.
    pub outcome: Option<Bytes>,
    /// The job fails when it has not ended by then.
    pub deadline_ms: Option<u64>,
    /// Another instance can continue it.
    pub recoverable: bool,
    /// See [`NewJob::label`].
    pub label: u64,
    /// When it was accepted.
    pub created_ms: u64,
    /// When it was last moved.
    pub updated_ms: u64,
    /// Once it has ended: until when the record is kept.
    pub kept_until_ms: Option<u64>,
}

impl JobRecord {
    /// The bytes of its specification and outcome.
    pub fn bytes(&self) -> usize {
        self.spec.len() + self.outcome.as_ref().map_or(0, |outcome| outcome.len())
    }

    /// The record of a new job.
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
            label: job.label,
            created_ms: now_ms,
            updated_ms: now_ms,
            kept_until_ms: None,
        }
    }

    /// Whether it has ended and is not kept any longer.
    pub fn is_old(&self, now_ms: u64) -> bool {
        self.kept_until_ms.is_some_and(|until_ms| until_ms < now_ms)
    }

    /// Makes a step: all but the comparison with what the caller expects. An ended job is kept for
    /// `record_ms`, or for less if the step says so.
    pub fn step(&mut self, step: AdvanceRequest, record_ms: u64, now_ms: u64) {
        let keep_ms = step.retention.keep_ms(record_ms);
        let is_end = step.to.state.is_terminal();
        self.kept_until_ms = is_end.then(|| now_ms.saturating_add(keep_ms));
        self.stage = step.to;
        self.grant = step.grant;
        self.outcome = step.outcome;
        self.updated_ms = now_ms;
        if let Some(spec) = step.retention.spec {
            self.spec = spec;
        }
    }
}

/// What is kept of a job that has ended: by default all of it, for as long as the store keeps jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Retention {
    /// Replaces the specification, if not all of it is to be kept; at most [`JOB_BYTES_MAX`].
    pub spec: Option<Bytes>,
    /// How long the record is kept, if that is less than usual.
    pub keep_ms: Option<u64>,
    /// How many jobs its group may keep.
    pub share: KeptShare,
}

impl Retention {
    /// How long the record is kept, if others are kept for `record_ms`.
    pub fn keep_ms(&self, record_ms: u64) -> u64 {
        self.keep_ms.map_or(record_ms, |ms| ms.min(record_ms))
    }
}

/// A part of the ended jobs that a store keeps. Each group of jobs loses its own oldest when it has
/// more than its part, so that no group can push out the jobs of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptShare {
    /// The group, which is the upper half of the job's label.
    pub group: u32,
    /// The group's part of `of` parts.
    pub part: u32,
    /// The parts of all groups.
    pub of: u32,
}

impl KeptShare {
    /// The group of jobs with such a label.
    pub fn group_of(label: u64) -> u32 {
        (label >> u32::BITS) as u32
    }

    /// The group's part of a limit, at least 1.
    pub fn part_of(self, limit: usize) -> usize {
        let part = limit as u128 * u128::from(self.part) / u128::from(self.of.max(1));
        usize::try_from(part).unwrap_or(usize::MAX).clamp(1, limit.max(1))
    }
}

impl Default for KeptShare {
    fn default() -> Self {
        Self { group: 0, part: 1, of: 1 }
    }
}

/// The reply to the creation of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateReply {
    /// The job is stored and open.
    Created,
    /// A job with this id exists: the same request came before.
    Exists(Box<JobRecord>),
}

/// Moves a job by one step or several. [`AdvanceRequest::new`] makes only steps that the core's
/// state machine allows.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdvanceRequest {
    /// The job to move.
    pub job: JobId,
    /// The instance that moves it, which must own it.
    pub owner: InstanceId,
    /// The stage that the job must have.
    pub from: Stage,
    /// The stage that it gets.
    pub to: Stage,
    /// The slot of the attempt.
    pub grant: Option<Grant>,
    /// What the job ended with, at most [`JOB_BYTES_MAX`].
    pub outcome: Option<Bytes>,
    /// What is kept of the job if this step ends it.
    pub retention: Retention,
    /// Distinguishes a repeated call from a competing one.
    pub token: u64,
}

/// The state machine has no way from one stage to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a job that is {from} cannot become {to}")]
pub struct IllegalStep {
    /// The expected stage.
    pub from: Stage,
    /// The requested stage.
    pub to: Stage,
}

impl AdvanceRequest {
    /// Draw a new `token` for each step, and keep it when the step is repeated after a timeout.
    pub fn new(
        job: JobId,
        owner: InstanceId,
        from: Stage,
        to: Stage,
        token: u64,
    ) -> Result<Self, IllegalStep> {
        match from.may_reach(to) {
            true => {
                let (grant, outcome, retention) = (None, None, Retention::default());
                Ok(Self { job, owner, from, to, grant, outcome, retention, token })
            }
            false => Err(IllegalStep { from, to }),
        }
    }

    /// Sets the slot of the attempt.
    #[must_use]
    pub fn with_grant(mut self, grant: Option<Grant>) -> Self {
        self.grant = grant;
        self
    }

    /// Sets what is kept of the job if this step ends it.
    #[must_use]
    pub fn with_retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Sets the outcome.
    #[must_use]
    pub fn with_outcome(mut self, outcome: impl Into<Bytes>) -> Self {
        self.outcome = Some(outcome.into());
        self
    }
}

/// The reply to a step.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum AdvanceReply {
    /// Done, now or by an earlier call with the same token.
    Advanced,
    /// Stage or owner differ from what was expected; nothing was changed.
    Conflict { stage: Stage, owner: InstanceId },
    /// There is no such job.
    NotFound,
}

/// The reply to an erasure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EraseReply {
    /// Nothing is kept of the job any longer.
    Erased,
    /// The job has not ended; nothing was changed.
    Open,
    /// There is no such job.
    NotFound,
}

/// Which job records to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobFilter {
    /// Only the open jobs of this instance; all jobs if absent.
    pub open_of: Option<InstanceId>,
    /// Only jobs in one of these states.
    pub states: Option<JobStates>,
    /// Only jobs with such a label.
    pub label: LabelMask,
    /// Only jobs whose grant is on this node.
    pub node: Option<NodeId>,
    /// Where the last page ended: its [`JobPage::next`].
    pub after: Option<JobId>,
    /// At most this many, and at most [`JOBS_PAGE_MAX`].
    pub limit: usize,
    /// Falling ids instead of rising ones. Ids rise with time.
    pub newest_first: bool,
}

impl JobFilter {
    /// Whether the record has the wanted state, label and node.
    pub fn admits(&self, record: &JobRecord) -> bool {
        let on_node = |node: &NodeId| record.grant.as_ref().is_some_and(|at| at.node == *node);
        self.states.is_none_or(|states| states.contains(record.stage.state))
            && self.label.fits(record.label)
            && self.node.as_ref().is_none_or(on_node)
    }

    /// Whether the list has every record of its range.
    pub fn admits_all(&self) -> bool {
        self.states.is_none() && self.label.mask == 0 && self.node.is_none()
    }
}

/// Labels that have these bits where the mask has ones; by default all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LabelMask {
    /// The bits that are wanted; none outside the mask.
    pub bits: u64,
    /// Which bits are compared.
    pub mask: u64,
}

impl LabelMask {
    /// Jobs with this label and no others.
    pub fn only(label: u64) -> Self {
        Self { bits: label, mask: u64::MAX }
    }

    /// Whether the label is one of these.
    pub fn fits(self, label: u64) -> bool {
        label & self.mask == self.bits
    }
}

/// A set of job states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobStates(u16);

impl JobStates {
    /// The states of jobs that have not ended.
    pub fn open() -> Self {
        JobState::ALL.into_iter().filter(|state| !state.is_terminal()).collect()
    }

    /// Whether the state is in the set.
    pub fn contains(self, state: JobState) -> bool {
        self.0 >> state as u16 & 1 == 1
    }
}

impl FromIterator<JobState> for JobStates {
    fn from_iter<I: IntoIterator<Item = JobState>>(states: I) -> Self {
        Self(states.into_iter().fold(0, |set, state| set | 1 << state as u16))
    }
}

/// A page of job records, in the order of their ids.
///
/// One call reads at most [`JOBS_SCAN_MAX`] records, and a page ends at [`JOBS_PAGE_BYTES`], so it
/// may be short, or even empty, while more follow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobPage {
    /// At most as many as the filter's limit.
    pub jobs: Vec<JobRecord>,
    /// The next page's `after`; `None` at the end of the list.
    pub next: Option<JobId>,
}
