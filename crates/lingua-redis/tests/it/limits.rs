//! Nothing grows without bound. Numbers of jobs are shared out over sixteen shards.

use lingua_core::Rules;
use lingua_redis::RedisStore;
use lingua_store::conformance::World;
use lingua_store::conformance::fixture::{heartbeat, instance, key};
use lingua_store::conformance::rules::limits;
use lingua_store::contract::{HeartbeatReply, JobFilter, NewJob};
use lingua_store::{ManualClock, Store, StoreLimits};

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
    limits::job(16, n)
}

lingua_store::limits_suite!(world, 16);

#[tokio::test]
async fn a_list_continues_over_many_pages() {
    let w = world(StoreLimits::default()).await;
    for n in 0..600 {
        w.store.create_job(job(n)).await.unwrap();
    }
    limits::end(&w, job(599).id).await;
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
async fn an_absurd_heartbeat_breaks_nothing() {
    let w = world(StoreLimits::default()).await;
    let place = w.join(0, "zh en", 1).await;
    w.take(place.cell, key(1)).await;
    let running: Vec<_> = (1..10_000).map(key).collect();
    let reply = w.store.heartbeat(heartbeat(place, running)).await.unwrap();
    let HeartbeatReply::Accepted { unknown, .. } = reply else { panic!("{reply:?}") };
    assert_eq!(unknown.len(), 9_998, "all but the one that it has");
}
