//! Instances that stop, die and come back.

use std::sync::Arc;
use std::time::Duration;

use lingua_core::job::{JobState, Payload};
use lingua_engine::{SubmitError, handle::Waited};

use crate::world::{Habit, Node, World, done_by, error_of, job, job_with};

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
    let (format, data) = (Arc::from("pcm16"), vec![0; 4].into());
    let audio = Payload::Audio { format, sample_rate: Some(16_000), data };
    let lost = first.submit(job_with(2, "zh:en", |s| s.payload = audio)).await;
    node.next_job().await;
    node.next_job().await;
    let (store, timer) = (first.store.clone(), first.timer.clone());
    // The runners of a dead process stop with it; here they are in ours, so their instance's words
    // are what must not count any more.
    first.kill();
    tokio::time::sleep(Duration::from_millis(9_500)).await;

    let second = World::over(store, timer, "instance-2", |_| {});
    Node::works(&second, "b", 4, 10).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    // Its node gives up on the job whose audio is gone: there is nothing that could be tried again.
    let reason = "MODEL_LOAD_FAILED".to_owned();
    second.engine.failed(lost, node.report(1), reason, true, true).await.unwrap();
    let view = second.ended(kept).await;
    assert_eq!(done_by(&view), "b");
    assert!(view.progress.attempt.0 >= 2);
    let view = second.ended(lost).await;
    assert_eq!(error_of(&view), "INSTANCE_LOST");
    tokio::time::sleep(Duration::from_secs(120)).await;
    let view = second.engine.job(kept).await.unwrap().unwrap();
    assert_eq!(view.progress.state, JobState::Done, "an end is final");
    while let Ok(told) = node.told.try_recv() {
        let sent = matches!(told, lingua_engine::node::ToNode::Assign(_));
        assert!(!sent, "the old owner went on with a job that is not its own: {told:?}");
    }
    assert_eq!(second.used().await, 0, "and holds no slot");
}

/// An instance that was away for so long that its job was given to another must not end it.
#[tokio::test(start_paused = true)]
async fn an_instance_that_lost_its_job_neither_ends_nor_confirms_it() {
    use lingua_store::Store as _;
    let world = World::new();
    let mut node = Node::join(&world, "a", "zh en", 1, Habit::Hangs).await;
    let id = world.submit(job(1, "zh:en")).await;
    node.next_job().await;
    let (engine, store) = (world.engine.clone(), world.store.clone());
    world.kill();
    tokio::time::sleep(Duration::from_millis(9_500)).await;
    let heir = lingua_core::InstanceId::new("instance-2").unwrap();
    assert_eq!(store.claim_orphans(&heir, 10).await.unwrap().len(), 1);

    let done = engine.done(id, node.report(1), "{}".to_owned(), true).await;
    assert_eq!(done.unwrap_err().code(), "STALE_ATTEMPT", "the node keeps its result");
    let record = store.job(id).await.unwrap().unwrap();
    assert_eq!((record.owner, record.stage.state), (heir, JobState::Dispatched));
    assert!(matches!(engine.wait_ended(id, 100).await.unwrap(), Waited::NotYet(_)));
    assert_eq!(engine.open_jobs(), 0, "it let go of it");
}
