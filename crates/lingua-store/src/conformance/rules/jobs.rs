//! Job records.

use lingua_core::job::{JobState, Stage};
use lingua_core::{Attempt, InstanceId, JobId};

use crate::conformance::World;
use crate::conformance::fixture::{grant, instance, node};
use crate::contract::{
    AdvanceReply, AdvanceRequest, AnnounceRequest, Bytes, CreateReply, EraseReply, Incarnation,
    JOB_BYTES_MAX, JOBS_SCAN_MAX, JobFilter, JobStates, LabelMask, NewJob, Retention, Store,
};
use crate::error::StoreError;

const JOB: JobId = JobId::new(7);

fn bytes(text: &str) -> Bytes {
    text.to_owned().into()
}

fn new_job(id: JobId, owner: InstanceId) -> NewJob {
    NewJob { id, owner, spec: bytes("zh:en"), deadline_ms: None, recoverable: true, label: 0 }
}

fn stage(state: JobState, attempt: u32) -> Stage {
    Stage { state, attempt: Attempt(attempt) }
}

impl<S: Store> World<S> {
    async fn create(&self, job: NewJob) -> CreateReply {
        self.store.create_job(job).await.expect("a reply")
    }

    async fn step(&self, owner: &InstanceId, from: Stage, to: Stage, token: u64) -> AdvanceReply {
        let step = AdvanceRequest::new(JOB, owner.clone(), from, to, token).expect("a legal step");
        let outcome = bytes(&format!("{to} {token}"));
        self.store.advance_job(step.with_outcome(outcome)).await.expect("a reply")
    }

    async fn announce_for(&self, who: &InstanceId, lease_ms: u64) {
        let (instance, incarnation) = (who.clone(), Incarnation(1));
        let address = String::new();
        let presence = AnnounceRequest { instance, incarnation, address, lease_ms };
        self.store.announce(presence).await.expect("a reply");
    }
}

/// Of several ends at the same time, one is recorded.
pub async fn one_of_two_racing_ends_wins<S: Store>(w: World<S>) {
    let owner = instance(0);
    w.create(new_job(JOB, owner.clone())).await;
    let from = stage(JobState::New, 1);
    let won = w.step(&owner, from, stage(JobState::Cancelled, 1), 1).await;
    assert_eq!(won, AdvanceReply::Advanced);
    let lost = w.step(&owner, from, stage(JobState::Failed, 1), 2).await;
    let ended = stage(JobState::Cancelled, 1);
    assert_eq!(lost, AdvanceReply::Conflict { stage: ended, owner: owner.clone() });
    let same_again = w.step(&owner, from, ended, 3).await;
    assert!(matches!(same_again, AdvanceReply::Conflict { .. }), "the same end, but not its cause");
    let record = w.store.job(JOB).await.expect("a reply").expect("a record");
    assert_eq!(record.stage, ended);
    assert_eq!(record.outcome, Some(bytes("CANCELLED (attempt 1) 1")));
}

/// A step whose reply was lost is made once, and its repetition succeeds.
pub async fn a_repeated_step_is_recognised_by_its_token<S: Store>(w: World<S>) {
    let owner = instance(0);
    w.create(new_job(JOB, owner.clone())).await;
    let (from, to) = (stage(JobState::New, 1), stage(JobState::Selecting, 1));
    assert_eq!(w.step(&owner, from, to, 1).await, AdvanceReply::Advanced);
    let updated_ms = w.store.job(JOB).await.expect("a reply").expect("a record").updated_ms;
    w.clock.advance(10);
    assert_eq!(w.step(&owner, from, to, 1).await, AdvanceReply::Advanced);
    let record = w.store.job(JOB).await.expect("a reply").expect("a record");
    assert_eq!(record.updated_ms, updated_ms, "nothing was done the second time");
    assert!(matches!(w.step(&owner, from, to, 2).await, AdvanceReply::Conflict { .. }));
}

/// A second job with the same id is not created.
pub async fn a_job_is_created_once<S: Store>(w: World<S>) {
    let owner = instance(0);
    assert_eq!(w.create(new_job(JOB, owner.clone())).await, CreateReply::Created);
    w.step(&owner, stage(JobState::New, 1), stage(JobState::Selecting, 1), 1).await;
    let CreateReply::Exists(known) = w.create(new_job(JOB, instance(1))).await else {
        panic!("created twice")
    };
    assert_eq!((known.owner, known.stage), (owner.clone(), stage(JobState::Selecting, 1)));
    let missing = AdvanceRequest::new(
        JobId::new(8),
        owner,
        stage(JobState::New, 1),
        stage(JobState::Selecting, 1),
        1,
    );
    let reply = w.store.advance_job(missing.expect("a legal step")).await;
    assert_eq!(reply, Ok(AdvanceReply::NotFound));
}

/// After a claim, only the heir may move the job.
pub async fn only_the_heir_moves_a_claimed_job<S: Store>(w: World<S>) {
    let (dead, heir) = (instance(0), instance(1));
    w.announce_for(&dead, 1_000).await;
    w.announce_for(&heir, 60_000).await;
    w.create(new_job(JOB, dead.clone())).await;
    w.step(&dead, stage(JobState::New, 1), stage(JobState::Selecting, 1), 1).await;
    w.clock.advance(1_001);
    let claimed = w.store.claim_orphans(&heir, 10).await.expect("a reply");
    assert_eq!(claimed.len(), 1);
    assert_eq!((claimed[0].id, &claimed[0].owner), (JOB, &heir));
    assert!(w.store.claim_orphans(&heir, 10).await.expect("a reply").is_empty());

    let (from, to) = (stage(JobState::Selecting, 1), stage(JobState::Retrying, 2));
    let refused = w.step(&dead, from, to, 2).await;
    assert_eq!(refused, AdvanceReply::Conflict { stage: from, owner: heir.clone() });
    assert_eq!(w.step(&heir, from, to, 3).await, AdvanceReply::Advanced);
    let filter = JobFilter { open_of: Some(heir.clone()), limit: 10, ..JobFilter::default() };
    let found = w.store.jobs(filter).await.expect("a reply");
    assert_eq!(found.jobs.len(), 1, "the heir finds a claim whose reply was lost");
}

/// Jobs of living instances, ended jobs and the caller's own are not orphans.
pub async fn jobs_of_the_living_are_not_claimed<S: Store>(w: World<S>) {
    let (owner, heir) = (instance(0), instance(1));
    w.announce_for(&owner, 1_000).await;
    w.create(new_job(JOB, owner.clone())).await;
    w.create(new_job(JobId::new(8), heir.clone())).await;
    w.clock.advance(1_000);
    assert!(w.store.claim_orphans(&heir, 10).await.expect("a reply").is_empty());
    w.step(&owner, stage(JobState::New, 1), stage(JobState::Cancelled, 1), 1).await;
    w.clock.advance(1);
    assert!(w.store.claim_orphans(&heir, 10).await.expect("a reply").is_empty());
}

/// Ended jobs are kept for an hour; open jobs are never dropped.
pub async fn ended_jobs_are_kept_for_an_hour<S: Store>(w: World<S>) {
    let owner = instance(0);
    let open = JobId::new(8);
    w.create(new_job(JOB, owner.clone())).await;
    w.create(new_job(open, owner.clone())).await;
    w.step(&owner, stage(JobState::New, 1), stage(JobState::Failed, 1), 1).await;
    w.clock.advance(3_600_000);
    assert!(w.store.job(JOB).await.expect("a reply").is_some());
    w.clock.advance(1);
    assert_eq!(w.store.job(JOB).await.expect("a reply"), None);
    let all = JobFilter { limit: 10, ..JobFilter::default() };
    let left: Vec<JobId> =
        w.store.jobs(all).await.expect("a reply").jobs.iter().map(|job| job.id).collect();
    assert_eq!(left, [open]);
    assert_eq!(w.create(new_job(JOB, owner)).await, CreateReply::Created);
}

/// A listing continues where the last page ended, in both directions, until there is no next page.
pub async fn jobs_are_listed_in_pages<S: Store>(w: World<S>) {
    for n in 0..25 {
        w.create(new_job(JobId::new(n), instance((n % 2) as usize))).await;
    }
    let (from, to) = (stage(JobState::New, 1), stage(JobState::Cancelled, 1));
    let step = AdvanceRequest::new(JobId::new(4), instance(0), from, to, 1);
    w.store.advance_job(step.expect("a legal step")).await.expect("a reply");
    let all: Vec<u128> = (0..25).collect();
    let open: Vec<u128> = (0..25).step_by(2).filter(|&n| n != 4).collect();
    for (open_of, mut expected) in [(None, all), (Some(instance(0)), open)] {
        for newest_first in [false, true] {
            let (mut seen, mut after) = (vec![], None);
            loop {
                let open_of = open_of.clone();
                let filter =
                    JobFilter { open_of, after, limit: 5, newest_first, ..JobFilter::default() };
                let page = w.store.jobs(filter).await.expect("a reply");
                assert!(page.jobs.len() <= 5);
                seen.extend(page.jobs.iter().map(|job| job.id.number()));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(seen, expected, "newest first: {newest_first}");
            expected.reverse();
        }
    }
}

/// A list can be limited to states, a label and a node; the grant of the last attempt stays.
pub async fn jobs_are_listed_by_state_label_and_node<S: Store>(w: World<S>) {
    let owner = instance(0);
    for n in 0..20 {
        let label = (n % 2) as u64;
        w.create(NewJob { label, ..new_job(JobId::new(n), owner.clone()) }).await;
        let (from, to) = (stage(JobState::New, 1), stage(JobState::Cancelled, 1));
        let step = AdvanceRequest::new(JobId::new(n), owner.clone(), from, to, 1);
        let step = step.expect("a legal step").with_grant((n % 3 == 0).then(|| grant(1)));
        if n % 5 > 0 {
            w.store.advance_job(step).await.expect("a reply");
        }
    }
    let list = async |filter: JobFilter| -> Vec<u128> {
        let filter = JobFilter { limit: 10, newest_first: true, ..filter };
        let page = w.store.jobs(filter).await.expect("a reply");
        page.jobs.iter().map(|job| job.id.number()).collect()
    };
    let open = JobFilter { states: Some(JobStates::open()), ..JobFilter::default() };
    assert_eq!(list(open.clone()).await, [15, 10, 5, 0]);
    assert_eq!(list(JobFilter { label: LabelMask::only(1), ..open }).await, [15, 5]);
    let on_node = JobFilter { node: Some(node(1)), ..JobFilter::default() };
    assert_eq!(list(on_node.clone()).await, [18, 12, 9, 6, 3]);
    assert_eq!(list(JobFilter { label: LabelMask::only(0), ..on_node }).await, [18, 12, 6]);
    assert!(list(JobFilter { node: Some(node(2)), ..JobFilter::default() }).await.is_empty());
}

/// A list whose jobs are rare stops after a bounded number of records and says where to go on.
pub async fn a_list_reads_a_bounded_number_of_records<S: Store>(w: World<S>) {
    let jobs = JOBS_SCAN_MAX as u128 + 10;
    for n in 0..jobs {
        let label = u64::from(n == 0);
        w.create(NewJob { label, ..new_job(JobId::new(n), instance(0)) }).await;
    }
    let rare = JobFilter {
        label: LabelMask { bits: 1, mask: 1 },
        limit: 5,
        newest_first: true,
        ..JobFilter::default()
    };
    let first = w.store.jobs(rare.clone()).await.expect("a reply");
    assert_eq!((first.jobs.len(), first.next), (0, Some(JobId::new(10))));
    let rest = JobFilter { after: first.next, ..rare };
    let second = w.store.jobs(rest).await.expect("a reply");
    assert_eq!((second.jobs.len(), second.next), (1, None));
}

/// An ended job can be erased, an open one not; its id is free again.
pub async fn nothing_is_kept_of_an_erased_job<S: Store>(w: World<S>) {
    let owner = instance(0);
    let erase = async || w.store.erase_job(JOB).await.expect("a reply");
    assert_eq!(erase().await, EraseReply::NotFound);
    w.create(new_job(JOB, owner.clone())).await;
    assert_eq!(erase().await, EraseReply::Open);
    w.step(&owner, stage(JobState::New, 1), stage(JobState::Cancelled, 1), 1).await;
    assert_eq!((erase().await, erase().await), (EraseReply::Erased, EraseReply::NotFound));
    assert_eq!(w.store.job(JOB).await.expect("a reply"), None);
    let all = JobFilter { limit: 10, ..JobFilter::default() };
    assert!(w.store.jobs(all).await.expect("a page").jobs.is_empty());
    assert_eq!(w.create(new_job(JOB, owner)).await, CreateReply::Created);
}

/// The step that ends a job may replace its specification and shorten its time.
pub async fn a_job_is_kept_only_as_long_as_its_end_says<S: Store>(w: World<S>) {
    let end = async |n: u128, spec: Option<Bytes>, keep_ms: Option<u64>| {
        let (id, owner) = (JobId::new(n), instance(0));
        w.create(new_job(id, owner.clone())).await;
        let (from, to) = (stage(JobState::New, 1), stage(JobState::Failed, 1));
        let step = AdvanceRequest::new(id, owner, from, to, 1).expect("a legal step");
        let retention = Retention { spec, keep_ms, ..Retention::default() };
        w.store.advance_job(step.with_retention(retention)).await.expect("a reply");
    };
    end(1, Some(bytes("stripped")), Some(1_000)).await;
    end(2, None, Some(u64::MAX)).await;
    end(3, None, None).await;
    let kept = async || {
        let all = JobFilter { limit: 10, ..JobFilter::default() };
        let jobs = w.store.jobs(all).await.expect("a page").jobs;
        jobs.iter().map(|job| job.id.number()).collect::<Vec<_>>()
    };
    let first = w.store.job(JobId::new(1)).await.expect("a reply").expect("a record");
    assert_eq!((first.spec, kept().await), (bytes("stripped"), vec![1, 2, 3]));
    w.clock.advance(1_001);
    assert_eq!((w.store.job(JobId::new(1)).await, kept().await), (Ok(None), vec![2, 3]));
    w.clock.advance(3_600_000);
    assert!(kept().await.is_empty(), "never longer than the others");
}

/// Oversized content is refused and changes nothing.
pub async fn oversized_content_is_refused<S: Store>(w: World<S>) {
    let huge: Bytes = vec![0; JOB_BYTES_MAX + 1].into();
    let job = NewJob { spec: huge.clone(), ..new_job(JOB, instance(0)) };
    let refused = w.store.create_job(job).await.expect_err("too large");
    assert!(matches!(refused, StoreError::LimitReached { limit: JOB_BYTES_MAX, .. }));
    assert!(!refused.is_safe_to_retry());
    assert_eq!(w.store.job(JOB).await.expect("a reply"), None);

    w.create(new_job(JOB, instance(0))).await;
    let (from, to) = (stage(JobState::New, 1), stage(JobState::Failed, 1));
    let step = AdvanceRequest::new(JOB, instance(0), from, to, 1).expect("a legal step");
    let refused = w.store.advance_job(step.with_outcome(huge)).await;
    assert!(matches!(refused, Err(StoreError::LimitReached { .. })));
    assert_eq!(w.store.job(JOB).await.expect("a reply").expect("a record").stage, from);
}
