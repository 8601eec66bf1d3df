//! Lists of jobs.
//!
//! Start at [`Engine::jobs`]. Invariant: the work for one page is bounded, however many jobs the
//! store has and however few of them are wanted.

use lingua_core::Tenant;
use lingua_core::job::JobState;
use lingua_store::Store;
use lingua_store::contract::{JobFilter, JobRecord, JobStates, LabelMask};

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
            label: label_mask(query.tenant, query.session.as_deref()),
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
            && self.tenant.is_none_or(|tenant| job.is_of(tenant))
    }
}

/// The number by which the store finds the jobs of a tenant (its upper half) and of a session (its
/// lower half). Tenants or sessions may share one.
pub(crate) fn label_of(tenant: Tenant, session: &str) -> u64 {
    hash(tenant.as_str()) << 32 | hash(session)
}

fn label_mask(tenant: Option<Tenant>, session: Option<&str>) -> LabelMask {
    let upper = tenant.map_or(0, |tenant| hash(tenant.as_str()) << 32);
    let lower = session.map_or(0, hash);
    let mask = |is_wanted: bool| if is_wanted { u64::from(u32::MAX) } else { 0 };
    LabelMask { bits: upper | lower, mask: mask(tenant.is_some()) << 32 | mask(session.is_some()) }
}

/// FNV-1a of 32 bits: every instance must compute the same number.
fn hash(text: &str) -> u64 {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, mix).into()
}
