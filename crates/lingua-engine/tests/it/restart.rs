//! Instances that stop, die and come back.

use std::sync::Arc;
use std::time::Duration;

use lingua_core::job::JobState;
use lingua_engine::request::{Input, JobRequest};
use lingua_engine::{SubmitError, handle::Waited};

use crate::world::{Habit, Node, World, done_by, error_of, job};

#[tokio::test(start_paused = true)]
async fn a_planned_stop_lets_running_jobs_end_and_takes_no_new_ones() {
    let world = World::new();
    let mut node = Node::works(&world, "a", 1, 3_000).await;
    let id = world.submit(job(1, "zh:en")).await;
    node.next_job().await;
    let engine = world.engine.clone();
    let store = world.store.clone();
    let stopping = tokio::spawn(world.stop());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(engine.submit(job(2, "zh:en")).await, Err(SubmitError::Stopping));
    stopping.await.unwrap();
    let Waited::Reached(view) = engine.wait_ended(id, 0).await.unwrap() else {
        panic!("not ended")
    };
    assert_eq!(done_by(&view), "a");
    assert!(lingua_store::Store::instances(&store).await.unwrap().is_empty(), "it has left");
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_another_instance_goes_on_with_what_survives() {
    let first = World::new();
    let mut node = Node::join(&first, "a", "zh en", 4, Habit::Hangs).await;
    let kept = first.submit(job(1, "zh:en")).await;
    let audio = Input::Audio {
        format: Arc::from("pcm16"),
        sample_rate: 16_000,
        data: Arc::from(&[0u8; 4][..]),
    };
    let lost = first.submit(JobRequest { input: audio, ..job(2, "zh:en") }).await;
    node.next_job().await;
    node.next_job().await;
    let (store, timer) = (first.store.clone(), first.timer.clone());
    drop(node);
    // The runners of a dead process stop with it; here they are in ours, so their instance's words
    // are what must not count any more.
    first.kill();
    tokio::time::sleep(Duration::from_millis(9_500)).await;

    let second = World::over(store, timer, "instance-2", |_| {});
    Node::works(&second, "b", 4, 10).await;
    let view = second.ended(kept).await;
    assert_eq!(done_by(&view), "b");
    assert!(view.progress.attempt.0 >= 2);
    let view = second.ended(lost).await;
    assert_eq!(error_of(&view), "INSTANCE_LOST");
    tokio::time::sleep(Duration::from_secs(120)).await;
    let view = second.engine.job(kept).await.unwrap().unwrap();
    assert_eq!(view.progress.state, JobState::Done, "an end is final");
}
