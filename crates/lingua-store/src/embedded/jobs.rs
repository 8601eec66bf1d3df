//! Job records in memory.
//!
//! Start at [`Jobs::advance`]: it compares, then writes. New jobs are refused when too many are
//! open. Ended jobs are dropped when the time is over for which they are kept, or earlier, oldest
//! first, when their group has more of them, or of their bytes, than its share.
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
    AdvanceReply, AdvanceRequest, Bytes, CreateReply, EraseReply, JOB_BYTES_MAX, JOB_RECORD_BYTES,
    JOBS_PAGE_BYTES, JOBS_PAGE_MAX, JOBS_SCAN_MAX, JobFilter, JobPage, JobRecord, KeptShare,
    NewJob,
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
    /// Ended jobs by group.
    ended: BTreeMap<u32, EndedGroup>,
    /// All ended jobs by the time until which they are kept.
    expiring: BTreeSet<(u64, JobId)>,
    changes: ChangeLog,
    /// Dropped from memory, still on disk.
    on_disk_only: VecDeque<JobId>,
}

/// The ended jobs of one group.
#[derive(Debug, Clone, Default)]
struct EndedGroup {
    /// By the time of their end, with their bytes: the oldest go first.
    by_end: BTreeMap<(u64, JobId), usize>,
    bytes: usize,
    /// As its last job said.
    share: KeptShare,
}

impl EndedGroup {
    /// The oldest job of a group that has more than its share.
    fn excess(&self, limits: &StoreLimits) -> Option<JobId> {
        let too_many = self.by_end.len() > self.share.part_of(limits.ended_jobs_max)
            || self.bytes > self.share.part_of(limits.ended_bytes_max);
        let oldest = self.by_end.first_key_value().filter(|_| too_many);
        oldest.map(|((_, id), _)| *id)
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
    pub(super) fn restore(limits: StoreLimits, jobs: Vec<StoredJob>) -> Self {
        let mut restored = Self::new(limits);
        for job in jobs {
            match job.record.stage.state.is_terminal() {
                true => drop(restored.insert_ended(&job.record)),
                false => restored.insert_open(&job.record.owner, job.record.id),
            }
            restored.records.insert(job.record.id, Box::new(job));
        }
        restored.changes.enable();
        // The limits may be lower than before.
        for group in restored.ended.keys().copied().collect::<Vec<u32>>() {
            restored.drop_excess(group);
        }
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
        if self.records.len().saturating_sub(self.expiring.len()) >= self.limits.open_jobs_max {
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
        let bytes = |content: &Option<Bytes>| content.as_ref().map_or(0, |content| content.len());
        StoreError::check_limit("a job's outcome in bytes", bytes(&step.outcome), JOB_BYTES_MAX)?;
        StoreError::check_limit(
            "a job's specification in bytes",
            bytes(&step.retention.spec),
            JOB_BYTES_MAX,
        )?;
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
        let (id, owner, share) = (step.job, step.owner.clone(), step.retention.share);
        let is_rewritten = step.retention.spec.is_some();
        record.step(step, self.limits.job_record_ms, now_ms);
        let is_end = record.stage.state.is_terminal();
        if is_rewritten {
            // Writes both rows of the job.
            self.changes.push(|| DurableChange::JobCreated(job.record.clone()));
        }
        self.changes.push(|| DurableChange::JobMoved(StoredJob::clone(job)));
        if is_end {
            let record = job.record.clone();
            self.insert_ended(&record).share = share;
            self.remove_open(&owner, id);
            self.drop_excess(KeptShare::group_of(record.label));
            self.drop_old(now_ms);
        }
        Ok(AdvanceReply::Advanced)
    }

    /// Removes an ended job, from the disk at once.
    pub(super) fn erase(&mut self, job: JobId, now_ms: u64) -> EraseReply {
        let Some(record) = self.records.get(&job).map(|known| &known.record) else {
            return EraseReply::NotFound;
        };
        if !record.stage.state.is_terminal() {
            return EraseReply::Open;
        }
        let was_there = !record.is_old(now_ms);
        self.forget(job);
        self.changes.push(|| DurableChange::JobDropped(job));
        if was_there { EraseReply::Erased } else { EraseReply::NotFound }
    }

    pub(super) fn ended_bytes(&self) -> usize {
        self.ended.values().map(|group| group.bytes).sum()
    }

    pub(super) fn get(&self, job: JobId, now_ms: u64) -> Option<JobRecord> {
        let record = &self.records.get(&job)?.record;
        (!record.is_old(now_ms)).then(|| record.clone())
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
            let is_wanted = |record: &&JobRecord| filter.admits(record) && !record.is_old(now_ms);
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
        // Instances ask regularly, so that nothing is kept for longer because no job comes.
        self.drop_old(now_ms);
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

    fn insert_ended(&mut self, record: &JobRecord) -> &mut EndedGroup {
        let bytes = JOB_RECORD_BYTES + record.bytes();
        self.expiring.insert((record.kept_until_ms.unwrap_or(0), record.id));
        let group = self.ended.entry(KeptShare::group_of(record.label)).or_default();
        group.bytes += bytes;
        group.by_end.insert((record.updated_ms, record.id), bytes);
        group
    }

    /// Removes an ended job from memory.
    fn forget(&mut self, job: JobId) {
        let Some(known) = self.records.remove(&job) else { return };
        let JobRecord { updated_ms, kept_until_ms, label, .. } = known.record;
        self.expiring.remove(&(kept_until_ms.unwrap_or(0), job));
        let name = KeptShare::group_of(label);
        let Some(group) = self.ended.get_mut(&name) else { return };
        group.bytes -= group.by_end.remove(&(updated_ms, job)).unwrap_or(0);
        if group.by_end.is_empty() {
            self.ended.remove(&name);
        }
    }

    /// Drops the oldest jobs of a group that has more than its share.
    fn drop_excess(&mut self, group: u32) {
        while let Some(id) = self.ended.get(&group).and_then(|group| group.excess(&self.limits)) {
            self.drop_from_memory(id);
        }
    }

    fn drop_from_memory(&mut self, job: JobId) {
        self.forget(job);
        if self.changes.is_enabled() {
            self.on_disk_only.push_back(job);
        }
    }

    fn drop_old(&mut self, now_ms: u64) {
        let expired = |first: Option<&(u64, JobId)>| {
            first.filter(|(until_ms, _)| *until_ms < now_ms).map(|(_, id)| *id)
        };
        while let Some(id) = expired(self.expiring.first()) {
            self.drop_from_memory(id);
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
