//! Pages of jobs, and orphans: all shards are read at once, and their ids are merged.

use futures_util::future::{join_all, try_join_all};
use lingua_core::{InstanceId, JobId};
use lingua_store::Result;
use lingua_store::contract::{
    JOBS_PAGE_BYTES, JOBS_PAGE_MAX, JOBS_SCAN_MAX, JobFilter, JobPage, JobRecord,
};

use super::head;
use crate::keys::{SHARDS, shard_of};
use crate::reply::{job_text, parse, read_job};
use crate::script::{JOB_CLAIM, JOB_ORPHANS, JOB_UNLIST};
use crate::store::RedisStore;

/// Whole records that are read at once; each may have two megabytes.
const RECORDS_BATCH: usize = 64;

/// Heads that are read at once.
const HEADS_BATCH: usize = 250;

impl RedisStore {
    /// Each round reads the next ids in order, and of a limited list their heads; whole records are
    /// read only for the page.
    pub(crate) async fn jobs(&self, filter: JobFilter) -> Result<JobPage> {
        let (mut page, limit) = (JobPage::default(), filter.limit.min(JOBS_PAGE_MAX));
        let mut last = filter.after;
        let mut scanned = 0;
        while page.jobs.len() < limit && scanned < JOBS_SCAN_MAX {
            let missing = limit - page.jobs.len();
            let batch = if filter.admits_all() { missing } else { HEADS_BATCH };
            let batch = batch.min(JOBS_SCAN_MAX - scanned);
            let (mut ids, read) = self.next_ids(&filter, last, batch).await?;
            let mut is_end = read < batch || ids.is_empty();
            scanned += read;
            last = ids.last().copied().or(last);
            if !filter.admits_all() {
                ids = self.admitted(&filter, ids).await?;
                if let Some(&beyond) = ids.get(missing - 1) {
                    (last, is_end) = (Some(beyond), false);
                    ids.truncate(missing);
                }
            }
            if let Some(cut) = self.read_page(&filter, &ids, &mut page).await? {
                page.next = Some(cut);
                return Ok(page);
            }
            if is_end {
                return Ok(page);
            }
        }
        page.next = last.filter(|_| scanned > 0);
        Ok(page)
    }

    /// Reads the records of a page, some at a time. If they have too many bytes, says with which
    /// job the page ends.
    async fn read_page(
        &self,
        filter: &JobFilter,
        ids: &[JobId],
        page: &mut JobPage,
    ) -> Result<Option<JobId>> {
        let mut bytes = page.jobs.iter().map(JobRecord::bytes).sum::<usize>();
        for batch in ids.chunks(RECORDS_BATCH) {
            let records = join_all(batch.iter().map(|&job| self.listed_job(job))).await;
            let records = self.all_readable(records)?;
            // A job may have moved on since its head was read.
            for record in records.into_iter().flatten().filter(|job| filter.admits(job)) {
                let id = record.id;
                bytes += record.bytes();
                page.jobs.push(record);
                if bytes >= JOBS_PAGE_BYTES {
                    return Ok(Some(id));
                }
            }
        }
        Ok(None)
    }

    /// A job of the list. If its record is gone, its id leaves the list.
    async fn listed_job(&self, job: JobId) -> Result<Option<JobRecord>> {
        let record = self.job(job).await?;
        if record.is_none() {
            self.unlist(job).await?;
        }
        Ok(record)
    }

    async fn unlist(&self, job: JobId) -> Result<()> {
        let (record, shard) = (self.keys.job(job), self.keys.shard(shard_of(job)));
        self.call(&JOB_UNLIST, &[&record[..], shard.all.as_bytes()], job_text(job)).await
    }

    /// Those of the jobs that the filter admits.
    async fn admitted(&self, filter: &JobFilter, ids: Vec<JobId>) -> Result<Vec<JobId>> {
        let head = |job: JobId| async move {
            let mut command = redis::cmd("HGET");
            command.arg((self.keys.job(job), "h"));
            let head: Option<Vec<u8>> = self.query(&command).await?;
            if head.is_none() {
                self.unlist(job).await?;
            }
            head.map(|head| head::read_head(job, &head)).transpose()
        };
        let heads = join_all(ids.into_iter().map(head)).await;
        let heads = self.all_readable(heads)?.into_iter().flatten();
        Ok(heads.filter(|job| filter.admits(job) && !self.is_old(job)).map(|job| job.id).collect())
    }

    /// The next `limit` ids of all shards, in the order of the list, and how many entries were
    /// read for them.
    async fn next_ids(
        &self,
        filter: &JobFilter,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<(Vec<JobId>, usize)> {
        let shards = (0..SHARDS).map(|shard| self.next_ids_of(shard, filter, after, limit));
        let entries: Vec<Result<JobId>> =
            try_join_all(shards).await?.into_iter().flatten().collect();
        let read = entries.len().min(limit);
        let mut ids = self.all_readable(entries)?;
        ids.sort_unstable();
        if filter.newest_first {
            ids.reverse();
        }
        ids.truncate(limit);
        Ok((ids, read))
    }

    /// The next ids of one shard. The open jobs of each owner are a range of their own.
    async fn next_ids_of(
        &self,
        shard: u32,
        filter: &JobFilter,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<Result<JobId>>> {
        let keys = self.keys.shard(shard);
        let after = after.map(job_text);
        // A name contains no space, and the next character after the space is "!".
        let (key, skip, lowest, highest, after) = match &filter.open_of {
            Some(owner) => {
                let (lowest, highest) = (format!("({owner} "), format!("({owner}!"));
                let after = after.map(|after| format!("{lowest}{after}"));
                (&keys.open, owner.as_str().len() + 1, lowest, highest, after)
            }
            None => {
                let after = after.map(|after| format!("({after}"));
                (&keys.all, 0, "-".to_owned(), "+".to_owned(), after)
            }
        };
        let (name, from, to) = match filter.newest_first {
            false => ("ZRANGEBYLEX", after.unwrap_or(lowest), highest),
            true => ("ZREVRANGEBYLEX", after.unwrap_or(highest), lowest),
        };
        let mut command = redis::cmd(name);
        command.arg((key, from, to, "LIMIT", 0, limit));
        let members: Vec<String> = self.query(&command).await?;
        let id = |member: &String| read_job(member.get(skip..).unwrap_or_default());
        Ok(members.iter().map(id).collect())
    }

    pub(crate) async fn claim_orphans(
        &self,
        heir: &InstanceId,
        limit: usize,
    ) -> Result<Vec<JobRecord>> {
        let known = self.instances().await?;
        let alive = known.iter().filter(|known| known.alive).map(|known| &known.instance);
        let alive: Vec<&str> = alive.chain([heir]).map(InstanceId::as_str).collect();
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
                // The claimed jobs must be returned; the heir finds the others by listing its own.
                Err(error) if claimed.is_empty() => return Err(error),
                Err(error) => tracing::warn!(%error, "an orphan may not have been claimed"),
            }
        }
        Ok(claimed)
    }

    async fn orphans_in(
        &self,
        shard: u32,
        alive: &[&str],
        limit: usize,
    ) -> Result<Vec<(InstanceId, JobId)>> {
        let open = &self.keys.shard(shard).open;
        let orphans: Vec<(String, String)> =
            self.call(&JOB_ORPHANS, &[open], (limit, alive)).await?;
        self.all_readable(orphans.iter().map(|(owner, job)| Ok((parse(owner)?, read_job(job)?))))
    }

    async fn claim_one(
        &self,
        job: JobId,
        owner: &InstanceId,
        heir: &InstanceId,
    ) -> Result<Option<JobRecord>> {
        let (record, shard) = (self.keys.job(job), self.keys.shard(shard_of(job)));
        let (keys, args) =
            ([&record[..], shard.open.as_bytes()], (job_text(job), owner.as_str(), heir.as_str()));
        let claimed: Vec<head::Fields> = self.call(&JOB_CLAIM, &keys, args).await?;
        claimed.into_iter().next().map(|fields| head::read(job, fields)).transpose()
    }
}
