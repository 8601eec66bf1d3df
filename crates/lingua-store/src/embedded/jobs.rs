//! Job records in memory.
//!
//! Start at [`Jobs::advance`]: compare, then move. Open jobs are refused beyond a limit; ended ones
//! are forgotten after a while, or earlier when there are too many.
//!
//! Invariant: a job ends once; whoever lost the race is told so.

use std::collections::{BTreeMap, VecDeque};

use lingua_core::planted::{self, Bug};
use lingua_core::{InstanceId, JobId};

use super::StoreLimits;
use super::archive::Archive;
use super::journal::record::Note;
use super::journal::{Kept, Notes};
use crate::contract::{
    AdvanceReply, AdvanceRequest, CreateReply, JOB_BYTES_MAX, JobFilter, JobRecord, NewJob,
};
use crate::error::{Result, StoreError};

/// How many forgotten jobs an operation removes from disk at most.
const LEAVE_BATCH: usize = 64;

#[derive(Debug, Clone)]
pub(super) struct Jobs {
    limits: StoreLimits,
    /// In boxes, because jobs come and go, and neighbours in a map are moved then.
    open_records: BTreeMap<JobId, Box<Entry>>,
    ended_records: Archive,
    /// How many open jobs each instance has.
    open: BTreeMap<InstanceId, usize>,
    /// Ended jobs and when they ended, oldest first.
    ended: VecDeque<(u64, JobId)>,
    notes: Notes,
    /// Forgotten here, and not yet on disk.
    leaving: VecDeque<JobId>,
}

impl Kept for Jobs {
    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }
}

#[derive(Debug, Clone)]
struct Entry {
    record: JobRecord,
    last_token: Option<u64>,
}

impl Jobs {
    pub(super) fn new(limits: StoreLimits) -> Self {
        Self {
            limits,
            open_records: BTreeMap::new(),
            ended_records: Archive::default(),
            open: BTreeMap::new(),
            ended: VecDeque::new(),
            notes: Notes::default(),
            leaving: VecDeque::new(),
        }
    }

    /// These jobs, by id, each with the token of its last step.
    pub(super) fn restore(limits: StoreLimits, jobs: Vec<(JobRecord, Option<u64>)>) -> Self {
        let mut restored = Self::new(limits);
        let (mut ended, open): (Vec<_>, Vec<_>) =
            jobs.into_iter().partition(|(record, _)| record.stage.state.is_terminal());
        // They leave in the order in which they ended, and should lie so.
        ended.sort_unstable_by_key(|(record, _)| (record.updated_ms, record.id));
        for (record, token) in ended {
            restored.ended.push_back((record.updated_ms, record.id));
            restored.ended_records.keep(&record, token);
        }
        for (record, last_token) in open {
            restored.add_open(Entry { record, last_token });
        }
        restored.notes.begin();
        restored
    }

    pub(super) fn create(&mut self, job: NewJob, now_ms: u64) -> Result<CreateReply> {
        check_size("a job's specification in bytes", job.spec.len())?;
        self.forget_old(now_ms);
        if let Some(record) = self.record(job.id)
            && !planted::is(Bug::CreateRestartsJob)
        {
            return Ok(CreateReply::Exists(record));
        }
        if self.open_records.len() >= self.limits.open_jobs_max {
            let limit = self.limits.open_jobs_max;
            return Err(StoreError::LimitReached { what: "the number of open jobs", limit });
        }
        let entry = Entry { record: JobRecord::new(job, now_ms), last_token: None };
        self.notes.take(|| Note::Accepted(entry.record.clone()));
        self.add_open(entry);
        Ok(CreateReply::Created)
    }

    pub(super) fn advance(&mut self, step: AdvanceRequest, now_ms: u64) -> Result<AdvanceReply> {
        check_size("a job's outcome in bytes", step.outcome().map_or(0, |outcome| outcome.len()))?;
        self.forget_old(now_ms);
        let Some(entry) = self.open_records.get_mut(&step.job()) else {
            let ended = self.ended_records.get(step.job());
            let refused = |(record, token)| refused(&record, token, &step);
            return Ok(ended.and_then(refused).unwrap_or(AdvanceReply::NotFound));
        };
        let Entry { record, last_token } = &mut **entry;
        if let Some(reply) = refused(record, *last_token, &step) {
            return Ok(reply);
        }
        *last_token = Some(step.token());
        record.stage = step.to();
        record.grant = step.grant().cloned();
        record.outcome = step.outcome().cloned();
        record.updated_ms = now_ms;
        self.notes.take(|| Note::Moved(record.clone(), *last_token));
        if step.to().state.is_terminal() {
            let token = *last_token;
            self.end(step.job(), token, now_ms);
            self.forget_old(now_ms);
        }
        Ok(AdvanceReply::Advanced)
    }

    /// What is open is in one place, what has ended in the other.
    fn end(&mut self, id: JobId, token: Option<u64>, now_ms: u64) {
        let Some(entry) = self.open_records.remove(&id) else { return };
        self.has_one_less(&entry.record.owner);
        self.ended.push_back((now_ms, id));
        self.ended_records.keep(&entry.record, token);
    }

    fn record(&self, job: JobId) -> Option<JobRecord> {
        match self.open_records.get(&job) {
            Some(entry) => Some(entry.record.clone()),
            None => self.ended_records.get(job).map(|(record, _)| record),
        }
    }

    pub(super) fn get(&self, job: JobId, now_ms: u64) -> Option<JobRecord> {
        self.record(job).filter(|record| !self.is_old(record, now_ms))
    }

    pub(super) fn list(&self, filter: &JobFilter, now_ms: u64) -> Vec<JobRecord> {
        use std::ops::Bound::{Excluded, Unbounded};
        let bound = filter.after.map_or(Unbounded, Excluded);
        let (from, to) = match filter.newest_first {
            true => (Unbounded, bound),
            false => (bound, Unbounded),
        };
        let open = self.open_records.range((from, to)).map(|(&id, _)| id);
        let ended = self.ended_records.range((from, to));
        let ids: Box<dyn Iterator<Item = JobId>> = match filter.newest_first {
            true => Box::new(merged(open.rev(), ended.rev(), |a, b| a > b)),
            false => Box::new(merged(open, ended, |a, b| a < b)),
        };
        ids.filter_map(|id| self.record(id))
            .filter(|r| filter.state.is_none_or(|state| r.stage.state == state))
            .filter(|r| filter.owner.as_ref().is_none_or(|owner| r.owner == *owner))
            .filter(|r| !self.is_old(r, now_ms))
            .take(filter.limit)
            .collect()
    }

    /// Gives up to `limit` open jobs of owners that are not alive to the heir.
    pub(super) fn claim(
        &mut self,
        heir: &InstanceId,
        limit: usize,
        is_alive: impl Fn(&InstanceId) -> bool,
        now_ms: u64,
    ) -> Vec<JobRecord> {
        let is_orphans = |owner: &InstanceId| owner != heir && !is_alive(owner);
        // Nearly always there are none, and the jobs need not be looked through.
        if !self.open.keys().any(is_orphans) {
            return vec![];
        }
        let open = self.open_records.values().map(|entry| &entry.record);
        let mut orphans: Vec<(InstanceId, JobId)> = open
            .filter(|record| is_orphans(&record.owner))
            .map(|record| (record.owner.clone(), record.id))
            .collect();
        orphans.sort_unstable();
        orphans.truncate(limit);
        let mut claimed = Vec::with_capacity(orphans.len());
        for (owner, id) in orphans {
            self.has_one_less(&owner);
            *self.open.entry(heir.clone()).or_default() += 1;
            if let Some(entry) = self.open_records.get_mut(&id) {
                entry.record.owner = heir.clone();
                entry.record.updated_ms = now_ms;
                entry.last_token = None;
                self.notes.take(|| Note::Moved(entry.record.clone(), None));
                claimed.push(entry.record.clone());
            }
        }
        claimed
    }

    fn add_open(&mut self, entry: Entry) {
        let (id, owner) = (entry.record.id, entry.record.owner.clone());
        *self.open.entry(owner).or_default() += 1;
        if let Some(replaced) = self.open_records.insert(id, Box::new(entry)) {
            self.has_one_less(&replaced.record.owner);
        }
    }

    fn has_one_less(&mut self, owner: &InstanceId) {
        if let Some(jobs) = self.open.get_mut(owner) {
            *jobs -= 1;
            if *jobs == 0 {
                self.open.remove(owner);
            }
        }
    }

    fn is_old(&self, record: &JobRecord, now_ms: u64) -> bool {
        let over_ms = record.updated_ms.saturating_add(self.limits.job_record_ms);
        record.stage.state.is_terminal() && over_ms < now_ms
    }

    fn forget_old(&mut self, now_ms: u64) {
        while let Some(&(ended_ms, id)) = self.ended.front() {
            let over_time = ended_ms.saturating_add(self.limits.job_record_ms) < now_ms;
            if !over_time && self.ended.len() <= self.limits.ended_jobs_max {
                break;
            }
            self.ended.pop_front();
            self.ended_records.remove(id);
            if self.notes.are_taken() {
                self.leaving.push_back(id);
            }
        }
        self.forget_on_disk();
    }

    /// Removes from disk what was forgotten, a little at a time: after a busy hour it may be a great
    /// deal, and somebody waits.
    fn forget_on_disk(&mut self) {
        let batch = self.leaving.len().min(LEAVE_BATCH);
        for id in self.leaving.drain(..batch) {
            // Unless it was accepted anew.
            if !self.open_records.contains_key(&id) && !self.ended_records.contains(id) {
                self.notes.take(|| Note::Forgotten(id));
            }
        }
    }
}

/// Why a step cannot be made, or that it was made before.
fn refused(
    record: &JobRecord,
    last_token: Option<u64>,
    step: &AdvanceRequest,
) -> Option<AdvanceReply> {
    let is_ours = record.owner == *step.owner();
    if is_ours && last_token == Some(step.token()) && record.stage == step.to() {
        return Some(AdvanceReply::Advanced);
    }
    let (stage, owner) = (record.stage, &record.owner);
    (!is_ours || stage != step.from())
        .then(|| AdvanceReply::Conflict { stage, owner: owner.clone() })
}

/// The ids of both, in order, if both are.
fn merged(
    one: impl Iterator<Item = JobId>,
    other: impl Iterator<Item = JobId>,
    is_before: fn(&JobId, &JobId) -> bool,
) -> impl Iterator<Item = JobId> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some(a), Some(b)) if is_before(b, a) => other.next(),
        (Some(_), _) => one.next(),
        (None, _) => other.next(),
    })
}

fn check_size(what: &'static str, bytes: usize) -> Result<()> {
    match bytes <= JOB_BYTES_MAX {
        true => Ok(()),
        false => Err(StoreError::LimitReached { what, limit: JOB_BYTES_MAX }),
    }
}
