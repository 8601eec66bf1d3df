//! Job records: one typed function for each script on a shard of jobs.
//!
//! Start at [`RedisStore::advance_job`]. Jobs are spread over [`SHARDS`] hash tags by their ids; a
//! list reads all shards and merges their ids.
//!
//! | file | contents |
//! |---|---|
//! | `jobs/head.rs` | a job's record, written and read |
//! | `jobs/list.rs` | pages and orphans, over all shards |

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

/// The token of a job without a step.
const NO_TOKEN: u64 = 0;

/// One end in this many drops ended jobs that are too old or too many, in larger batches.
const DROP_EVERY: u64 = 16;

/// A shard with a lower limit than this drops at every end, so that it keeps exactly its limit.
const DROP_ALWAYS_BELOW: i64 = 1024;

impl RedisStore {
    pub(crate) async fn create_job(&self, job: NewJob) -> Result<CreateReply> {
        let what = "a job's specification in bytes";
        StoreError::check_limit(what, job.spec.len(), JOB_BYTES_MAX)?;
        let limits = &self.limits;
        let (record, shard) = (self.keys.job(job.id), self.shard(job.id));
        let keys = [&record[..], shard.all.as_bytes(), shard.open.as_bytes()];
        let call = JOB_CREATE.call(self.script_ms(), &keys);
        let call = call.arg(head::member(&job.owner, job.id));
        let call = call.arg(head::start(head::NEW, &job.owner, NO_TOKEN));
        let call = call.arg(head::rest(job.deadline_ms, job.recoverable)).arg(&job.spec[..]);
        let call = call.arg(limits.job_record_ms).arg(per_shard(limits.open_jobs_max));
        match self.connection.run(&call).await? {
            Value::Int(1) => Ok(CreateReply::Created),
            Value::Int(_) => {
                let (what, limit) = ("the number of open jobs", limits.open_jobs_max);
                Err(StoreError::LimitReached { what, limit })
            }
            other => {
                let record = head::read(job.id, &mut ScriptReply::new(other)?)?;
                Ok(CreateReply::Exists(Box::new(record)))
            }
        }
    }

    pub(crate) async fn advance_job(&self, step: AdvanceRequest) -> Result<AdvanceReply> {
        let outcome_bytes = step.outcome.as_ref().map_or(0, |outcome| outcome.len());
        StoreError::check_limit("a job's outcome in bytes", outcome_bytes, JOB_BYTES_MAX)?;
        let (owner, job) = (&step.owner, step.job);
        let (record, shard) = (self.keys.job(job), self.shard(job));
        let [all, open, ended] = [&shard.all, &shard.open, &shard.ended].map(String::as_bytes);
        let call = JOB_ADVANCE.call(self.script_ms(), &[&record, all, open, ended]);
        let mut expected = head::start(step.from, owner, NO_TOKEN);
        expected.truncate(expected.len() - size_of_val(&NO_TOKEN));
        let call = call.arg(head::member(owner, job)).arg(expected);
        let call = call.arg(head::start(step.to, owner, step.token));
        let call = call.arg(head::grant_text(step.grant.as_ref())).arg(self.limits.job_record_ms);
        let call = call.arg(self.ended_jobs_max(&step));
        let call = match &step.outcome {
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
            self.drop_records(reply).await?;
            return Ok(AdvanceReply::Advanced);
        }
        let state = state(reply.number()?)?;
        let stage = Stage { state, attempt: Attempt(reply.small()?) };
        Ok(AdvanceReply::Conflict { stage, owner: reply.parse::<InstanceId>()? })
    }

    /// How many ended jobs a shard may keep, or -1 if this step drops none.
    fn ended_jobs_max(&self, step: &AdvanceRequest) -> i64 {
        let max = per_shard(self.limits.ended_jobs_max) as i64;
        let drops = max < DROP_ALWAYS_BELOW || step.token.is_multiple_of(DROP_EVERY);
        if drops { max } else { -1 }
    }

    pub(crate) async fn job(&self, job: JobId) -> Result<Option<JobRecord>> {
        let mut command = redis::cmd("HMGET");
        command.arg(self.keys.job(job)).arg(&["h", "s", "o"]);
        let value = self.connection.send(&command).await?;
        if matches!(&value, Value::Array(parts) if parts.first() == Some(&Value::Nil)) {
            return Ok(None);
        }
        let record = head::read(job, &mut ScriptReply::new(value)?)?;
        // The servers' own clock has removed old records; a clock that a test moves has not.
        let kept_until_ms = record.updated_ms.saturating_add(self.limits.job_record_ms);
        let is_old = record.stage.state.is_terminal() && kept_until_ms < self.script_ms();
        Ok((!is_old).then_some(record))
    }

    /// Removes the records of jobs that were taken off the lists early. They would expire anyway,
    /// so a failure does no harm.
    async fn drop_records(&self, mut jobs: ScriptReply) -> Result<()> {
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

/// Each shard's part of a limit.
fn per_shard(limit: usize) -> usize {
    limit.div_ceil(SHARDS as usize).max(1)
}

/// States are numbered as in [`JobState::ALL`].
fn code(state: JobState) -> u8 {
    JobState::ALL.iter().position(|&known| known == state).unwrap_or_default() as u8
}

fn state(code: u64) -> Result<JobState> {
    let known = JobState::ALL.get(code as usize).copied();
    known.ok_or_else(|| corrupt(&format!("there is no job state {code}")))
}
