//! Lists of jobs.
//!
//! Start at [`Engine::jobs`]. Invariant: the work for one page is bounded, however many jobs the
//! store has and however few of them are wanted.

use lingua_core::job::JobState;
use lingua_store::Store;
use lingua_store::contract::{JobFilter, JobRecord, JobStates};

use super::jobs::status_of_record;
use crate::request::{JobQuery, JobStatus, JobStatusPage};
use crate::{Engine, SubmitError, Timer};

/// Most calls to the store for one page; each reads at most
/// [`JOBS_SCAN_MAX`](lingua_store::contract::JOBS_SCAN_MAX) records.
const CALLS_MAX: usize = 5;

impl<S: Store, T: Timer> Engine<S, T> {
    /// A page of jobs, newest first.
    pub async fn jobs(&self, query: &JobQuery) -> Result<JobStatusPage, SubmitError> {
        let mut filter = JobFilter {
            states: query.state.map(|state| match state.is_terminal() {
                true => JobStates::from_iter([state]),
                // Not every step of an open job is written.
                false => JobStates::open(),
            }),
            label: query.session.as_deref().map(label_of),
            node: query.node.clone(),
            after: query.after,
            newest_first: true,
            ..JobFilter::default()
        };
        let mut found = JobStatusPage::default();
        for _ in 0..CALLS_MAX {
            filter.limit = query.limit - found.jobs.len();
            let page = self.store.jobs(filter.clone()).await?;
            let jobs = page.jobs.into_iter().map(|record| self.latest(record));
            found.jobs.extend(jobs.filter(|job| query.admits(job)));
            found.next = page.next;
            filter.after = page.next;
            if found.jobs.len() >= query.limit || page.next.is_none() {
                break;
            }
        }
        Ok(found)
    }

    /// A live job is ahead of its record: only some of its steps are written.
    fn latest(&self, record: JobRecord) -> JobStatus {
        match self.live.get(record.id).filter(|_| !record.stage.state.is_terminal()) {
            Some(live) => self.status_of(&live, live.progress()),
            None => status_of_record(record),
        }
    }
}

impl JobQuery {
    fn admits(&self, job: &JobStatus) -> bool {
        let session = job.spec.as_ref().map(|spec| &spec.session);
        self.state.is_none_or(|state: JobState| state == job.progress.state)
            && (self.session.is_none() || self.session.as_ref() == session)
    }
}

/// The number by which the store finds the jobs of a session: FNV-1a. Sessions may share one.
pub(crate) fn label_of(session: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    session.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}
