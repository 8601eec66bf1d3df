//! Nodes that come, go, move over, drain and are wanted.

use std::time::Duration;

use lingua_core::node::NodeState;
use lingua_core::{Health, NodeId};
use lingua_engine::handle::{NodeHeartbeat, NodeRegistration};
use lingua_engine::node::ToNode;
use lingua_store::Store as _;
use lingua_store::contract::NodeCommand;
use std::sync::Arc;
use tokio::sync::mpsc;

use crate::world::{Habit, Node, World, done_by, error_of, job, job_with, profile};

fn beat(node: &Node) -> NodeHeartbeat {
    let (epoch, running) = (Some(node.epoch), Some(vec![]));
    NodeHeartbeat { epoch, running, ..NodeHeartbeat::of(node.id.clone()) }
}

#[tokio::test(start_paused = true)]
async fn a_second_connection_takes_over_and_the_first_is_told() {
    let world = World::new();
    let mut first = Node::join(&world, "a", "zh en", 1, Habit::Hangs).await;
    let id = world.submit(job(1, "zh:en")).await;
    first.next_job().await;
    let second = Node::works(&world, "a", 1, 10).await;
    assert!(second.epoch > first.epoch);
    assert!(matches!(first.told.recv().await.unwrap(), ToNode::Superseded));
    assert_eq!(done_by(&world.ended(id).await), "a");
    let stale = world.engine.heartbeat(beat(&first)).await.unwrap_err();
    assert_eq!(stale.code(), "STALE_EPOCH");
    first.dies(&world).await;
    let view = world.translate(job(2, "zh:en")).await;
    assert_eq!(done_by(&view), "a", "the old connection's end does not touch the new one");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_nodes_heartbeat_is_told_to_register() {
    let world = World::new();
    let node = Node::works(&world, "a", 1, 10).await;
    node.dies(&world).await;
    let unknown = world.engine.heartbeat(beat(&node)).await.unwrap_err();
    assert_eq!(unknown.code(), "NODE_NOT_REGISTERED");
}

#[tokio::test(start_paused = true)]
async fn a_draining_node_finishes_and_takes_nothing_new() {
    let world = World::new();
    let mut node = Node::works(&world, "a", 2, 500).await;
    let running = world.submit(job(1, "zh:en")).await;
    node.next_job().await;
    assert_eq!(world.engine.set_drain(&node.id, true).await.unwrap(), Some(NodeState::Draining));
    assert!(matches!(node.told.recv().await.unwrap(), ToNode::Drain));
    let refused = world.translate(job_with(2, "zh:en", |s| s.wait_ms = Some(100))).await;
    assert_eq!(error_of(&refused), "ALL_CANDIDATES_FULL_OR_FAILED");
    assert_eq!(done_by(&world.ended(running).await), "a");
    assert!(world.engine.heartbeat(beat(&node)).await.unwrap().drain);
    let nobody = NodeId::new("nobody").unwrap();
    assert_eq!(world.engine.set_drain(&nobody, true).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_preferred_node_is_used_checked_and_fallen_back_from() {
    let world = World::new();
    let wanted = Node::join(&world, "wanted", "zh en", 1, Habit::Works { ms: 200 }).await;
    let other = Node::works(&world, "other", 8, 200).await;
    let french = Node::join(&world, "french", "fr", 1, Habit::Works { ms: 1 }).await;
    let prefers = |n, node: &NodeId, strict| {
        job_with(n, "zh:en", |s| {
            s.preferred = Some(node.clone());
            s.strict = strict;
            s.wait_ms = Some(0);
        })
    };
    let first = world.submit(prefers(1, &wanted.id, false)).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let second = world.translate(prefers(2, &wanted.id, false)).await;
    assert_eq!(done_by(&second), "other", "full: somebody else does it");
    assert_eq!(done_by(&world.ended(first).await), "wanted");

    let busy = world.submit(prefers(3, &wanted.id, true)).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let strict = world.translate(prefers(4, &wanted.id, true)).await;
    assert_eq!(error_of(&strict), "ALL_CANDIDATES_FULL_OR_FAILED");
    world.ended(busy).await;
    let nobody = NodeId::new("nobody").unwrap();
    let wrong = [(5, &french.id, false), (6, &french.id, true), (7, &nobody, false)];
    for (n, node, strict) in wrong {
        let view = world.translate(prefers(n, node, strict)).await;
        assert_eq!(error_of(&view), "PREFERRED_NODE_NOT_CAPABLE");
    }
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn excluded_nodes_are_left_out() {
    let world = World::new();
    let bad = Node::works(&world, "bad", 8, 10).await;
    Node::works(&world, "good", 8, 10).await;
    for n in 0..20 {
        let view =
            world.translate(job_with(n, "zh:en", |s| s.exclude = vec![bad.id.clone()])).await;
        assert_eq!(done_by(&view), "good");
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_stays_on_its_node_and_moves_when_it_dies() {
    let world = World::new();
    let mut nodes = vec![];
    for name in ["a", "b", "c"] {
        nodes.push(Node::works(&world, name, 4, 10).await);
    }
    let bound = |n| job_with(n, "zh:en", |s| s.bind_key = Some(Arc::from("room-1/turn-1")));
    let home = done_by(&world.translate(bound(0)).await);
    for n in 1..10 {
        assert_eq!(done_by(&world.translate(bound(n)).await), home);
    }
    let host = nodes.iter().find(|node| node.id.as_str() == home).unwrap();
    host.dies(&world).await;
    let moved = done_by(&world.translate(bound(20)).await);
    assert_ne!(moved, home);
    for n in 21..30 {
        assert_eq!(done_by(&world.translate(bound(n)).await), moved, "it moves once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_says_that_it_has_moved_until_a_node_takes_it() {
    let world = World::new();
    let home = Node::works(&world, "home", 1, 10).await;
    let bound = |n| job_with(n, "zh:en", |s| s.bind_key = Some(Arc::from("room-1/turn-1")));
    world.translate(bound(0)).await;
    home.dies(&world).await;
    let mut busy = Node::join(&world, "busy", "zh en", 1, Habit::Busy).await;
    // No job waits for the old node any more.
    tokio::time::sleep(Duration::from_secs(20)).await;
    world.submit(bound(1)).await;
    for _ in 0..3 {
        let assignment = busy.next_job().await;
        assert!(assignment.moved, "attempt {} of a moved turn", assignment.attempt.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_can_change_what_a_node_can_do() {
    let world = World::new();
    let node = Node::works(&world, "a", 1, 10).await;
    let japanese = profile("ja en", 1);
    let change = NodeHeartbeat { profile: Some(Arc::clone(&japanese)), ..beat(&node) };
    world.engine.heartbeat(change).await.unwrap();
    assert_eq!(world.engine.profile_of(&node.id, None).await.map(|known| known.0), Ok(japanese));
    assert_eq!(error_of(&world.translate(job(1, "zh:en")).await), "NO_CAPABLE_NODE");
    assert_eq!(done_by(&world.translate(job(2, "ja:en")).await), "a");
    world.engine.heartbeat(beat(&node)).await.unwrap();
    assert_eq!(
        done_by(&world.translate(job(3, "ja:en")).await),
        "a",
        "a plain one changes nothing"
    );
}

/// A node that does not read its messages fills its outbox once, and is disconnected.
#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_read_is_cut_off_and_its_jobs_go_elsewhere() {
    let world = World::new();
    let (outbox, _never_read) = tokio::sync::mpsc::channel(3);
    let name = NodeId::new("slow").unwrap();
    let slow = lingua_engine::handle::NodeRegistration::new(name, profile("zh en", 64), outbox);
    let preferred = Some(slow.node.clone());
    world.engine.register(slow).await.unwrap();
    let quick = Node::works(&world, "quick", 8, 10).await;
    let mut ids = vec![];
    for n in 0..4 {
        let wants_slow = job_with(n, "zh:en", |s| s.preferred = preferred.clone());
        ids.push(world.submit(wants_slow).await);
    }
    for id in ids {
        let view = world.ended(id).await;
        assert_eq!(done_by(&view), "quick");
        let ended = view.progress.ended.unwrap();
        assert!(ended.ended_ms - ended.accepted_ms < 1_000, "no timeout was waited for");
    }
    assert_eq!(world.engine.connected_nodes(), 1);
    quick.check();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stays_away_is_forgotten_after_an_hour() {
    let world = World::new();
    let node = Node::works(&world, "a", 1, 10).await;
    node.falls_silent();
    tokio::time::sleep(Duration::from_secs(3_000)).await;
    assert_eq!(world.engine.nodes().await.unwrap().nodes.len(), 1, "people still see it");
    assert_eq!(error_of(&world.translate(job(1, "zh:en")).await), "NO_CAPABLE_NODE");
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert!(world.engine.nodes().await.unwrap().nodes.is_empty());
    assert_eq!(world.engine.connected_nodes(), 0);
}

#[tokio::test(start_paused = true)]
async fn turns_of_a_session_spread_over_nodes() {
    let world = World::new();
    let mut nodes = vec![];
    for n in 0..10 {
        nodes.push(Node::works(&world, &format!("n{n}"), 2, 10).await);
    }
    for n in 0..200 {
        world.translate(job(n, "zh:en")).await;
    }
    let shares: Vec<u32> = nodes.iter().map(Node::done).collect();
    assert_eq!(shares.iter().sum::<u32>(), 200);
    assert!(shares.iter().all(|&n| n >= 5), "{shares:?}");
}

/// What a heartbeat leaves out stays as it was, also when it names other capabilities.
#[tokio::test(start_paused = true)]
async fn a_degraded_node_that_changes_what_it_can_do_stays_degraded() {
    let world = World::new();
    let node = Node::works(&world, "a", 1, 10).await;
    let state = async || world.engine.node(&node.id).await.unwrap().value.expect("known").1.state;
    let degraded = NodeHeartbeat { health: Some(Health::Degraded), ..beat(&node) };
    world.engine.heartbeat(degraded).await.unwrap();
    assert_eq!(state().await, NodeState::Degraded);
    let more = NodeHeartbeat { profile: Some(profile("zh en ja", 2)), ..beat(&node) };
    world.engine.heartbeat(more).await.unwrap();
    assert_eq!(state().await, NodeState::Degraded);
    let ready = NodeHeartbeat { health: Some(Health::Ready), ..beat(&node) };
    world.engine.heartbeat(ready).await.unwrap();
    assert_eq!(state().await, NodeState::Ready);
}

/// A registration on a connection of its own.
fn connection(name: &str) -> (NodeRegistration, mpsc::Receiver<ToNode>) {
    let (outbox, inbox) = mpsc::channel(64);
    let id = NodeId::new(name).expect("a name");
    (NodeRegistration::new(id, profile("zh en", 1), outbox), inbox)
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_by_its_first_epoch_however_often_it_registered() {
    let world = World::new();
    let (registration, _inbox) = connection("a");
    let id = registration.node.clone();
    let first = world.engine.register(registration.clone()).await.unwrap().place.epoch;
    for _ in 0..20 {
        world.engine.register_again(registration.clone()).await.unwrap();
    }
    world.engine.disconnect(&id, first).await.expect("it is the same connection");
    let (_, record) = world.engine.node(&id).await.unwrap().value.unwrap();
    assert_eq!(record.state, NodeState::Offline, "its jobs go elsewhere at once");
}

#[tokio::test(start_paused = true)]
async fn a_sign_of_life_waits_for_no_store() {
    let world = World::new();
    let (registration, mut inbox) = connection("a");
    let id = registration.node.clone();
    let place = world.engine.register(registration).await.unwrap().place;
    let fresh_ms = async || {
        let (_, record) = world.engine.node(&id).await.unwrap().value.unwrap();
        record.fresh_until_ms
    };
    let before_ms = fresh_ms().await;
    world.store.delay_reply("heartbeat", Duration::from_secs(3));
    tokio::time::sleep(Duration::from_millis(10)).await;
    world.engine.touch_later(&id);
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(fresh_ms().await, before_ms + 10);
    world.store.set_state(place, NodeCommand::Offline).await.unwrap();
    world.engine.touch_later(&id);
    assert!(inbox.recv().await.is_none(), "it is not registered: its connection ends");
}
