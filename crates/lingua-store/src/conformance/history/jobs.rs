//! Random steps on job records: races, repeats, rivals, orphans.

use lingua_core::job::{JobState, Stage};
use lingua_core::{Attempt, JobId, Tenant};
use rand::RngExt;

use super::{History, pick};
use crate::conformance::fixture::{grant, instance, node};
use crate::contract::{
    AdvanceRequest, Bytes, Incarnation, JobFilter, JobRecord, JobStates, LabelMask, NewJob,
    Retention, Store, UsageBatch, UsageCounts,
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
                self.erase_job().await;
                self.count_usage().await;
            }
        }
    }

    fn some_job(&mut self) -> JobId {
        let n = self.rng.random_range(0..JOBS);
        self.job_id(n)
    }

    fn job_id(&self, n: u128) -> JobId {
        let used_up = self.created.get(&n).map_or(0, |created| created.saturating_sub(1));
        JobId::new(1 << 100 | used_up << 8 | n)
    }

    async fn create_job(&mut self) {
        let n = self.rng.random_range(0..JOBS);
        if self.model.expect_job(self.job_id(n)).is_none() {
            *self.created.entry(n).or_default() += 1;
        }
        let job = NewJob {
            id: self.job_id(n),
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
        let short = pick(&mut self.side_rng, &[None, None, Some(600), Some(u64::MAX)]);
        let stripped = pick(&mut self.side_rng, &[None, Some(Bytes::from_static(b"no text"))]);
        let step = match state.is_terminal() {
            true => step.with_retention(Retention {
                spec: stripped,
                keep_ms: short,
                ..Retention::default()
            }),
            false => step,
        };
        // An open job may have something there, too.
        Some(match state.is_terminal() || self.rng.random_bool(0.2) {
            true => step.with_outcome(&b"what came of it"[..]),
            false => step,
        })
    }

    async fn erase_job(&mut self) {
        let n = self.side_rng.random_range(0..JOBS);
        let ended = self.model.jobs.iter().map(|(job, _)| job);
        let ended = ended.filter(|job| job.stage.state.is_terminal()).map(|job| job.id).next();
        let id = ended.filter(|_| n % 2 == 0).unwrap_or_else(|| self.job_id(n));
        let reply = self.world.store.erase_job(id).await.expect("a reply");
        self.note_reply("erase", &id, &reply);
        assert_eq!(reply, self.model.expect_erase(id));
    }

    /// Adds a batch: the next one of an instance, or an earlier one again.
    async fn count_usage(&mut self) {
        let some_tenant = |name: &str| Tenant::new(name).expect("a name");
        let rng = &mut self.side_rng;
        let incarnation = Incarnation(rng.random_range(1..4));
        self.batches += u64::from(rng.random_bool(0.7));
        let counts =
            ["alice", "bob"].into_iter().filter(|_| rng.random_bool(0.7)).collect::<Vec<_>>();
        let counts = counts.into_iter().map(|name| {
            let numbers = std::array::from_fn(|_| rng.random_range(0..1000));
            (some_tenant(name), UsageCounts::of(numbers))
        });
        let counts = counts.collect();
        let batch = UsageBatch { incarnation, sequence: self.batches, counts };
        let added = self.world.store.add_usage(batch.clone()).await.expect("a reply");
        self.note_reply("count", &batch, &added);
        assert_eq!(added, self.model.expect_add_usage(&batch));
        let of = pick(&mut self.side_rng, &[None, Some(some_tenant("alice"))]);
        let usage = self.world.store.usage(of).await.expect("a reply");
        assert_eq!(usage, self.model.expect_usage(of));
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
