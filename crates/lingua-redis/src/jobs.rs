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
use lingua_core::{Attempt, JobId};
use lingua_store::contract::{
    AdvanceReply, AdvanceRequest, CreateReply, EraseReply, JOB_BYTES_MAX, JobRecord, KeptShare,
    NewJob,
};
use lingua_store::{Result, StoreError};
use redis::Value;

use crate::keys::{SHARDS, ShardKeys, shard_of};
use crate::reply::{convert, corrupt, job_text, parse, read_job};
use crate::script::{JOB_ADVANCE, JOB_CREATE, JOB_ERASE};
use crate::store::RedisStore;

pub(crate) mod head;
mod list;

/// The token of a job without a step.
const NO_TOKEN: u64 = 0;

/// One end in this many drops ended jobs that are too old or too many, in larger batches.
const DROP_EVERY: u64 = 16;

/// A shard with a lower limit than this drops at every end, so that it keeps exactly its limit.
const DROP_ALWAYS_BELOW: i64 = 1024;

/// The same in bytes.
const DROP_ALWAYS_BELOW_BYTES: usize = 8 << 20;

impl RedisStore {
    pub(crate) async fn create_job(&self, job: NewJob) -> Result<CreateReply> {
        let what = "a job's specification in bytes";
        StoreError::check_limit(what, job.spec.len(), JOB_BYTES_MAX)?;
        let limits = &self.options.limits;
        let (record, shard) = (self.keys.job(job.id), self.shard(job.id));
        let keys = [&record[..], shard.all.as_bytes(), shard.open.as_bytes()];
        let args = (
            head::member(&job.owner, job.id),
            head::start(head::NEW, &job.owner, NO_TOKEN),
            head::rest(&job),
            &job.spec[..],
            per_shard(limits.open_jobs_max),
        );
        match self.call(&JOB_CREATE, &keys, args).await? {
            Value::Int(1) => Ok(CreateReply::Created),
            Value::Int(_) => {
                let (what, limit) = ("the number of open jobs", limits.open_jobs_max);
                Err(StoreError::LimitReached { what, limit })
            }
            known => Ok(CreateReply::Exists(Box::new(head::read(job.id, convert(known)?)?))),
        }
    }

    pub(crate) async fn advance_job(&self, step: AdvanceRequest) -> Result<AdvanceReply> {
        let outcome_bytes = step.outcome.as_ref().map_or(0, |outcome| outcome.len());
        StoreError::check_limit("a job's outcome in bytes", outcome_bytes, JOB_BYTES_MAX)?;
        let retention = &step.retention;
        let spec = retention.spec.as_deref().unwrap_or_default();
        StoreError::check_limit("a job's specification in bytes", spec.len(), JOB_BYTES_MAX)?;
        let record_ms = self.options.limits.job_record_ms;
        let (owner, job) = (&step.owner, step.job);
        let (record, shard) = (self.keys.job(job), self.shard(job));
        let ended = shard.ended(retention.share.group);
        let keys = [&record[..], shard.all.as_bytes(), shard.open.as_bytes(), ended.as_bytes()];
        let mut expected = head::start(step.from, owner, NO_TOKEN);
        expected.truncate(expected.len() - size_of_val(&NO_TOKEN));
        let args = (
            head::member(owner, job),
            expected,
            head::start(step.to, owner, step.token),
            head::grant_text(step.grant.as_ref()),
            record_ms,
            self.ended_jobs_max(&step),
            self.ended_bytes_max(retention.share),
            retention.keep_ms(record_ms),
            spec,
            step.outcome.as_deref(),
        );
        match self.call(&JOB_ADVANCE, &keys, args).await? {
            Value::Int(1) => Ok(AdvanceReply::Advanced),
            Value::Int(_) => Ok(AdvanceReply::NotFound),
            Value::Array(parts) if matches!(parts.first(), Some(Value::BulkString(_))) => {
                let words: Vec<String> = convert(Value::Array(parts))?;
                self.drop_records(&words[1..]).await?;
                Ok(AdvanceReply::Advanced)
            }
            conflict => {
                let (code, attempt, owner): (u64, u32, String) = convert(conflict)?;
                let stage = Stage { state: state(code)?, attempt: Attempt(attempt) };
                Ok(AdvanceReply::Conflict { stage, owner: parse(&owner)? })
            }
        }
    }

    /// How many ended jobs of its group a shard may keep, or -1 if this step drops none.
    fn ended_jobs_max(&self, step: &AdvanceRequest) -> i64 {
        let share = step.retention.share;
        let max = per_shard(share.part_of(self.options.limits.ended_jobs_max)) as i64;
        let is_small =
            max < DROP_ALWAYS_BELOW || self.ended_bytes_max(share) < DROP_ALWAYS_BELOW_BYTES;
        let drops = is_small || step.token.is_multiple_of(DROP_EVERY);
        if drops { max } else { -1 }
    }

    fn ended_bytes_max(&self, share: KeptShare) -> usize {
        per_shard(share.part_of(self.options.limits.ended_bytes_max))
    }

    pub(crate) async fn job(&self, job: JobId) -> Result<Option<JobRecord>> {
        let mut command = redis::cmd("HMGET");
        command.arg((self.keys.job(job), "h", "s", "o"));
        let fields: head::Fields = self.query(&command).await?;
        if fields.0.is_empty() {
            return Ok(None);
        }
        let record = head::read(job, fields)?;
        Ok(Some(record).filter(|record| !self.is_old(record)))
    }

    /// The servers' own clock has removed old records; a clock that a test moves has not.
    fn is_old(&self, record: &JobRecord) -> bool {
        record.is_old(self.script_ms())
    }

    /// The list of ended jobs keeps the id until its time is over: it is in the order of ends.
    pub(crate) async fn erase_job(&self, job: JobId) -> Result<EraseReply> {
        let (record, shard) = (self.keys.job(job), self.shard(job));
        let keys = [&record[..], shard.all.as_bytes()];
        Ok(match self.call(&JOB_ERASE, &keys, job_text(job)).await? {
            1 => EraseReply::Erased,
            2 => EraseReply::Open,
            _ => EraseReply::NotFound,
        })
    }

    /// Removes the records of jobs that were taken off the lists early. They would expire anyway,
    /// so a failure does no harm.
    async fn drop_records(&self, jobs: &[String]) -> Result<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let mut command = redis::cmd("UNLINK");
        for job in jobs {
            command.arg(self.keys.job(read_job(job)?));
        }
        self.query(&command).await
    }

    fn shard(&self, job: JobId) -> &ShardKeys {
        self.keys.shard(shard_of(job))
    }
}

/// Each shard's part of a limit.
pub(crate) fn per_shard(limit: usize) -> usize {
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
