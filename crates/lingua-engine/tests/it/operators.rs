//! What operators see.

use std::time::Duration;

use lingua_core::job::JobState;
use lingua_core::roster::NodeVerdict;
use lingua_core::{JobId, NodeId, NodeState, RejectReason};
use lingua_engine::events::EngineEvent;
use lingua_engine::request::JobQuery;

use crate::world::{Habit, Node, World, job};

#[tokio::test(start_paused = true)]
async fn the_pool_table_follows_the_nodes_within_a_second() {
    let world = World::new();
    Node::works(&world, "a", 4, 10).await;
    let b = Node::join(&world, "b", "zh en ja", 2, Habit::Works { ms: 10 }).await;
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    let table = world.engine.pools().expect("a table");
    let pool = |name: &str| table.pools.iter().find(|pool| pool.pair == name).cloned();
    let zh_en = pool("zh:en").expect("a pool");
    assert_eq!((zh_en.nodes, zh_en.ready, zh_en.free), (2, 2, 6));
    assert_eq!(pool("ja:en").map(|pool| pool.nodes), Some(1));
    assert_eq!(pool("*:en").map(|pool| pool.nodes), Some(2));
    assert_eq!(pool("ko:en"), None);
    b.dies(&world).await;
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    let table = world.engine.pools().expect("a table");
    assert!(table.pools.iter().all(|pool| pool.pair != "ja:en"));
    let cluster = world.engine.cluster().await.value;
    assert_eq!(cluster.leader.as_deref(), Some("instance-1"));
    assert_eq!(cluster.instances.len(), 1);
    assert!(cluster.table.is_some_and(|(version, _)| version >= 2));
}

#[tokio::test(start_paused = true)]
async fn an_explanation_names_each_nodes_reason() {
    let world = World::new();
    Node::works(&world, "able", 4, 10).await;
    Node::join(&world, "french", "fr", 4, Habit::Silent).await;
    let tired = Node::works(&world, "tired", 4, 10).await;
    world.engine.set_drain(&tired.id, true).await.unwrap();
    let told = world.engine.explain(&job(1, "zh:en").spec).await.unwrap();
    let verdict = |name: &str| {
        told.nodes
            .iter()
            .find(|v| v.node.node.as_str() == name)
            .map(|v| v.verdict)
            .expect("a verdict")
    };
    assert!(matches!(verdict("able"), NodeVerdict::Chosen { .. }));
    assert!(matches!(verdict("french"), NodeVerdict::Refused(RejectReason::Lacks(_))));
    assert_eq!(verdict("tired"), NodeVerdict::Refused(RejectReason::State(NodeState::Draining)));
    assert_eq!(world.used().await, 0, "nothing was taken");
}

#[tokio::test(start_paused = true)]
async fn events_tell_of_nodes_and_jobs() {
    let world = World::new();
    let mut events = world.engine.events();
    tokio::time::sleep(Duration::from_millis(10)).await;
    Node::works(&world, "a", 1, 10).await;
    let view = world.translate(job(1, "zh:en")).await;
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    let mut seen = vec![];
    while let Ok(event) = events.try_recv() {
        seen.push(event);
    }
    let job_states: Vec<JobState> = seen
        .iter()
        .filter_map(|event| match event {
            EngineEvent::Job { job, state, text: None, .. } if *job == view.id => Some(*state),
            _ => None,
        })
        .collect();
    assert_eq!(job_states, [JobState::Dispatched, JobState::Acked, JobState::Done]);
    assert!(
        seen.iter()
            .any(|event| matches!(event, EngineEvent::Node { node, .. } if node.as_str() == "a"))
    );
    assert!(seen.iter().any(|event| matches!(event, EngineEvent::Pools { .. })));
}

#[tokio::test(start_paused = true)]
async fn jobs_are_listed_by_state_newest_first() {
    let world = World::new();
    Node::works(&world, "a", 1, 10).await;
    for n in 0..5 {
        world.translate(job(n, "zh:en")).await;
    }
    world.translate(job(9, "ko:en")).await;
    let list = async |query: JobQuery| -> (Vec<u128>, Option<JobId>) {
        let page = world.engine.jobs(&query).await.unwrap();
        (page.jobs.iter().map(|job| job.id.number()).collect(), page.next)
    };
    let all = JobQuery { limit: 100, ..JobQuery::default() };
    assert_eq!(list(all.clone()).await, (vec![9, 4, 3, 2, 1, 0], None));
    let done = JobQuery { state: Some(JobState::Done), limit: 3, ..all.clone() };
    assert_eq!(list(done.clone()).await, (vec![4, 3, 2], Some(JobId::new(2))));
    let rest = JobQuery { after: Some(JobId::new(2)), ..done };
    assert_eq!(list(rest).await, (vec![1, 0], None));
    let failed = JobQuery { state: Some(JobState::Failed), ..all.clone() };
    assert_eq!(list(failed).await.0, [9]);
    let on_a = JobQuery { node: Some(NodeId::new("a").unwrap()), ..all.clone() };
    assert_eq!(list(on_a).await.0, [4, 3, 2, 1, 0]);
    let of_nobody = JobQuery { session: Some("nobody".into()), ..all };
    assert!(list(of_nobody).await.0.is_empty());
}
