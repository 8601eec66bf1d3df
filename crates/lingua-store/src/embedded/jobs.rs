//! Job records in memory.
//!
//! Start at [`Jobs::advance`]: it compares, then writes. New jobs are refused when too many are
//! open. Ended jobs are dropped after `job_record_ms`, or earlier, oldest first, when there are too
//! many of them or they hold too many bytes.
//!
//! Invariant: a job ends once. A caller that lost the race gets a conflict.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

use lingua_core::planted::{self, Bug};
use lingua_core::{InstanceId, JobId};

use super::StoreLimits;
use super::journal::ChangeLog;
use super::journal::record::{DurableChange, StoredJob};
use crate::contract::{
    AdvanceReply, AdvanceRequest, CreateReply, JOB_BYTES_MAX, JOB_RECORD_BYTES, JOBS_PAGE_BYTES,
    JOBS_PAGE_MAX, JOBS_SCAN_MAX, JobFilter, JobPage, JobRecord, NewJob,
};
use crate::error::{Result, StoreError};

/// Most dropped jobs that one operation removes from disk: after a busy hour there may be many, and
/// a caller waits.
const DISK_REMOVALS_MAX: usize = 64;

#[derive(Debug, Clone, Default)]
pub(super) struct Jobs {
    limits: StoreLimits,
    /// Boxed, because map entries move when neighbours come and go.
    records: BTreeMap<JobId, Box<StoredJob>>,
    open: BTreeMap<InstanceId, BTreeSet<JobId>>,
    /// Oldest first.
    ended: VecDeque<EndedJob>,
    ended_bytes: usize,
    changes: ChangeLog,
    /// Dropped from memory, still on disk.
    on_disk_only: VecDeque<JobId>,
}

#[derive(Debug, Clone, Copy)]
struct EndedJob {
    id: JobId,
    ended_ms: u64,
    bytes: usize,
}

impl EndedJob {
    fn new(record: &JobRecord) -> Self {
        let outcome_bytes = record.outcome.as_ref().map_or(0, |outcome| outcome.len());
        let bytes = JOB_RECORD_BYTES + record.spec.len() + outcome_bytes;
        Self { id: record.id, ended_ms: record.updated_ms, bytes }
    }
}

impl AsMut<ChangeLog> for Jobs {
    fn as_mut(&mut self) -> &mut ChangeLog {
        &mut self.changes
    }
}

impl Jobs {
    pub(super) fn new(limits: StoreLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Starts with the jobs that were on disk, and logs changes from now on.
    pub(super) fn restore(limits: StoreLimits, mut jobs: Vec<StoredJob>) -> Self {
        let mut restored = Self::new(limits);
        // Ended jobs are dropped in the order in which they ended.
        jobs.sort_unstable_by_key(|job| (job.record.updated_ms, job.record.id));
        for job in jobs {
            match job.record.stage.state.is_terminal() {
                true => restored.push_ended(EndedJob::new(&job.record)),
                false => restored.insert_open(&job.record.owner, job.record.id),
            }
            restored.records.insert(job.record.id, Box::new(job));
        }
        restored.changes.enable();
        restored
    }

    pub(super) fn create(&mut self, job: NewJob, now_ms: u64) -> Result<CreateReply> {
        StoreError::check_limit("a job's specification in bytes", job.spec.len(), JOB_BYTES_MAX)?;
        self.drop_old(now_ms);
        if let Some(known) = self.records.get(&job.id)
            && !planted::is(Bug::CreateRestartsJob)
        {
            return Ok(CreateReply::Exists(Box::new(known.record.clone())));
        }
        if self.records.len().saturating_sub(self.ended.len()) >= self.limits.open_jobs_max {
            let what = "the number of open jobs";
            return Err(StoreError::LimitReached { what, limit: self.limits.open_jobs_max });
        }
        let job = StoredJob { record: JobRecord::new(job, now_ms), last_token: None };
        self.changes.push(|| DurableChange::JobCreated(job.record.clone()));
        self.insert_open(&job.record.owner, job.record.id);
        self.records.insert(job.record.id, Box::new(job));
        Ok(CreateReply::Created)
    }

    pub(super) fn advance(&mut self, step: AdvanceRequest, now_ms: u64) -> Result<AdvanceReply> {
        let outcome_bytes = step.outcome.as_ref().map_or(0, |outcome| outcome.len());
        StoreError::check_limit("a job's outcome in bytes", outcome_bytes, JOB_BYTES_MAX)?;
        self.drop_old(now_ms);
        let Some(job) = self.records.get_mut(&step.job) else {
            return Ok(AdvanceReply::NotFound);
        };
        let StoredJob { record, last_token } = &mut **job;
        let is_owner = record.owner == step.owner;
        if is_owner && *last_token == Some(step.token) && record.stage == step.to {
            return Ok(AdvanceReply::Advanced);
        }
        if !is_owner || record.stage != step.from {
            let (stage, owner) = (record.stage, record.owner.clone());
            return Ok(AdvanceReply::Conflict { stage, owner });
        }
        *last_token = Some(step.token);
        record.stage = step.to;
        record.grant = step.grant;
        record.outcome = step.outcome;
        record.updated_ms = now_ms;
        self.changes.push(|| DurableChange::JobMoved(StoredJob::clone(job)));
        if step.to.state.is_terminal() {
            let ended = EndedJob::new(&job.record);
            self.push_ended(ended);
            self.remove_open(&step.owner, step.job);
            self.drop_old(now_ms);
        }
        Ok(AdvanceReply::Advanced)
    }

    pub(super) fn ended_bytes(&self) -> usize {
        self.ended_bytes
    }

    pub(super) fn get(&self, job: JobId, now_ms: u64) -> Option<JobRecord> {
        let record = &self.records.get(&job)?.record;
        (!self.is_old(record, now_ms)).then(|| record.clone())
    }

    pub(super) fn list(&self, filter: &JobFilter, now_ms: u64) -> JobPage {
        let after = filter.after.map_or(Unbounded, Excluded);
        let range = match filter.newest_first {
            true => (Unbounded, after),
            false => (after, Unbounded),
        };
        let ids: &mut dyn DoubleEndedIterator<Item = JobId> = match &filter.open_of {
            Some(owner) => match self.open.get(owner) {
                Some(open) => &mut open.range(range).copied(),
                None => &mut std::iter::empty(),
            },
            None => &mut self.records.range(range).map(|(&id, _)| id),
        };
        let mut next_id = || match filter.newest_first {
            true => ids.next_back(),
            false => ids.next(),
        };
        let (mut jobs, limit) = (Vec::<JobRecord>::new(), filter.limit.min(JOBS_PAGE_MAX));
        let (mut last, mut bytes) = (None, 0);
        for _ in 0..JOBS_SCAN_MAX {
            if jobs.len() == limit || bytes >= JOBS_PAGE_BYTES {
                break;
            }
            let Some(id) = next_id() else { return JobPage { jobs, next: None } };
            let record = self.records.get(&id).map(|job| &job.record);
            let is_wanted =
                |record: &&JobRecord| filter.admits(record) && !self.is_old(record, now_ms);
            if let Some(record) = record.filter(is_wanted) {
                bytes += record.bytes();
                jobs.push(record.clone());
            }
            last = Some(id);
        }
        JobPage { jobs, next: last }
    }

    /// Gives up to `limit` open jobs of owners that are not alive to the heir.
    pub(super) fn claim(
        &mut self,
        heir: &InstanceId,
        limit: usize,
        is_alive: impl Fn(&InstanceId) -> bool,
        now_ms: u64,
    ) -> Vec<JobRecord> {
        let dead = self.open.iter().filter(|(owner, _)| *owner != heir && !is_alive(owner));
        let orphans = dead.flat_map(|(owner, ids)| ids.iter().map(|&id| (owner.clone(), id)));
        let orphans: Vec<(InstanceId, JobId)> = orphans.take(limit).collect();
        let mut claimed = Vec::with_capacity(orphans.len());
        for (owner, id) in orphans {
            self.remove_open(&owner, id);
            self.insert_open(heir, id);
            if let Some(job) = self.records.get_mut(&id) {
                job.record.owner = heir.clone();
                job.record.updated_ms = now_ms;
                job.last_token = None;
                self.changes.push(|| DurableChange::JobMoved(StoredJob::clone(job)));
                claimed.push(job.record.clone());
            }
        }
        claimed
    }

    fn insert_open(&mut self, owner: &InstanceId, job: JobId) {
        self.open.entry(owner.clone()).or_default().insert(job);
    }

    fn remove_open(&mut self, owner: &InstanceId, job: JobId) {
        if let Some(open) = self.open.get_mut(owner) {
            open.remove(&job);
            if open.is_empty() {
                self.open.remove(owner);
            }
        }
    }

    fn push_ended(&mut self, job: EndedJob) {
        self.ended_bytes += job.bytes;
        self.ended.push_back(job);
    }

    fn is_old(&self, record: &JobRecord, now_ms: u64) -> bool {
        let kept_until_ms = record.updated_ms.saturating_add(self.limits.job_record_ms);
        record.stage.state.is_terminal() && kept_until_ms < now_ms
    }

    fn drop_old(&mut self, now_ms: u64) {
        while let Some(&EndedJob { id, ended_ms, bytes }) = self.ended.front() {
            let is_old = ended_ms.saturating_add(self.limits.job_record_ms) < now_ms;
            let too_many = self.ended.len() > self.limits.ended_jobs_max
                || self.ended_bytes > self.limits.ended_bytes_max;
            if !is_old && !too_many {
                break;
            }
            self.ended.pop_front();
            self.ended_bytes -= bytes;
            self.records.remove(&id);
            if self.changes.is_enabled() {
                self.on_disk_only.push_back(id);
            }
        }
        let batch = self.on_disk_only.len().min(DISK_REMOVALS_MAX);
        for id in self.on_disk_only.drain(..batch) {
            // A job may have been created again under the same id.
            if !self.records.contains_key(&id) {
                self.changes.push(|| DurableChange::JobDropped(id));
            }
        }
    }
}
