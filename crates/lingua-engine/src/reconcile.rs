//! Makes good what the store or the way to it got wrong: jobs that stand in the store under this instance's name
//! and that nobody runs, and ends that the store has forgotten.
//!
//! Start at [`Handle::reconcile`]. An answer may be lost after the operation was carried out, a job may have been let
//! go of while the store was away, a caller may hang up in the middle, and a failover may lose confirmed writes. Each of
//! these raises a flag, and the clean-up looks.
//!
//! Invariant: a job in the store is run by its owner, or its owner will look for it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashSet;
use lingua_core::job::{JobMachine, JobState, Stage};
use lingua_core::planted::{self, Bug};
use lingua_core::{Attempt, JobId};
use lingua_store::Store;
use lingua_store::contract::{
    AdvanceReply, AdvanceRequest, Bytes, CreateReply, JobFilter, JobRecord, NewJob, StoreIdentity,
};
use parking_lot::Mutex;

use crate::clock::Timer;
use crate::handle::Handle;
use crate::job_spec_codec;
use crate::request::JobRequest;
use crate::state::EngineState;

/// Most ends that are remembered in case the store forgets them.
const ENDS_MAX: usize = 4096;

/// Most bytes of those.
const ENDS_BYTES_MAX: usize = 32 << 20;

/// How long they are remembered. A failover loses seconds.
const ENDS_MS: u64 = 30_000;

/// Where every job begins.
pub(crate) const FIRST: Stage = Stage { state: JobState::New, attempt: Attempt::FIRST };

/// An end that was written. It has what the store had, and not the sound of what was said.
#[derive(Debug, Clone)]
pub(crate) struct End {
    pub(crate) job: NewJob,
    pub(crate) stage: Stage,
    pub(crate) outcome: Bytes,
    pub(crate) token: u64,
    pub(crate) written_ms: u64,
}

impl End {
    fn bytes(&self) -> usize {
        self.outcome.len() + self.job.spec.len()
    }
}

#[derive(Debug, Default)]
struct Ends {
    recent: VecDeque<End>,
    bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Reconciler {
    /// There may be jobs of ours that nobody runs.
    wanted: AtomicBool,
    /// Jobs that are being handed in: they are not live yet, and not lost either.
    submitting: Mutex<HashSet<JobId>>,
    /// Jobs that could not be written, and when they were accepted.
    released: Mutex<Vec<(JobRequest, u64)>>,
    ends: Mutex<Ends>,
    /// The store that all this was last held against.
    known: Mutex<StoreIdentity>,
}

impl Reconciler {
    pub(crate) fn new(known: StoreIdentity) -> Self {
        Self {
            wanted: AtomicBool::new(false),
            submitting: Mutex::default(),
            released: Mutex::default(),
            ends: Mutex::default(),
            known: Mutex::new(known),
        }
    }

    #[cfg(test)]
    pub(crate) fn is_scan_requested(&self) -> bool {
        self.wanted.load(Ordering::SeqCst)
    }

    /// Says that there may be jobs of ours that nobody runs.
    pub(crate) fn request_scan(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    /// Keeps a job that its runner has to let go of because the store does not answer. Bounded by the number of live
    /// jobs, of which it was one.
    pub(crate) fn release(&self, request: JobRequest, accepted_ms: u64) {
        self.released.lock().push((request, accepted_ms));
        self.request_scan();
    }

    /// Remembers an end for as long as a failover may take it back.
    pub(crate) fn remember(&self, end: End) {
        let mut ends = self.ends.lock();
        let now_ms = end.written_ms;
        ends.bytes += end.bytes();
        ends.recent.push_back(end);
        while let Some(oldest) = ends.recent.front() {
            let is_old = oldest.written_ms.saturating_add(ENDS_MS) < now_ms;
            if !is_old && ends.recent.len() <= ENDS_MAX && ends.bytes <= ENDS_BYTES_MAX {
                break;
            }
            let bytes = oldest.bytes();
            ends.bytes -= bytes;
            ends.recent.pop_front();
        }
    }

    /// Whether the job ended here a short while ago. A store that has forgotten that shows it as open.
    pub(crate) fn has_ended(&self, id: JobId) -> bool {
        self.end_of(id).is_some()
    }

    fn end_of(&self, id: JobId) -> Option<End> {
        self.ends.lock().recent.iter().find(|end| end.job.id == id).cloned()
    }

    /// Notes that a job is being handed in, until the guard goes; `None` if it is already.
    pub(crate) fn begin_submit(&self, id: JobId) -> Option<Submission<'_>> {
        let is_first = self.submitting.lock().insert(id);
        is_first.then_some(Submission { reconciler: self, id, is_settled: false })
    }
}

/// A job on its way in. If this goes before it is settled (the caller hung up, or nobody knows what the store did), the job may
/// stand in the store.
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

impl<S: Store, T: Timer> EngineState<S, T> {
    /// Whether nobody here has this job in hand.
    pub(crate) fn is_unowned(&self, id: JobId) -> bool {
        self.live.get(id).is_none() && !self.reconciler.submitting.lock().contains(&id)
    }

    /// A job as it is written down first.
    pub(crate) fn new_job(&self, request: &JobRequest, accepted_ms: u64) -> NewJob {
        NewJob {
            id: request.id,
            owner: self.options.instance.clone(),
            spec: job_spec_codec::encode(&request.spec).into(),
            deadline_ms: request.spec.deadline_ms.map(|ms| accepted_ms.saturating_add(ms)),
            recoverable: request.spec.is_recoverable(),
        }
    }
}

impl<S: Store, T: Timer> Handle<S, T> {
    /// Looks after what may have gone wrong, if there is reason to.
    pub(crate) async fn reconcile(&self) -> lingua_store::Result<()> {
        let amends = &self.shared.reconciler;
        let identity = self.shared.store.identity();
        if *amends.known.lock() != identity {
            amends.request_scan();
            self.restore_ends().await?;
            *amends.known.lock() = identity;
        }
        if planted::is(Bug::NoReconcile) || !amends.wanted.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        let taken_up = match self.rewrite_released().await {
            Ok(()) => self.resume_own_jobs().await,
            error => error,
        };
        if taken_up.is_err() {
            amends.request_scan();
        }
        taken_up
    }

    /// Sees to it that jobs which were let go of are in the store, where they are found.
    async fn rewrite_released(&self) -> lingua_store::Result<()> {
        let shared = &self.shared;
        loop {
            let Some((request, accepted_ms)) = shared.reconciler.released.lock().last().cloned()
            else {
                return Ok(());
            };
            let new = shared.new_job(&request, accepted_ms);
            if let CreateReply::Created = shared.store.create_job(new).await?
                && shared.is_unowned(request.id)
                && !shared.reconciler.has_ended(request.id)
            {
                self.start(request.clone(), JobMachine::new(), accepted_ms, None);
            }
            shared.reconciler.released.lock().retain(|(kept, _)| kept.id != request.id);
        }
    }

    /// Goes on with jobs that stand in the store under this name and that nobody runs.
    pub(crate) async fn resume_own_jobs(&self) -> lingua_store::Result<()> {
        let shared = &self.shared;
        // By state, because a shared store keeps many more ended jobs than open ones. All of them before the first is
        // taken up: from then on they move.
        let mut open = vec![];
        for state in JobState::ALL.into_iter().filter(|state| !state.is_terminal()) {
            let owner = Some(shared.options.instance.clone());
            let state = Some(state);
            let filter = JobFilter { owner, state, limit: usize::MAX, ..Default::default() };
            open.extend(shared.store.jobs(filter).await?);
        }
        for listed in open {
            if !shared.is_unowned(listed.id) {
                continue;
            }
            // Once more, because it may have ended since it was listed.
            let (now_ms, record) =
                (shared.store.now_ms().await?, shared.store.job(listed.id).await?);
            if let Some(record) = record.filter(|record| self.is_left_behind(record)) {
                self.adopt(record, now_ms).await;
            }
        }
        Ok(())
    }

    fn is_left_behind(&self, record: &JobRecord) -> bool {
        let is_ours = record.owner == self.shared.options.instance;
        is_ours && !record.stage.state.is_terminal() && self.shared.is_unowned(record.id)
    }

    /// Writes ends again that a failover may have lost: somebody was told of each of them.
    async fn restore_ends(&self) -> lingua_store::Result<()> {
        let ends: Vec<End> = self.shared.reconciler.ends.lock().recent.iter().cloned().collect();
        for end in ends {
            if !planted::is(Bug::LostEndNotRestored) {
                self.restore_end(end).await?;
            }
        }
        Ok(())
    }

    /// Writes the end of this job again, if it ended here: whatever the store shows, somebody was told. Says whether it did.
    pub(crate) async fn is_restored(&self, id: JobId) -> bool {
        let Some(end) = self.shared.reconciler.end_of(id) else { return false };
        if self.restore_end(end).await.is_err() {
            self.shared.reconciler.request_scan();
        }
        true
    }

    async fn restore_end(&self, end: End) -> lingua_store::Result<()> {
        let shared = &self.shared;
        let (id, owner) = (end.job.id, end.job.owner.clone());
        let stands = match shared.store.create_job(end.job).await? {
            CreateReply::Created => FIRST,
            CreateReply::Exists(record) if record.owner != owner => return Ok(()),
            CreateReply::Exists(record) => record.stage,
        };
        let Ok(step) = AdvanceRequest::new(id, owner, stands, end.stage, end.token) else {
            // It has ended, as it should.
            return Ok(());
        };
        match shared.store.advance_job(step.with_outcome(end.outcome)).await? {
            AdvanceReply::Advanced => {
                tracing::warn!(job_id = %id, "wrote an end again")
            }
            reply => tracing::warn!(job_id = %id, ?reply, "cannot write an end again"),
        }
        Ok(())
    }
}
