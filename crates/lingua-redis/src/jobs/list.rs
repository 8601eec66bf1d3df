//! Lists of jobs and orphans: every shard is asked at once, and what they say is merged.

use futures_util::future::{join_all, try_join_all};
use lingua_core::{InstanceId, JobId};
use lingua_store::Result;
use lingua_store::contract::{JobFilter, JobRecord};
use redis::{Cmd, Value};

use super::head;
use crate::keys::{SHARDS, shard_of};
use crate::reply::{ScriptReply, job_text, read_job};
use crate::script::{JOB_CLAIM, JOB_ORPHANS};
use crate::store::RedisStore;

/// Records that are looked at in one go in each shard.
const PAGE: usize = 256;

impl RedisStore {
    pub(crate) async fn list_jobs(&self, filter: JobFilter) -> Result<Vec<JobRecord>> {
        if filter.limit == 0 {
            return Ok(vec![]);
        }
        let shards = (0..SHARDS).map(|shard| self.matching_in(shard, &filter));
        let mut found: Vec<JobId> = try_join_all(shards).await?.into_iter().flatten().collect();
        found.sort_unstable();
        if filter.newest_first {
            found.reverse();
        }
        found.truncate(filter.limit);
        let records = try_join_all(found.into_iter().map(|job| self.find_job(job))).await?;
        Ok(records.into_iter().flatten().collect())
    }

    /// The first jobs of a shard that the filter lets through.
    async fn matching_in(&self, shard: u32, filter: &JobFilter) -> Result<Vec<JobId>> {
        let (mut found, mut after) = (vec![], filter.after);
        loop {
            let page = self.page_of(shard, filter, after).await?;
            let Some(&last) = page.last() else { return Ok(found) };
            for head in try_join_all(page.iter().map(|&job| self.head_of(job))).await? {
                let Some(record) = head.filter(|record| self.fits(filter, record)) else {
                    continue;
                };
                found.push(record.id);
                if found.len() == filter.limit {
                    return Ok(found);
                }
            }
            if page.len() < PAGE {
                return Ok(found);
            }
            after = Some(last);
        }
    }

    fn fits(&self, filter: &JobFilter, record: &JobRecord) -> bool {
        filter.state.is_none_or(|state| record.stage.state == state)
            && filter.owner.as_ref().is_none_or(|owner| record.owner == *owner)
            && !self.is_old(record)
    }

    /// The next ids of a shard, in the order of the list. Open jobs of one owner have a list of their own.
    async fn page_of(
        &self,
        shard: u32,
        filter: &JobFilter,
        after: Option<JobId>,
    ) -> Result<Vec<JobId>> {
        let keys = self.keys.shard(shard);
        let after = after.map(job_text);
        let open_only = filter.state.is_some_and(|state| !state.is_terminal());
        // A name has no blank in it, and what stands next to the blank in the order of bytes is "!".
        let (key, skip, lowest, highest) = match &filter.owner {
            Some(owner) if open_only => {
                let (lowest, highest) = (format!("({owner} "), format!("({owner}!"));
                (&keys.open, owner.as_str().len() + 1, lowest, highest)
            }
            _ => (&keys.all, 0, "-".to_owned(), "+".to_owned()),
        };
        let after = after.map(|after| match skip {
            0 => format!("({after}"),
            _ => format!("{lowest}{after}"),
        });
        let command = match filter.newest_first {
            false => between("ZRANGEBYLEX", key, after.unwrap_or(lowest), highest),
            true => between("ZREVRANGEBYLEX", key, after.unwrap_or(highest), lowest),
        };
        let mut reply = ScriptReply::new(self.connection.send(&command).await?)?;
        let mut page = Vec::with_capacity(reply.len());
        while !reply.is_empty() {
            let text = reply.text()?;
            page.push(read_job(text.get(skip..).unwrap_or_default())?);
        }
        Ok(page)
    }

    async fn head_of(&self, job: JobId) -> Result<Option<JobRecord>> {
        let mut command = redis::cmd("HGET");
        command.arg(self.keys.job(job)).arg("h");
        match self.connection.send(&command).await? {
            Value::BulkString(head) => head::read_head(job, &head).map(Some),
            _ => Ok(None),
        }
    }

    pub(crate) async fn claim(&self, heir: &InstanceId, limit: usize) -> Result<Vec<JobRecord>> {
        let known = self.known_instances().await?;
        let mut alive: Vec<InstanceId> =
            known.into_iter().filter(|known| known.alive).map(|known| known.instance).collect();
        alive.push(heir.clone());
        let shards = (0..SHARDS).map(|shard| self.orphans_in(shard, &alive, limit));
        let mut orphans: Vec<(InstanceId, JobId)> =
            try_join_all(shards).await?.into_iter().flatten().collect();
        orphans.sort_unstable();
        orphans.truncate(limit);
        let claims = orphans.iter().map(|(owner, job)| self.claim_one(*job, owner, heir));
        let mut claimed = vec![];
        for claim in join_all(claims).await {
            match claim {
                Ok(record) => claimed.extend(record),
                // What was claimed must be told; the rest is found again by its owner.
                Err(error) if claimed.is_empty() => return Err(error),
                Err(error) => tracing::warn!(%error, "an orphan was perhaps not taken over"),
            }
        }
        Ok(claimed)
    }

    async fn orphans_in(
        &self,
        shard: u32,
        alive: &[InstanceId],
        limit: usize,
    ) -> Result<Vec<(InstanceId, JobId)>> {
        let keys = self.keys.shard(shard);
        let mut call = JOB_ORPHANS.call(self.script_ms(), &[&keys.open]).arg(limit);
        alive.iter().for_each(|name| call.push(name.as_str()));
        let mut reply = ScriptReply::new(self.connection.run(&call).await?)?;
        let mut orphans = Vec::with_capacity(reply.len() / 2);
        while !reply.is_empty() {
            orphans.push((reply.parse::<InstanceId>()?, reply.job()?));
        }
        Ok(orphans)
    }

    async fn claim_one(
        &self,
        job: JobId,
        owner: &InstanceId,
        heir: &InstanceId,
    ) -> Result<Option<JobRecord>> {
        let shard = self.keys.shard(shard_of(job));
        let call =
            JOB_CLAIM.call(self.script_ms(), &[&self.keys.job(job)[..], shard.open.as_bytes()]);
        let call = call.arg(job_text(job)).arg(owner.as_str()).arg(heir.as_str());
        let mut reply = ScriptReply::new(self.connection.run(&call).await?)?;
        match reply.is_empty() {
            true => Ok(None),
            false => head::read(job, &mut reply).map(Some),
        }
    }
}

/// A page of a sorted set in the order of its texts, from one end to the other.
fn between(order: &str, key: &str, from: String, to: String) -> Cmd {
    let mut command = redis::cmd(order);
    command.arg(key).arg(from).arg(to).arg("LIMIT").arg(0).arg(PAGE);
    command
}
