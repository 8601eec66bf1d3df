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
    Advance, AdvanceReply, CreateReply, JOB_BYTES_MAX, JobRecord, NewJob,
};
use lingua_store::{Error, Result};
use redis::Value;

use crate::keys::{SHARDS, shard_of};
use crate::reply::{Reply, corrupt, job_text};
use crate::script::{JOB_ADVANCE, JOB_CREATE};
use crate::store::RedisStore;

mod head;
mod list;

impl RedisStore {
    pub(crate) async fn create(&self, job: NewJob) -> Result<CreateReply> {
        check_size("a job's specification in bytes", job.spec.len())?;
        let id = job_text(job.id);
        let limits = &self.limits;
        let call = JOB_CREATE.call(self.script_ms(), &self.job_keys(job.id));
        let call = call.arg(&id).arg(job.owner.as_str()).arg(&job.spec[..]);
        let call = call.arg(job.deadline_ms.map_or("-".to_owned(), |ms| ms.to_string()));
        let call = call.arg(u8::from(job.recoverable)).arg(limits.job_record_ms);
        let call = call.arg(per_shard(limits.open_jobs_max));
        let mut reply = Reply::new(self.line.run(&call).await?)?;
        match reply.text()?.as_str() {
            "limit" => {
                let (what, limit) = ("the number of open jobs", self.limits.open_jobs_max);
                Err(Error::LimitReached { what, limit })
            }
            "created" => Ok(CreateReply::Created),
            _ => head::read(job.id, &mut reply).map(CreateReply::Exists),
        }
    }

    pub(crate) async fn advance(&self, step: Advance) -> Result<AdvanceReply> {
        check_size("a job's outcome in bytes", step.outcome().map_or(0, |outcome| outcome.len()))?;
        let (from, to) = (step.from(), step.to());
        let limits = &self.limits;
        let call = JOB_ADVANCE.call(self.script_ms(), &self.job_keys(step.job()));
        let call = call.arg(job_text(step.job())).arg(step.owner().as_str());
        let call = call.arg(format!("{} {}", code(from.state), from.attempt));
        let call = call.arg(code(to.state)).arg(to.attempt.0).arg(step.token());
        let call = call.arg(head::grant_text(step.grant()));
        let call = call.arg(step.outcome().map_or(&[][..], |outcome| &outcome[..]));
        let call = call.arg(u8::from(step.outcome().is_some()));
        let call = call.arg(limits.job_record_ms).arg(per_shard(limits.ended_jobs_max));
        let mut reply = Reply::new(self.line.run(&call).await?)?;
        Ok(match reply.text()?.as_str() {
            "advanced" => {
                self.forget(shard_of(step.job()), reply.list()?).await?;
                AdvanceReply::Advanced
            }
            "conflict" => {
                let state = state(reply.number()?)?;
                let stage = Stage { state, attempt: Attempt(reply.small()?) };
                AdvanceReply::Conflict { stage, owner: reply.parse::<InstanceId>()? }
            }
            _ => AdvanceReply::NotFound,
        })
    }

    pub(crate) async fn find_job(&self, job: JobId) -> Result<Option<JobRecord>> {
        let mut command = redis::cmd("HMGET");
        command.arg(self.keys.job(job)).arg(&["h", "s", "o"]);
        let value = self.line.send(&command).await?;
        if matches!(&value, Value::Array(parts) if parts.first() == Some(&Value::Nil)) {
            return Ok(None);
        }
        let record = head::read(job, &mut Reply::new(value)?)?;
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
    async fn forget(&self, shard: u32, mut jobs: Reply) -> Result<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let mut command = redis::cmd("UNLINK");
        while !jobs.is_empty() {
            let job = jobs.job()?;
            if shard_of(job) == shard {
                command.arg(self.keys.job(job));
            }
        }
        self.line.send(&command).await.map(drop)
    }

    fn job_keys(&self, job: JobId) -> [String; 4] {
        let shard = self.keys.shard(shard_of(job));
        [self.keys.job(job), shard.all, shard.open, shard.ended]
    }
}

/// What of a limit falls to each shard.
fn per_shard(limit: usize) -> usize {
    limit.div_ceil(SHARDS as usize).max(1)
}

fn check_size(what: &'static str, bytes: usize) -> Result<()> {
    match bytes <= JOB_BYTES_MAX {
        true => Ok(()),
        false => Err(Error::LimitReached { what, limit: JOB_BYTES_MAX }),
    }
}

/// States are numbered as in [`JobState::ALL`].
fn code(state: JobState) -> usize {
    JobState::ALL.iter().position(|&known| known == state).unwrap_or_default()
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
        assert!(text.contains(&format!("FIRST_END = {first_end}")));
        assert!(JobState::ALL[first_end..].iter().all(|state| state.is_terminal()));
    }
}
