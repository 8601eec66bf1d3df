//! Nothing grows without bound. Numbers of jobs are shared out over sixteen shards.

use lingua_core::job::{JobState, Stage};
use lingua_core::{Attempt, JobId, Rules};
use lingua_redis::RedisStore;
use lingua_store::conformance::World;
use lingua_store::conformance::fixture::{heartbeat, instance, key};
use lingua_store::contract::{
    AdvanceRequest, AnnounceRequest, BusDelivery, Bytes, CreateReply, HeartbeatReply, Incarnation,
    JobFilter, NewJob,
};
use lingua_store::{ManualClock, Store, StoreError, StoreLimits};

use crate::servers::{options, shared};

async fn world(limits: StoreLimits) -> World<RedisStore> {
    let url = shared().await.url();
    let factory = async |rules, clock: ManualClock| {
        let mut options = options(&url, rules, Some(clock));
        options.limits = limits;
        RedisStore::connect(options).await.unwrap()
    };
    World::new(factory, Rules::default()).await
}

/// Jobs whose ids differ by sixteen share a shard.
fn job(n: u128) -> NewJob {
    NewJob {
        id: JobId::new(16 * n),
        owner: instance(0),
        spec: Bytes::new(),
        deadline_ms: None,
        recoverable: false,
        label: 0,
    }
}

async fn end(w: &World<RedisStore>, n: u128) {
    let stage = |state| Stage { state, attempt: Attempt::FIRST };
    let (from, to) = (stage(JobState::New), stage(JobState::Cancelled));
    let step = AdvanceRequest::new(job(n).id, instance(0), from, to, 1).unwrap();
    w.store.advance_job(step).await.unwrap();
}

#[tokio::test]
async fn open_jobs_are_refused_beyond_the_limit_and_lose_nothing() {
    let w = world(StoreLimits { open_jobs_max: 32, ..StoreLimits::default() }).await;
    w.store.create_job(job(0)).await.unwrap();
    w.store.create_job(job(1)).await.unwrap();
    let refused = w.store.create_job(job(2)).await.unwrap_err();
    assert_eq!(refused, StoreError::LimitReached { what: "the number of open jobs", limit: 32 });
    assert!(matches!(w.store.create_job(job(1)).await, Ok(CreateReply::Exists(_))));
    end(&w, 1).await;
    assert_eq!(w.store.create_job(job(2)).await, Ok(CreateReply::Created));
}

#[tokio::test]
async fn the_oldest_ended_jobs_are_forgotten_first() {
    let w = world(StoreLimits { ended_jobs_max: 32, ..StoreLimits::default() }).await;
    for n in 0..4 {
        w.store.create_job(job(n)).await.unwrap();
        w.clock.advance(1);
        end(&w, n).await;
    }
    for (n, known) in [(0, false), (1, false), (2, true), (3, true)] {
        assert_eq!(w.store.job(job(n).id).await.unwrap().is_some(), known, "job {n}");
    }
    let all = JobFilter { limit: 10, ..JobFilter::default() };
    assert_eq!(w.store.jobs(all).await.unwrap().jobs.len(), 2);
}

#[tokio::test]
async fn ended_jobs_hold_a_bounded_number_of_bytes() {
    let ended_bytes_max = 16 * 100_000;
    let w = world(StoreLimits { ended_bytes_max, ..StoreLimits::default() }).await;
    for n in 0..50 {
        w.store.create_job(NewJob { spec: vec![0; 9_000].into(), ..job(n) }).await.unwrap();
        end(&w, n).await;
    }
    let all = JobFilter { limit: 100, ..JobFilter::default() };
    let kept = w.store.jobs(all).await.unwrap().jobs;
    let ids: Vec<JobId> = kept.iter().map(|record| record.id).collect();
    assert_eq!(ids, (40..50).map(|n| job(n).id).collect::<Vec<_>>(), "the newest that fit");
}

#[tokio::test]
async fn a_list_continues_over_many_pages() {
    let w = world(StoreLimits::default()).await;
    for n in 0..600 {
        w.store.create_job(job(n)).await.unwrap();
    }
    end(&w, 599).await;
    let all = JobFilter { limit: 250, ..JobFilter::default() };
    let (mut listed, mut after) = (vec![], None);
    loop {
        let page = w.store.jobs(JobFilter { after, ..all.clone() }).await.unwrap();
        listed.extend(page.jobs.iter().map(|record| record.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed, (0..600).map(|n| job(n).id).collect::<Vec<_>>());
    let mine = JobFilter { open_of: Some(instance(0)), limit: 1000, ..all };
    let open = w.store.jobs(mine.clone()).await.unwrap();
    assert_eq!((open.jobs.len(), open.next), (599, None));
    let rest = JobFilter { after: Some(job(597).id), ..mine };
    assert_eq!(w.store.jobs(rest).await.unwrap().jobs.len(), 1);
}

#[tokio::test]
async fn a_full_inbox_refuses_and_keeps_what_it_has() {
    let w = world(StoreLimits { inbox_max: 2, ..StoreLimits::default() }).await;
    let (me, incarnation) = (instance(0), Incarnation(1));
    let (address, lease_ms) = (String::new(), 1000);
    let presence = AnnounceRequest { instance: me.clone(), incarnation, address, lease_ms };
    w.store.announce(presence).await.unwrap();
    let send = async || w.store.send(&me, Bytes::from_static(b"hello")).await.unwrap();
    assert_eq!((send().await, send().await), (BusDelivery::Sent, BusDelivery::Sent));
    assert_eq!(send().await, BusDelivery::InboxFull);
    let got = w.store.receive(&me, 0, 10).await.unwrap();
    assert_eq!(got.len(), 2);
    assert_eq!(w.store.receive(&me, got[0].seq, 10).await.unwrap().len(), 1, "one acknowledged");
    assert_eq!(send().await, BusDelivery::Sent);
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
    assert_eq!(w.store.instances().await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_absurd_heartbeat_breaks_nothing() {
    let w = world(StoreLimits::default()).await;
    let place = w.join(0, "zh en", 1).await;
    w.take(place.cell, key(1)).await;
    let running: Vec<_> = (1..10_000).map(key).collect();
    let reply = w.store.heartbeat(heartbeat(place, running)).await.unwrap();
    let HeartbeatReply::Accepted { unknown, .. } = reply else { panic!("{reply:?}") };
    assert_eq!(unknown.len(), 9_998, "all but the one that it has");
}
