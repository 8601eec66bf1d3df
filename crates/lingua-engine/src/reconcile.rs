//! Reconciles this instance with the store: jobs that the store has under this instance's name and
//! that have no runner, and ends that the store has forgotten.
//!
//! Start at [`Engine::reconcile`]. A reply may be lost after the store did its work, a runner may
//! have released its job while the store was away, a client may disconnect in the middle of a
//! submit, and a failover may lose confirmed writes. Each of these requests a scan, and the next
//! clean-up does it.
//!
//! Invariant: a job in the store has a runner at its owner, or its owner will scan for it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashSet;
use lingua_core::job::{JobMachine, JobState, Stage};
use lingua_core::planted::{self, Bug};
use lingua_core::{Attempt, JobId};
use lingua_store::Store;
use lingua_store::contract::{
    AdvanceReply, AdvanceRequest, Bytes, CreateReply, JobFilter, JobRecord, NewJob, Retention,
    StoreIdentity,
};
use parking_lot::Mutex;

use crate::handle::label_of;
use crate::job_spec_codec;
use crate::request::JobRequest;
use crate::{Engine, Timer};

/// Most ends that are remembered in case the store forgets them.
const ENDS_MAX: usize = 4096;

/// Most bytes of those.
const ENDS_BYTES_MAX: usize = 32 << 20;

/// How long they are remembered. A failover loses seconds.
const ENDS_MS: u64 = 30_000;

/// How often a lost end is written over a job that goes on meanwhile.
const RESTORES_MAX: u32 = 8;

/// Where every job begins.
pub(crate) const FIRST: Stage = Stage { state: JobState::New, attempt: Attempt::FIRST };

/// The end of a job, as it was written to the store.
#[derive(Debug, Clone)]
pub(crate) struct WrittenEnd {
    /// The store said that it is written. Otherwise it may be, and somebody may have read it.
    pub(crate) is_confirmed: bool,
    pub(crate) job: NewJob,
    pub(crate) stage: Stage,
    pub(crate) outcome: Bytes,
    pub(crate) retention: Retention,
    pub(crate) token: u64,
    pub(crate) written_ms: u64,
}

impl WrittenEnd {
    fn bytes(&self) -> usize {
        self.outcome.len() + self.job.spec.len()
    }
}

#[derive(Debug, Default)]
struct RecentEnds {
    oldest_first: VecDeque<WrittenEnd>,
    bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Reconciler {
    is_scan_requested: AtomicBool,
    /// Jobs that are being submitted: they are not live yet, and not lost either.
    submitting: Mutex<HashSet<JobId>>,
    /// Jobs that could not be written, and when they were accepted.
    released: Mutex<Vec<(JobRequest, u64)>>,
    ends: Mutex<RecentEnds>,
    /// The store that the ends were last compared with.
    identity: Mutex<StoreIdentity>,
}

impl Reconciler {
    pub(crate) fn new(identity: StoreIdentity) -> Self {
        Self {
            is_scan_requested: AtomicBool::new(false),
            submitting: Mutex::default(),
            released: Mutex::default(),
            ends: Mutex::default(),
            identity: Mutex::new(identity),
        }
    }

    /// Asks for a scan: the store may have jobs of this instance that have no runner.
    pub(crate) fn request_scan(&self) {
        self.is_scan_requested.store(true, Ordering::SeqCst);
    }

    #[cfg(test)]
    pub(crate) fn is_scan_requested(&self) -> bool {
        self.is_scan_requested.load(Ordering::SeqCst)
    }

    /// Takes a job that its runner abandons because the store does not reply. Bounded by the
    /// number of live jobs, of which it was one.
    pub(crate) fn release(&self, request: JobRequest, accepted_ms: u64) {
        self.released.lock().push((request, accepted_ms));
        self.request_scan();
    }

    /// Remembers an end for as long as a failover may lose it.
    pub(crate) fn remember(&self, end: WrittenEnd) {
        let mut ends = self.ends.lock();
        let now_ms = end.written_ms;
        ends.bytes += end.bytes();
        ends.oldest_first.push_back(end);
        while let Some(oldest) = ends.oldest_first.front() {
            let is_old = oldest.written_ms.saturating_add(ENDS_MS) < now_ms;
            if !is_old && ends.oldest_first.len() <= ENDS_MAX && ends.bytes <= ENDS_BYTES_MAX {
                break;
            }
            ends.bytes -= oldest.bytes();
            ends.oldest_first.pop_front();
        }
    }

    /// What the store shows of a job decides about an end of it that the store has not confirmed:
    /// it counts if it is there, and never if another instance has the job or it ended otherwise.
    fn compare(&self, record: &JobRecord) {
        if planted::is(Bug::UnwrittenEndKept) {
            return;
        }
        let mut ends = self.ends.lock();
        let known = ends.oldest_first.iter().position(|end| end.job.id == record.id);
        let Some(at) = known.filter(|at| !ends.oldest_first[*at].is_confirmed) else { return };
        let end = &mut ends.oldest_first[at];
        if record.stage.state.is_terminal() && record.outcome.as_ref() == Some(&end.outcome) {
            end.is_confirmed = true;
        } else if record.stage.state.is_terminal() || record.owner != end.job.owner {
            let bytes = end.bytes();
            ends.oldest_first.remove(at);
            ends.bytes -= bytes;
        }
    }

    /// Forgets the end of a job of which nothing may be kept.
    pub(crate) fn forget(&self, id: JobId) {
        let mut ends = self.ends.lock();
        ends.oldest_first.retain(|end| end.job.id != id);
        ends.bytes = ends.oldest_first.iter().map(WrittenEnd::bytes).sum();
    }

    /// Whether the job ended here a short while ago. A store that has forgotten that shows it open.
    pub(crate) fn has_ended(&self, id: JobId) -> bool {
        self.end_of(id).is_some()
    }

    fn end_of(&self, id: JobId) -> Option<WrittenEnd> {
        self.ends.lock().oldest_first.iter().find(|end| end.job.id == id).cloned()
    }

    /// Notes that a job is being submitted, until the guard is dropped; `None` if it is already.
    pub(crate) fn begin_submit(&self, id: JobId) -> Option<Submission<'_>> {
        let is_first = self.submitting.lock().insert(id);
        is_first.then_some(Submission { reconciler: self, id, is_settled: false })
    }
}

/// A job that is being submitted. If this is dropped before it is settled (the client disconnected,
/// or the store's reply was lost), the store may have the job.
#[derive(Debug)]
pub(crate) struct Submission<'a> {
    reconciler: &'a Reconciler,
    id: JobId,
    is_settled: bool,
}

impl Submission<'_> {
    pub(crate) fn settled(mut self) {
        self.is_settled = true;
    }
}

impl Drop for Submission<'_> {
    fn drop(&mut self) {
        self.reconciler.submitting.lock().remove(&self.id);
        if !self.is_settled {
            self.reconciler.request_scan();
        }
    }
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// Whether the job neither runs here nor is being submitted here.
    pub(crate) fn is_unowned(&self, id: JobId) -> bool {
        self.live.get(id).is_none() && !self.reconciler.submitting.lock().contains(&id)
    }

    /// The first record of a job.
    pub(crate) fn new_job(&self, request: &JobRequest, accepted_ms: u64) -> NewJob {
        NewJob {
            id: request.id,
            owner: self.options.instance.clone(),
            spec: job_spec_codec::encode(&request.spec).into(),
            deadline_ms: request.spec.deadline_ms.map(|ms| accepted_ms.saturating_add(ms)),
            recoverable: request.spec.is_recoverable(),
            label: label_of(request.spec.tenant, &request.spec.session),
        }
    }
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// Restores ends after a failover, and scans for jobs without a runner if that was requested.
    pub(crate) async fn reconcile(&self) -> lingua_store::Result<()> {
        let reconciler = &self.reconciler;
        let identity = self.store.identity();
        if *reconciler.identity.lock() != identity {
            reconciler.request_scan();
            self.restore_ends().await?;
            *reconciler.identity.lock() = identity;
        }
        let is_requested = reconciler.is_scan_requested.swap(false, Ordering::SeqCst);
        if planted::is(Bug::NoReconcile) || !is_requested {
            return Ok(());
        }
        let scan = async {
            self.write_released().await?;
            self.resume_own_jobs().await
        };
        scan.await.inspect_err(|_| reconciler.request_scan())
    }

    /// Writes jobs that their runners have released to the store, and runs them again.
    async fn write_released(&self) -> lingua_store::Result<()> {
        loop {
            let released = self.reconciler.released.lock().last().cloned();
            let Some((request, accepted_ms)) = released else { return Ok(()) };
            let id = request.id;
            match self.store.create_job(self.new_job(&request, accepted_ms)).await? {
                CreateReply::Created => {
                    if self.is_unowned(id) && !self.reconciler.has_ended(id) {
                        self.start(request, JobMachine::new(), accepted_ms, None);
                    }
                }
                CreateReply::Exists(record) => self.reconciler.compare(&record),
            }
            self.reconciler.released.lock().retain(|(released, _)| released.id != id);
        }
    }

    /// Runs the jobs that the store has under this instance's name and that have no runner.
    pub(crate) async fn resume_own_jobs(&self) -> lingua_store::Result<()> {
        // All pages before the first job is resumed: from then on they move.
        let (mut open, mut after) = (vec![], None);
        loop {
            let open_of = Some(self.options.instance.clone());
            let filter = JobFilter { open_of, after, limit: usize::MAX, ..Default::default() };
            let page = self.store.jobs(filter).await?;
            let ids = page.jobs.iter().map(|listed| listed.id);
            open.extend(ids.filter(|id| self.is_unowned(*id)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        for id in open {
            // It may have ended since it was listed.
            let now_ms = self.store.now_ms().await?;
            let record = self.store.job(id).await?;
            if let Some(record) = record.filter(|record| self.has_no_runner(record)) {
                self.adopt(record, now_ms).await;
            }
        }
        Ok(())
    }

    fn has_no_runner(&self, record: &JobRecord) -> bool {
        let is_own = record.owner == self.options.instance;
        is_own && !record.stage.state.is_terminal() && self.is_unowned(record.id)
    }

    /// Writes recent ends again, which a failover may have lost: clients have seen them.
    async fn restore_ends(&self) -> lingua_store::Result<()> {
        let ends = self.reconciler.ends.lock().oldest_first.clone();
        for end in ends {
            if !planted::is(Bug::LostEndNotRestored) {
                self.restore_end(end).await?;
            }
        }
        Ok(())
    }

    /// Whether the store has just forgotten that this job ended here; writes that end again.
    pub(crate) async fn has_forgotten_end(&self, id: JobId) -> bool {
        let is_behind = *self.reconciler.identity.lock() != self.store.identity();
        is_behind && self.restore_end_of(id).await
    }

    /// Writes the end of this job again, if it ended here recently; says whether it did.
    pub(crate) async fn restore_end_of(&self, id: JobId) -> bool {
        let Some(end) = self.reconciler.end_of(id) else { return false };
        if self.restore_end(end).await.is_err() {
            self.reconciler.request_scan();
        }
        self.reconciler.has_ended(id)
    }

    /// Writes the end over whatever open stage the store shows. A failover may have brought back an
    /// earlier owner, and that owner may have begun a later attempt: clients have seen this end.
    async fn restore_end(&self, end: WrittenEnd) -> lingua_store::Result<()> {
        let id = end.job.id;
        let own = end.job.owner.clone();
        let (mut stage, mut owner) = match self.store.create_job(end.job).await? {
            CreateReply::Created => (FIRST, own.clone()),
            CreateReply::Exists(record) => {
                self.reconciler.compare(&record);
                (record.stage, record.owner)
            }
        };
        if !self.reconciler.has_ended(id) {
            return Ok(());
        }
        if planted::is(Bug::EndOnlyOverOwnRecord) && owner != own {
            return Ok(());
        }
        for _ in 0..RESTORES_MAX {
            if stage.state.is_terminal() {
                return Ok(());
            }
            let attempt = match planted::is(Bug::EndNotOverLaterAttempt) {
                false => end.stage.attempt.max(stage.attempt),
                true => end.stage.attempt,
            };
            let to = Stage { attempt, ..end.stage };
            let Ok(step) = AdvanceRequest::new(id, owner, stage, to, end.token) else {
                return Ok(());
            };
            let retention = end.retention.clone();
            let step = step.with_retention(retention).with_outcome(end.outcome.clone());
            match self.store.advance_job(step).await? {
                AdvanceReply::Advanced => {
                    tracing::warn!(job_id = %id, "wrote a lost end again");
                    return Ok(());
                }
                // Its owner was faster.
                AdvanceReply::Conflict { stage: now, owner: who } => (stage, owner) = (now, who),
                // Lost once more: the store's identity has changed, and the next round sees that.
                AdvanceReply::NotFound => return Ok(()),
            }
        }
        tracing::warn!(job_id = %id, %stage, "cannot write a lost end again");
        self.reconciler.request_scan();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lingua_core::InstanceId;

    use super::*;

    const ENDED: Stage = Stage { state: JobState::Done, attempt: Attempt::FIRST };

    fn instance(name: &str) -> InstanceId {
        InstanceId::new(name).unwrap()
    }

    /// A reconciler that remembers an end of job 1 by the instance `a`.
    fn remembers(is_confirmed: bool) -> Reconciler {
        let reconciler = Reconciler::new(StoreIdentity(1));
        let (id, owner) = (JobId::new(1), instance("a"));
        let spec = Bytes::from_static(b"spec");
        let job = NewJob { id, owner, spec, deadline_ms: None, recoverable: true, label: 0 };
        let outcome = Bytes::from_static(b"ours");
        let (retention, stage) = (Retention::default(), ENDED);
        let (token, written_ms) = (1, 0);
        let end = WrittenEnd { is_confirmed, job, stage, outcome, retention, token, written_ms };
        reconciler.remember(end);
        reconciler
    }

    fn record(owner: &str, stage: Stage, outcome: Option<&'static [u8]>) -> JobRecord {
        JobRecord {
            id: JobId::new(1),
            owner: instance(owner),
            stage,
            grant: None,
            spec: Bytes::from_static(b"spec"),
            outcome: outcome.map(Bytes::from_static),
            deadline_ms: None,
            recoverable: true,
            label: 0,
            created_ms: 0,
            updated_ms: 0,
            kept_until_ms: None,
        }
    }

    fn is_kept_after(reconciler: &Reconciler, record: &JobRecord) -> bool {
        reconciler.compare(record);
        reconciler.has_ended(record.id)
    }

    #[test]
    fn an_end_that_was_never_confirmed_is_forgotten_once_the_job_is_of_another() {
        assert!(!is_kept_after(&remembers(false), &record("b", FIRST, None)));
        assert!(!is_kept_after(&remembers(false), &record("b", ENDED, Some(b"theirs"))));
        let mut ends = remembers(false);
        ends.compare(&record("b", FIRST, None));
        assert_eq!(ends.ends.get_mut().bytes, 0);
    }

    #[test]
    fn an_end_that_the_store_has_shown_stays_the_end_whatever_it_forgets() {
        let seen = remembers(false);
        assert!(is_kept_after(&seen, &record("a", FIRST, None)), "nobody else has the job");
        assert!(is_kept_after(&seen, &record("b", ENDED, Some(b"ours"))), "it was written");
        assert!(is_kept_after(&seen, &record("b", FIRST, None)), "a rollback");
        assert!(is_kept_after(&remembers(true), &record("b", FIRST, None)));
    }
}
