//! Random steps on job records: races, repeats, rivals, orphans.

use lingua_core::job::{JobState, Stage};
use lingua_core::{Attempt, JobId};
use rand::RngExt;

use super::{History, pick};
use crate::conformance::fixture::{grant, instance, node};
use crate::contract::{
    AdvanceRequest, Bytes, JobFilter, JobRecord, JobStates, LabelMask, NewJob, Store,
};

/// Few jobs, so that steps meet.
pub(super) const JOBS: u128 = 12;

/// What lists are limited to: nothing, one label of four, or one bit of it.
const LABELS: [LabelMask; 4] = [
    LabelMask { bits: 0, mask: 0 },
    LabelMask { bits: 0, mask: 0 },
    LabelMask { bits: 1, mask: u64::MAX },
    LabelMask { bits: 2, mask: 2 },
];

impl<S: Store> History<S> {
    pub(super) async fn job_step(&mut self) {
        match self.rng.random_range(0..10) {
            0..2 => self.create_job().await,
            2..8 => self.advance_job().await,
            8 => self.claim().await,
            _ => {
                self.claim_key().await;
                self.look_at_jobs().await;
            }
        }
    }

    fn some_job(&mut self) -> JobId {
        JobId::new(1 << 100 | self.rng.random_range(0..JOBS))
    }

    async fn create_job(&mut self) {
        let job = NewJob {
            id: self.some_job(),
            owner: instance(self.rng.random_range(0..4)),
            spec: Bytes::from_static(b"what is to be done"),
            deadline_ms: pick(&mut self.rng, &[None, Some(self.model.now_ms + 5_000)]),
            recoverable: self.rng.random_bool(0.5),
            label: self.side_rng.random_range(0..4),
        };
        let reply = self.world.store.create_job(job.clone()).await.expect("a reply");
        self.note_reply("create", &job, &reply);
        assert_eq!(reply, self.model.expect_create(&job));
    }

    async fn advance_job(&mut self) {
        let id = self.some_job();
        let known = self.model.expect_job(id);
        let Some(step) = self.some_step(id, known.as_ref()) else { return };
        let reply = self.world.store.advance_job(step.clone()).await.expect("a reply");
        self.note_reply("advance", &step, &reply);
        assert_eq!(reply, self.model.expect_advance(&step));
        if self.rng.random_bool(0.2) {
            let again = self.world.store.advance_job(step.clone()).await.expect("a reply");
            assert_eq!(again, self.model.expect_advance(&step));
        }
    }

    /// A step that leads on from where the job stands, or from somewhere else, by its owner or not.
    fn some_step(&mut self, id: JobId, known: Option<&JobRecord>) -> Option<AdvanceRequest> {
        let first = Stage { state: JobState::New, attempt: Attempt::FIRST };
        let mut from = known.map_or(first, |job| job.stage);
        let mut owner = known.map_or(instance(0), |job| job.owner.clone());
        if self.rng.random_bool(0.1) {
            from.state = pick(&mut self.rng, &JobState::ALL);
        }
        if self.rng.random_bool(0.1) {
            owner = instance(self.rng.random_range(0..4));
        }
        let state = pick(&mut self.rng, &JobState::ALL);
        let attempt = match state {
            JobState::Retrying => from.attempt.next(),
            _ => from.attempt,
        };
        // Two steps in ten share their token with the one before, as rivals never should and
        // repeats always do.
        self.tokens += u64::from(self.rng.random_bool(0.8));
        let step =
            AdvanceRequest::new(id, owner, from, Stage { state, attempt }, self.tokens).ok()?;
        let step =
            step.with_grant(pick(&mut self.side_rng, &[None, Some(grant(1)), Some(grant(2))]));
        // An open job may have something there, too.
        Some(match state.is_terminal() || self.rng.random_bool(0.2) {
            true => step.with_outcome(&b"what came of it"[..]),
            false => step,
        })
    }

    async fn claim(&mut self) {
        let heir = instance(self.rng.random_range(0..4));
        let limit = pick(&mut self.rng, &[1, 2, 100]);
        let claimed = self.world.store.claim_orphans(&heir, limit).await.expect("a reply");
        self.note_reply("claim", &(&heir, limit), &claimed.first());
        assert_eq!(claimed, self.model.expect_claim(&heir, limit));
    }

    async fn look_at_jobs(&mut self) {
        let id = self.some_job();
        let job = self.world.store.job(id).await.expect("a reply");
        assert_eq!(job, self.model.expect_job(id));
        let cancelled = JobStates::from_iter([JobState::Cancelled]);
        let filter = JobFilter {
            open_of: pick(&mut self.rng, &[None, None, Some(instance(1))]),
            states: pick(&mut self.side_rng, &[None, Some(JobStates::open()), Some(cancelled)]),
            label: pick(&mut self.side_rng, &LABELS),
            node: pick(&mut self.side_rng, &[None, None, Some(node(1))]),
            after: pick(&mut self.rng, &[None, Some(id)]),
            limit: pick(&mut self.rng, &[0, 3, 100]),
            newest_first: pick(&mut self.rng, &[false, true]),
        };
        let listed = self.world.store.jobs(filter.clone()).await.expect("a reply");
        self.note_reply("list", &filter, &listed.jobs.first());
        assert_eq!(listed, self.model.expect_jobs(&filter));
    }
}
