//! Nothing grows without bound.

use lingua_core::{CELL_NODES_MAX, CELLS_MAX, JobId, NodeId, Rules};
use lingua_store::conformance::World;
use lingua_store::conformance::fixture::node;
use lingua_store::conformance::rules::limits;
use lingua_store::contract::{
    AssignRequest, ClaimKeyReply, ClaimKeyRequest, Incarnation, JOBS_PAGE_MAX, JobFilter, NewJob,
    NodeClass,
};
use lingua_store::{Embedded, ManualClock, Store, StoreError, StoreLimits};

async fn world(limits: StoreLimits) -> World<Embedded<ManualClock>> {
    let factory = |rules, clock| async move { Embedded::new(rules, limits, clock) };
    World::new(factory, Rules::default()).await
}

fn job(n: u128) -> NewJob {
    limits::job(1, n)
}

lingua_store::limits_suite!(world, 1);

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
async fn a_fleet_has_a_hundred_thousand_places_and_no_more() {
    let w = world(StoreLimits::default()).await;
    let assign = |n: usize| {
        let node = NodeId::new(&format!("node-{n}")).unwrap();
        AssignRequest::new(node, Incarnation(1), NodeClass((n % 3) as u32))
    };
    let all = CELLS_MAX * CELL_NODES_MAX;
    for n in 0..all {
        w.store.assign(assign(n)).await.unwrap();
    }
    let refused = w.store.assign(assign(all)).await.unwrap_err();
    assert_eq!(refused, StoreError::LimitReached { what: "the number of nodes", limit: all });
    let known = w.store.locate(&node(5)).await.unwrap().unwrap();
    let again = w.store.assign(assign(5)).await.unwrap().placed();
    assert_eq!(again, Some(known), "who has a place keeps it");
    assert!(w.store.release(&node(5), known.epoch).await.unwrap());
    let reused = w.store.assign(assign(all)).await.unwrap().placed().unwrap();
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
