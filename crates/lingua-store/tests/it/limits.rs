//! Nothing grows without bound.

use lingua_core::job::{JobState, Stage};
use lingua_core::{Attempt, CELL_NODES_MAX, CELLS_MAX, JobId, NodeId, Rules};
use lingua_store::conformance::World;
use lingua_store::conformance::fixture::{instance, node};
use lingua_store::contract::{
    AdvanceRequest, AnnounceRequest, AssignRequest, BusDelivery, Bytes, ClaimKeyReply,
    ClaimKeyRequest, CreateReply, Incarnation, JOBS_PAGE_MAX, JobFilter, NewJob, NodeClass,
};
use lingua_store::{Embedded, ManualClock, Store, StoreError, StoreLimits};

async fn world(limits: StoreLimits) -> World<Embedded<ManualClock>> {
    let factory = |rules, clock| async move { Embedded::new(rules, limits, clock) };
    World::new(factory, Rules::default()).await
}

fn job(n: u128) -> NewJob {
    NewJob {
        id: JobId::new(n),
        owner: instance(0),
        spec: Bytes::new(),
        deadline_ms: None,
        recoverable: false,
        label: 0,
    }
}

async fn end(w: &World<Embedded<ManualClock>>, n: u128) {
    let stage = |state| Stage { state, attempt: Attempt::FIRST };
    let (from, to) = (stage(JobState::New), stage(JobState::Cancelled));
    let step = AdvanceRequest::new(JobId::new(n), instance(0), from, to, 1).expect("a legal step");
    w.store.advance_job(step).await.expect("a reply");
}

#[tokio::test]
async fn open_jobs_are_refused_beyond_the_limit_and_lose_nothing() {
    let w = world(StoreLimits { open_jobs_max: 3, ..StoreLimits::default() }).await;
    for n in 0..3 {
        w.store.create_job(job(n)).await.unwrap();
    }
    let refused = w.store.create_job(job(3)).await.unwrap_err();
    assert_eq!(refused, StoreError::LimitReached { what: "the number of open jobs", limit: 3 });
    assert!(matches!(w.store.create_job(job(1)).await, Ok(CreateReply::Exists(_))));
    end(&w, 1).await;
    assert_eq!(w.store.create_job(job(3)).await, Ok(CreateReply::Created));
}

#[tokio::test]
async fn the_oldest_ended_jobs_are_forgotten_first() {
    let w = world(StoreLimits { ended_jobs_max: 2, ..StoreLimits::default() }).await;
    for n in 0..4 {
        w.store.create_job(job(n)).await.unwrap();
        w.clock.advance(1);
        end(&w, n).await;
    }
    for (n, known) in [(0, false), (1, false), (2, true), (3, true)] {
        assert_eq!(w.store.job(JobId::new(n)).await.unwrap().is_some(), known, "job {n}");
    }
}

#[tokio::test]
async fn ended_jobs_hold_a_bounded_number_of_bytes() {
    let ended_bytes_max = 100_000;
    let w = world(StoreLimits { ended_bytes_max, ..StoreLimits::default() }).await;
    for n in 0..50 {
        w.store.create_job(NewJob { spec: vec![0; 9_000].into(), ..job(n) }).await.unwrap();
        end(&w, n).await;
    }
    let all = JobFilter { limit: 100, ..JobFilter::default() };
    let kept: Vec<u128> =
        w.store.jobs(all).await.unwrap().jobs.iter().map(|job| job.id.number()).collect();
    assert_eq!(kept, (40..50).collect::<Vec<_>>(), "the newest, and no more than fit");
}

#[tokio::test]
async fn a_page_of_jobs_is_bounded_and_says_where_to_continue() {
    let w = world(StoreLimits::default()).await;
    for n in 0..JOBS_PAGE_MAX as u128 + 1 {
        w.store.create_job(job(n)).await.unwrap();
    }
    let first = JobFilter { limit: usize::MAX, ..JobFilter::default() };
    let page = w.store.jobs(first.clone()).await.unwrap();
    assert_eq!(page.jobs.len(), JOBS_PAGE_MAX);
    let rest = w.store.jobs(JobFilter { after: page.next, ..first }).await.unwrap();
    assert_eq!((rest.jobs.len(), rest.next), (1, None));
}

#[tokio::test]
async fn a_full_inbox_refuses_and_keeps_what_it_has() {
    let w = world(StoreLimits { inbox_max: 2, ..StoreLimits::default() }).await;
    let (me, incarnation) = (instance(0), Incarnation(1));
    let (address, lease_ms) = (String::new(), 1000);
    let presence = AnnounceRequest { instance: me.clone(), incarnation, address, lease_ms };
    w.store.announce(presence).await.unwrap();
    let message = || Bytes::from_static(b"hello");
    assert_eq!(w.store.send(&me, message()).await, Ok(BusDelivery::Sent));
    assert_eq!(w.store.send(&me, message()).await, Ok(BusDelivery::Sent));
    assert_eq!(w.store.send(&me, message()).await, Ok(BusDelivery::InboxFull));
    let messages = w.store.receive(&me, 0, 10).await.unwrap();
    assert_eq!(messages.len(), 2);
    let rest = w.store.receive(&me, messages[0].seq, 10).await.unwrap();
    assert_eq!(rest.len(), 1, "one was acknowledged");
    assert_eq!(w.store.send(&me, message()).await, Ok(BusDelivery::Sent));
}

#[tokio::test]
async fn dead_instances_make_room_for_new_ones() {
    let w = world(StoreLimits { instances_max: 2, ..StoreLimits::default() }).await;
    let announce = async |n| {
        let (instance, incarnation) = (instance(n), Incarnation(1));
        let (address, lease_ms) = (String::new(), 1000);
        w.store.announce(AnnounceRequest { instance, incarnation, address, lease_ms }).await
    };
    announce(0).await.unwrap();
    announce(1).await.unwrap();
    assert!(matches!(announce(2).await, Err(StoreError::LimitReached { limit: 2, .. })));
    w.clock.advance(1001);
    announce(2).await.unwrap();
}

#[tokio::test]
async fn a_fleet_has_a_hundred_thousand_places_and_no_more() {
    let w = world(StoreLimits::default()).await;
    let assign = |n: usize| AssignRequest {
        node: NodeId::new(&format!("node-{n}")).unwrap(),
        incarnation: Incarnation(1),
        class: NodeClass((n % 3) as u32),
    };
    let all = CELLS_MAX * CELL_NODES_MAX;
    for n in 0..all {
        w.store.assign(assign(n)).await.unwrap();
    }
    let refused = w.store.assign(assign(all)).await.unwrap_err();
    assert_eq!(refused, StoreError::LimitReached { what: "the number of nodes", limit: all });
    let known = w.store.locate(&node(5)).await.unwrap().unwrap();
    assert_eq!(w.store.assign(assign(5)).await, Ok(known), "who has a place keeps it");
    assert!(w.store.release(&node(5), known.epoch).await.unwrap());
    let reused = w.store.assign(assign(all)).await.unwrap();
    assert_eq!((reused.cell, reused.slot), (known.cell, known.slot));
}

#[tokio::test]
async fn the_oldest_keys_are_dropped_when_there_are_too_many() {
    let w = world(StoreLimits { keys_max: 3, ..StoreLimits::default() }).await;
    for n in 0..5 {
        let (key, job) = ([n; 32], JobId::new(u128::from(n)));
        let claim = ClaimKeyRequest { key, body: [0; 32], job, replaces: None };
        assert_eq!(w.store.claim_key(claim).await, Ok(ClaimKeyReply::Claimed));
        w.clock.advance(1);
    }
    let again =
        |n| ClaimKeyRequest { key: [n; 32], body: [0; 32], job: JobId::new(99), replaces: None };
    let kept = w.store.claim_key(again(2)).await;
    assert!(matches!(kept, Ok(ClaimKeyReply::Taken(_))), "{kept:?}");
    assert_eq!(w.store.claim_key(again(1)).await, Ok(ClaimKeyReply::Claimed), "dropped");
}
