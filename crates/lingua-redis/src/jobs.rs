//! Job records: one typed function for each script on a shard of jobs.
//!
//! Start at [`RedisStore::advance`]. Jobs are spread over [`SHARDS`] hash tags by their ids; a list
//! asks all shards and merges what they say.
//!
//! | file | what |
//! |---|---|
//! | `jobs/head.rs` | a job's record, written and read |
//! | `jobs/list.rs` | lists and orphans, over all shards |

use lingua_core::job::{JobState, Stage};
use lingua_core::{Attempt, InstanceId, JobId};
use lingua_store::contract::{
    AdvanceReply, AdvanceRequest, CreateReply, JOB_BYTES_MAX, JobRecord, NewJob,
};
use lingua_store::{Result, StoreError};
use redis::Value;

use crate::keys::{SHARDS, ShardKeys, shard_of};
use crate::reply::{ScriptReply, corrupt};
use crate::script::{JOB_ADVANCE, JOB_CREATE};
use crate::store::RedisStore;

mod head;
mod list;

/// Stands where no step has been made.
const NO_TOKEN: u64 = 0;

/// One step to an end in so many looks for jobs that ended too long ago, or are too many.
const FORGET_EVERY: u64 = 16;

/// Below this many a shard keeps exactly as many as it may.
const FORGET_EXACTLY_BELOW: i64 = 1024;

impl RedisStore {
    pub(crate) async fn create(&self, job: NewJob) -> Result<CreateReply> {
        check_size("a job's specification in bytes", job.spec.len())?;
        let limits = &self.limits;
        let (record, shard) = (self.keys.job(job.id), self.shard(job.id));
        let keys = [&record[..], shard.all.as_bytes(), shard.open.as_bytes()];
        let call = JOB_CREATE.call(self.script_ms(), &keys);
        let call = call.arg(head::member(&job.owner, job.id));
        let call = call.arg(head::standing(head::NEW, &job.owner, NO_TOKEN));
        let call = call.arg(head::rest(job.deadline_ms, job.recoverable)).arg(&job.spec[..]);
        let call = call.arg(limits.job_record_ms).arg(per_shard(limits.open_jobs_max));
        match self.connection.run(&call).await? {
            Value::Int(1) => Ok(CreateReply::Created),
            Value::Int(_) => {
                let (what, limit) = ("the number of open jobs", self.limits.open_jobs_max);
                Err(StoreError::LimitReached { what, limit })
            }
            other => head::read(job.id, &mut ScriptReply::new(other)?).map(CreateReply::Exists),
        }
    }

    pub(crate) async fn advance(&self, step: AdvanceRequest) -> Result<AdvanceReply> {
        check_size("a job's outcome in bytes", step.outcome().map_or(0, |outcome| outcome.len()))?;
        let (owner, job) = (step.owner(), step.job());
        let (record, shard) = (self.keys.job(job), self.shard(job));
        let [all, open, ended] = [&shard.all, &shard.open, &shard.ended].map(String::as_bytes);
        let call = JOB_ADVANCE.call(self.script_ms(), &[&record, all, open, ended]);
        let mut standing = head::standing(step.from(), owner, NO_TOKEN);
        standing.truncate(standing.len() - size_of_val(&NO_TOKEN));
        let call = call.arg(head::member(owner, job)).arg(standing);
        let call = call.arg(head::standing(step.to(), owner, step.token()));
        let call = call.arg(head::grant_text(step.grant())).arg(self.limits.job_record_ms);
        let call = call.arg(self.ended_jobs_max(&step));
        let call = match step.outcome() {
            Some(outcome) => call.arg(&outcome[..]),
            None => call,
        };
        let mut reply = match self.connection.run(&call).await? {
            Value::Int(1) => return Ok(AdvanceReply::Advanced),
            Value::Int(_) => return Ok(AdvanceReply::NotFound),
            other => ScriptReply::new(other)?,
        };
        if reply.is_text() {
            reply.text()?;
            self.forget(reply).await?;
            return Ok(AdvanceReply::Advanced);
        }
        let state = state(reply.number()?)?;
        let stage = Stage { state, attempt: Attempt(reply.small()?) };
        Ok(AdvanceReply::Conflict { stage, owner: reply.parse::<InstanceId>()? })
    }

    /// How many ended jobs a shard may keep, or -1 if this step need not look. One in so many does: what it finds it
    /// removes in batches that are larger.
    fn ended_jobs_max(&self, step: &AdvanceRequest) -> i64 {
        let most = per_shard(self.limits.ended_jobs_max) as i64;
        let looks = most < FORGET_EXACTLY_BELOW || step.token().is_multiple_of(FORGET_EVERY);
        if looks { most } else { -1 }
    }

    pub(crate) async fn find_job(&self, job: JobId) -> Result<Option<JobRecord>> {
        let mut command = redis::cmd("HMGET");
        command.arg(self.keys.job(job)).arg(&["h", "s", "o"]);
        let value = self.connection.send(&command).await?;
        if matches!(&value, Value::Array(parts) if parts.first() == Some(&Value::Nil)) {
            return Ok(None);
        }
        let record = head::read(job, &mut ScriptReply::new(value)?)?;
        Ok((!self.is_old(&record)).then_some(record))
    }

    /// Whether the record would be gone by now. The servers' own clock removes it; a clock that is moved
    /// by hand does not.
    fn is_old(&self, record: &JobRecord) -> bool {
        let ends_ms = record.updated_ms.saturating_add(self.limits.job_record_ms);
        record.stage.state.is_terminal() && ends_ms < self.script_ms()
    }

    /// Removes the records of jobs that were taken off the lists before their time. They would expire
    /// anyway, so it does no harm if this is not reached.
    async fn forget(&self, mut jobs: ScriptReply) -> Result<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let mut command = redis::cmd("UNLINK");
        while !jobs.is_empty() {
            command.arg(self.keys.job(jobs.job()?));
        }
        self.connection.send(&command).await.map(drop)
    }

    fn shard(&self, job: JobId) -> &ShardKeys {
        self.keys.shard(shard_of(job))
    }
}

/// What of a limit falls to each shard.
fn per_shard(limit: usize) -> usize {
    limit.div_ceil(SHARDS as usize).max(1)
}

fn check_size(what: &'static str, bytes: usize) -> Result<()> {
    match bytes <= JOB_BYTES_MAX {
        true => Ok(()),
        false => Err(StoreError::LimitReached { what, limit: JOB_BYTES_MAX }),
    }
}

/// States are numbered as in [`JobState::ALL`].
fn code(state: JobState) -> u8 {
    JobState::ALL.iter().position(|&known| known == state).unwrap_or_default() as u8
}

fn state(code: u64) -> Result<JobState> {
    let known = JobState::ALL.get(code as usize).copied();
    known.ok_or_else(|| corrupt(&format!("there is no state {code} of a job")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_know_which_states_are_ends() {
        let text = include_str!("../scripts/prelude/jobs.lua");
        let first_end = JobState::ALL.iter().position(|state| state.is_terminal()).unwrap();
        assert!(text.contains(&format!("FIRST_END, ID_BYTES = {first_end}, ")));
        assert!(JobState::ALL[first_end..].iter().all(|state| state.is_terminal()));
    }
}
