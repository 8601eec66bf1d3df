//! Job records, as the contract has them.

use lingua_core::{InstanceId, JobId};

use super::Model;
use crate::contract::{
    AdvanceReply, AdvanceRequest, CreateReply, EraseReply, JobFilter, JobPage, JobRecord, NewJob,
};

/// How long an ended job is remembered.
pub(super) const JOB_RECORD_MS: u64 = 3_600_000;

impl Model {
    fn forget_old_jobs(&mut self) {
        let now_ms = self.now_ms;
        self.jobs.retain(|(job, _)| job.kept_until_ms.is_none_or(|until_ms| until_ms >= now_ms));
    }

    /// What writing down a job must answer.
    pub fn expect_create(&mut self, job: &NewJob) -> CreateReply {
        self.forget_old_jobs();
        if let Some((known, _)) = self.jobs.iter().find(|(known, _)| known.id == job.id) {
            return CreateReply::Exists(Box::new(known.clone()));
        }
        self.jobs.push((JobRecord::new(job.clone(), self.now_ms), None));
        CreateReply::Created
    }

    /// What a step must answer. Invariant 11: out of an end leads nothing, so there is one.
    pub fn expect_advance(&mut self, step: &AdvanceRequest) -> AdvanceReply {
        self.forget_old_jobs();
        let now_ms = self.now_ms;
        let Some((job, token)) = self.jobs.iter_mut().find(|(job, _)| job.id == step.job) else {
            return AdvanceReply::NotFound;
        };
        if *token == Some(step.token) && job.stage == step.to && job.owner == step.owner {
            return AdvanceReply::Advanced;
        }
        if job.stage != step.from || job.owner != step.owner {
            return AdvanceReply::Conflict { stage: job.stage, owner: job.owner.clone() };
        }
        *token = Some(step.token);
        job.stage = step.to;
        job.grant = step.grant.clone();
        job.outcome = step.outcome.clone();
        job.spec = step.retention.spec.clone().unwrap_or_else(|| job.spec.clone());
        job.updated_ms = now_ms;
        if step.to.state.is_terminal() {
            let keep_ms = step.retention.keep_ms(JOB_RECORD_MS);
            job.kept_until_ms = Some(now_ms + keep_ms);
        }
        AdvanceReply::Advanced
    }

    /// What erasing a job must answer.
    pub fn expect_erase(&mut self, id: JobId) -> EraseReply {
        self.forget_old_jobs();
        match self.jobs.iter().position(|(job, _)| job.id == id) {
            None => EraseReply::NotFound,
            Some(at) if !self.jobs[at].0.stage.state.is_terminal() => EraseReply::Open,
            Some(at) => {
                self.jobs.remove(at);
                EraseReply::Erased
            }
        }
    }

    /// What asking for a job must answer.
    pub fn expect_job(&mut self, id: JobId) -> Option<JobRecord> {
        self.forget_old_jobs();
        self.jobs.iter().find(|(job, _)| job.id == id).map(|(job, _)| job.clone())
    }

    /// What listing must answer.
    pub fn expect_jobs(&mut self, filter: &JobFilter) -> JobPage {
        self.forget_old_jobs();
        let mut jobs: Vec<JobRecord> = self.jobs.iter().map(|(job, _)| job.clone()).collect();
        jobs.sort_by_key(|job| job.id);
        if filter.newest_first {
            jobs.reverse();
            jobs.retain(|job| filter.after.is_none_or(|after| job.id < after));
        } else {
            jobs.retain(|job| filter.after.is_none_or(|after| job.id > after));
        }
        let is_open_of = |job: &JobRecord, owner: &InstanceId| {
            job.owner == *owner && !job.stage.state.is_terminal()
        };
        jobs.retain(|job| filter.open_of.as_ref().is_none_or(|owner| is_open_of(job, owner)));
        jobs.retain(|job| filter.admits(job));
        jobs.truncate(filter.limit);
        let next = jobs.last().filter(|_| jobs.len() == filter.limit).map(|job| job.id);
        JobPage { jobs, next }
    }

    /// What claiming must answer: open jobs of the dead, by owner, then by id.
    pub fn expect_claim(&mut self, heir: &InstanceId, limit: usize) -> Vec<JobRecord> {
        let now_ms = self.now_ms;
        let alive: Vec<InstanceId> = self
            .instances
            .iter()
            .filter(|i| i.until_ms >= now_ms)
            .map(|i| i.instance.clone())
            .collect();
        let mut orphans: Vec<&mut (JobRecord, Option<u64>)> = self
            .jobs
            .iter_mut()
            .filter(|(job, _)| !job.stage.state.is_terminal())
            .filter(|(job, _)| job.owner != *heir && !alive.contains(&job.owner))
            .collect();
        orphans.sort_by_key(|(job, _)| (job.owner.clone(), job.id));
        orphans.truncate(limit);
        let claim = |(job, token): &mut (JobRecord, Option<u64>)| {
            job.owner = heir.clone();
            job.updated_ms = now_ms;
            *token = None;
            job.clone()
        };
        orphans.into_iter().map(claim).collect()
    }
}
