//! Jobs that wait for a slot.

use std::time::Duration;

use crate::world::{Habit, Node, World, done_by, error_of, job, job_with};

#[tokio::test(start_paused = true)]
async fn a_freed_slot_wakes_the_job_that_waited_longest() {
    let world = World::new();
    let node = Node::works(&world, "a", 1, 400).await;
    let mut ids = vec![];
    for n in 0..4 {
        ids.push(world.submit(job(n, "zh:en")).await);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut last_ms = 0;
    for (n, id) in ids.into_iter().enumerate() {
        let ended = world.ended(id).await.progress.ended.unwrap();
        assert!(ended.ended_ms > last_ms, "in the order of coming");
        last_ms = ended.ended_ms;
        let waited_ms = ended.waited_ms as i64 - 400 * n as i64;
        assert!((-5..=5).contains(&waited_ms), "job {n} waited {} ms", ended.waited_ms);
    }
    node.check();
}

#[tokio::test(start_paused = true)]
async fn a_higher_priority_goes_first() {
    let world = World::new();
    Node::works(&world, "a", 1, 100).await;
    let _first = world.submit(job(1, "zh:en")).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let usual = world.submit(job(2, "zh:en")).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let urgent = world.submit(job_with(3, "zh:en", |s| s.priority = 5)).await;
    let end = async |id| world.ended(id).await.progress.ended.unwrap().ended_ms;
    assert!(end(urgent).await < end(usual).await);
}

#[tokio::test(start_paused = true)]
async fn a_job_waits_as_long_as_it_may_and_no_longer() {
    let world = World::new();
    Node::join(&world, "a", "zh en", 1, Habit::Hangs).await;
    world.submit(job(1, "zh:en")).await;
    for wait_ms in [0, 700, 2_000] {
        let view = world
            .translate(job_with(10 + u128::from(wait_ms), "zh:en", |s| s.wait_ms = Some(wait_ms)))
            .await;
        assert_eq!(error_of(&view), "ALL_CANDIDATES_FULL_OR_FAILED");
        let ended = view.progress.ended.unwrap();
        assert_eq!(ended.ended_ms - ended.accepted_ms, wait_ms);
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_node_serves_those_who_wait_at_once() {
    let world = World::new();
    Node::join(&world, "full", "zh en", 1, Habit::Hangs).await;
    world.submit(job(1, "zh:en")).await;
    let mut waiting = vec![];
    for n in 2..5 {
        waiting.push(world.submit(job(n, "zh:en")).await);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    Node::works(&world, "new", 3, 10).await;
    for id in waiting {
        let view = world.ended(id).await;
        assert_eq!(done_by(&view), "new");
        let waited_ms = view.progress.ended.unwrap().waited_ms;
        assert!(waited_ms <= 101, "waited {waited_ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn another_pairs_line_does_not_stand_in_the_way() {
    let world = World::new();
    Node::join(&world, "full", "zh en", 1, Habit::Hangs).await;
    world.submit(job(1, "zh:en")).await;
    world.submit(job(2, "zh:en")).await;
    Node::join(&world, "french", "fr en", 1, Habit::Works { ms: 10 }).await;
    let view = world.translate(job(3, "fr:en")).await;
    assert_eq!(view.progress.ended.unwrap().waited_ms, 0);
}

#[tokio::test(start_paused = true)]
async fn a_resumed_node_serves_those_who_wait() {
    let world = World::new();
    let node = Node::works(&world, "a", 1, 10).await;
    world.engine.set_drain(&node.id, true).await.unwrap();
    let id = world.submit(job(1, "zh:en")).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    world.engine.set_drain(&node.id, false).await.unwrap();
    let view = world.ended(id).await;
    assert_eq!(done_by(&view), "a");
    assert!(view.progress.ended.unwrap().waited_ms <= 601);
}

/// Many jobs come and go on few slots: if a wake were lost, somebody would wait for the next tick.
#[tokio::test(start_paused = true)]
async fn no_wake_is_lost_under_load() {
    let world = World::with(|options| options.times.upkeep_ms = 3_600_000);
    let mut nodes = vec![];
    for n in 0..4 {
        nodes.push(Node::works(&world, &format!("n{n}"), 2, 20 + n).await);
    }
    let mut ids = vec![];
    for n in 0..400u128 {
        ids.push(world.submit(job_with(n, "zh:en", |s| s.wait_ms = Some(60_000))).await);
        if n % 8 == 0 {
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
    }
    let mut last_ms = 0;
    for id in ids {
        let ended = world.ended(id).await.progress.ended.unwrap();
        last_ms = last_ms.max(ended.ended_ms - ended.accepted_ms);
    }
    // 400 jobs of 21 ms on 8 slots take about 1.1 s; a lost wake would add whole seconds.
    assert!(last_ms < 2_000, "the last one took {last_ms} ms");
    nodes.iter().for_each(Node::check);
}
