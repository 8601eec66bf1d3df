//! Nodes without WebSocket: they poll for their jobs, at any instance.

use std::sync::Arc;

use lingua_core::{Health, NodeId, NodeState};
use lingua_engine::NodeError;
use lingua_engine::handle::{NodeHeartbeat, NodeRegistration};
use lingua_store::contract::LeaseKey;

use crate::bus::two;
use crate::world::{Habit, Node, World, job, profile};

async fn register(world: &World, name: &str, health: Health) -> NodeId {
    let node = NodeId::new(name).expect("a name");
    let (outbox, _) = tokio::sync::mpsc::channel(1);
    let registration = NodeRegistration::new(node.clone(), profile("zh en", 2), outbox);
    let version = Some(Arc::from("3.0"));
    let registration = NodeRegistration { health, version, ..registration };
    world.engine.register_polling(registration).await.expect("registers");
    node
}

fn heartbeat(node: &NodeId) -> NodeHeartbeat {
    NodeHeartbeat { running: Some(vec![]), ..NodeHeartbeat::of(node.clone()) }
}

#[tokio::test(start_paused = true)]
async fn a_node_fetches_its_jobs_at_whichever_instance_it_polls() {
    let (one, two) = two().await;
    let node = register(&two, "n", Health::Ready).await;
    for (n, asked) in [(1, &one), (2, &two)] {
        let id = one.submit(job(n, "zh:en")).await;
        let jobs = asked.engine.poll(&node, 5_000).await.expect("jobs");
        assert_eq!(jobs.iter().map(|job| job.job).collect::<Vec<_>>(), [id]);
    }
    assert!(one.engine.poll(&node, 1_000).await.expect("a reply").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_poll_of_a_node_that_is_connected_or_unknown_is_refused() {
    let world = World::new();
    let connected = Node::join(&world, "connected", "zh en", 1, Habit::Hangs).await;
    let poll = world.engine.poll(&connected.id, 1_000).await;
    assert_eq!(poll.map(|jobs| jobs.len()), Err(NodeError::NotPolling));
    let unknown = NodeId::new("unknown").expect("a name");
    let poll = world.engine.poll(&unknown, 1_000).await;
    assert_eq!(poll.map(|jobs| jobs.len()), Err(NodeError::NotRegistered));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_job_is_named_in_the_answer_to_the_next_heartbeat() {
    let world = World::new();
    let node = register(&world, "n", Health::Ready).await;
    let id = world.submit(job(1, "zh:en")).await;
    let attempt = world.engine.poll(&node, 5_000).await.expect("jobs")[0].attempt;
    world.engine.cancel(id).await.expect("cancelled");
    world.engine.poll(&node, 10).await.expect("no jobs");
    let ack = world.engine.heartbeat(heartbeat(&node)).await.expect("accepted");
    assert_eq!(ack.cancel, [LeaseKey { job: id, attempt }]);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_capabilities_at_another_instance_keeps_everything_else() {
    let (one, two) = two().await;
    let node = register(&two, "n", Health::Degraded).await;
    let record = |world: &World| {
        let (engine, node) = (world.engine.clone(), node.clone());
        async move { engine.node(&node).await.expect("a reply").value.expect("the node").1 }
    };
    let before = record(&one).await;
    let japanese = profile("ja en", 2);
    let change = NodeHeartbeat { profile: Some(Arc::clone(&japanese)), ..heartbeat(&node) };
    one.engine.heartbeat(change).await.expect("accepted");
    let after = record(&one).await;
    assert_eq!(after.profile, japanese);
    assert_eq!((after.state, after.health), (NodeState::Degraded, Health::Degraded));
    assert_eq!(
        (after.place, after.speed, after.version, after.via),
        (before.place, before.speed, before.version, before.via)
    );
}
