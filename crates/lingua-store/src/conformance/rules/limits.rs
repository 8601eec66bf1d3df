//! Nothing grows without bound.
//!
//! Start at [`limits_suite!`](crate::limits_suite), which gives a store small limits. `spread` is
//! how far apart the ids of jobs are that count together.

use lingua_core::job::{JobState, Stage};
use lingua_core::{Attempt, JobId};

use super::super::World;
use super::super::fixture::instance;
use crate::contract::{
    AdvanceRequest, AnnounceRequest, BusDelivery, Bytes, CreateReply, Incarnation, JobFilter,
    KeptShare, NewJob, Retention, Store,
};
use crate::error::StoreError;

/// One test for each limit. `$world` is a function from `StoreLimits` to a future [`World`].
#[macro_export]
macro_rules! limits_suite {
    ($world:path, $spread:literal) => {
        $crate::limits_suite! {@each $world,
            open_jobs_are_refused_beyond_the_limit_and_lose_nothing,
                open_jobs_max = 2 * $spread, ($spread, 2 * $spread);
            the_oldest_ended_jobs_are_forgotten_first, ended_jobs_max = 2 * $spread, ($spread);
            ended_jobs_hold_a_bounded_number_of_bytes,
                ended_bytes_max = 100_000 * $spread, ($spread);
            no_group_pushes_out_the_ended_jobs_of_another,
                ended_jobs_max = 4 * $spread, ($spread);
            a_full_inbox_refuses_and_keeps_what_it_has, inbox_max = 2, ();
            dead_instances_make_room_for_new_ones, instances_max = 2, ();
        }
    };
    (@each $world:path, $($rule:ident, $limit:ident = $value:expr, ($($arg:expr),*);)*) => {$(
        #[tokio::test]
        async fn $rule() {
            let limits = $crate::StoreLimits { $limit: $value, ..Default::default() };
            let world = $world(limits).await;
            $crate::conformance::rules::limits::$rule(&world $(, $arg)*).await;
        }
    )*};
}

/// The nth of the jobs that count together.
pub fn job(spread: u128, n: u128) -> NewJob {
    NewJob {
        id: JobId::new(spread * n),
        owner: instance(0),
        spec: Bytes::new(),
        deadline_ms: None,
        recoverable: false,
        label: 0,
    }
}

/// Cancels a job.
pub async fn end<S: Store>(w: &World<S>, job: JobId) {
    end_with_share(w, job, KeptShare::default()).await;
}

async fn end_with_share<S: Store>(w: &World<S>, job: JobId, share: KeptShare) {
    let stage = |state| Stage { state, attempt: Attempt::FIRST };
    let (from, to) = (stage(JobState::New), stage(JobState::Cancelled));
    let step = AdvanceRequest::new(job, instance(0), from, to, 1).expect("a legal step");
    let step = step.with_retention(Retention { share, ..Retention::default() });
    w.store.advance_job(step).await.expect("a reply");
}

/// A store for `limit` open jobs, of which two can be of those that count together.
pub async fn open_jobs_are_refused_beyond_the_limit_and_lose_nothing<S: Store>(
    w: &World<S>,
    spread: u128,
    limit: usize,
) {
    let job = |n| job(spread, n);
    w.store.create_job(job(0)).await.expect("a job");
    w.store.create_job(job(1)).await.expect("a job");
    let refused = w.store.create_job(job(2)).await.expect_err("a refusal");
    assert_eq!(refused, StoreError::LimitReached { what: "the number of open jobs", limit });
    assert!(matches!(w.store.create_job(job(1)).await, Ok(CreateReply::Exists(_))));
    end(w, job(1).id).await;
    assert_eq!(w.store.create_job(job(2)).await, Ok(CreateReply::Created));
}

/// A store that keeps two of the ended jobs that count together.
pub async fn the_oldest_ended_jobs_are_forgotten_first<S: Store>(w: &World<S>, spread: u128) {
    for n in 0..4 {
        w.store.create_job(job(spread, n)).await.expect("a job");
        w.clock.advance(1);
        end(w, job(spread, n).id).await;
    }
    for (n, known) in [(0, false), (1, false), (2, true), (3, true)] {
        let found = w.store.job(job(spread, n).id).await.expect("a reply");
        assert_eq!(found.is_some(), known, "job {n}");
    }
    let all = JobFilter { limit: 10, ..JobFilter::default() };
    assert_eq!(w.store.jobs(all).await.expect("a page").jobs.len(), 2);
}

/// A store that keeps four of the ended jobs that count together, for two groups.
pub async fn no_group_pushes_out_the_ended_jobs_of_another<S: Store>(w: &World<S>, spread: u128) {
    for n in 0..10 {
        let group = u32::from(n > 0);
        let new = NewJob { label: u64::from(group) << 32 | 7, ..job(spread, n) };
        w.store.create_job(new).await.expect("a job");
        w.clock.advance(1);
        let share = KeptShare { group, part: 1, of: 2 };
        end_with_share(w, job(spread, n).id, share).await;
    }
    let all = JobFilter { limit: 10, ..JobFilter::default() };
    let kept = w.store.jobs(all).await.expect("a page").jobs;
    let kept: Vec<u128> = kept.iter().map(|record| record.id.number() / spread).collect();
    assert_eq!(kept, [0, 8, 9], "the one of the first group, two of the second");
}

/// A store that keeps 100,000 bytes of the ended jobs that count together.
pub async fn ended_jobs_hold_a_bounded_number_of_bytes<S: Store>(w: &World<S>, spread: u128) {
    for n in 0..50 {
        let new = NewJob { spec: vec![0; 9_000].into(), ..job(spread, n) };
        w.store.create_job(new).await.expect("a job");
        end(w, job(spread, n).id).await;
    }
    let all = JobFilter { limit: 100, ..JobFilter::default() };
    let kept = w.store.jobs(all).await.expect("a page").jobs;
    let ids: Vec<JobId> = kept.iter().map(|record| record.id).collect();
    let newest: Vec<JobId> = (40..50).map(|n| job(spread, n).id).collect();
    assert_eq!(ids, newest, "the newest, and no more than fit");
}

async fn announce<S: Store>(w: &World<S>, n: usize) -> crate::Result<()> {
    let (instance, incarnation) = (instance(n), Incarnation(1));
    let (address, lease_ms) = (String::new(), 1000);
    let request = AnnounceRequest { instance, incarnation, address, lease_ms };
    w.store.announce(request).await.map(drop)
}

/// A store whose inboxes hold two messages.
pub async fn a_full_inbox_refuses_and_keeps_what_it_has<S: Store>(w: &World<S>) {
    let me = instance(0);
    announce(w, 0).await.expect("room for an instance");
    let send = async || w.store.send(&me, Bytes::from_static(b"hello")).await.expect("a reply");
    assert_eq!((send().await, send().await), (BusDelivery::Sent, BusDelivery::Sent));
    assert_eq!(send().await, BusDelivery::InboxFull);
    let got = w.store.receive(&me, 0, 10).await.expect("messages");
    assert_eq!(got.len(), 2);
    let rest = w.store.receive(&me, got[0].seq, 10).await.expect("messages");
    assert_eq!(rest.len(), 1, "one was acknowledged");
    assert_eq!(send().await, BusDelivery::Sent);
}

/// A store for two instances.
pub async fn dead_instances_make_room_for_new_ones<S: Store>(w: &World<S>) {
    announce(w, 0).await.expect("room");
    announce(w, 1).await.expect("room");
    assert!(matches!(announce(w, 2).await, Err(StoreError::LimitReached { limit: 2, .. })));
    w.clock.advance(1001);
    announce(w, 2).await.expect("room");
    assert_eq!(w.store.instances().await.expect("a list").len(), 1);
}
