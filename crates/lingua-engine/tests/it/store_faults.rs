//! Store calls that fail: jobs end all the same.

use std::time::Duration;

use lingua_core::JobId;
use lingua_store::Store as _;

use crate::world::{Node, World, done_by, job, job_with};

#[tokio::test(start_paused = true)]
async fn a_job_whose_creation_was_not_confirmed_is_run_when_it_is_submitted_again() {
    let world = World::new();
    let node = Node::works(&world, "a", 1, 10).await;
    world.store.lose_reply("create_job");
    if world.engine.submit(job(1, "zh:en")).await.is_err() {
        assert!(world.engine.submit(job(1, "zh:en")).await.expect("accepted").existed);
    }
    assert_eq!(done_by(&world.ended(JobId::new(1)).await), "a");
    assert_eq!(node.done(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_steps_could_not_be_written_ends_after_the_outage() {
    let world = World::new();
    let mut node = Node::works(&world, "a", 1, 2_000).await;
    let id = world.submit(job(1, "zh:en")).await;
    node.next_job().await;
    world.store.set_unreachable(true);
    // Longer than a runner tries to write a step.
    tokio::time::sleep(Duration::from_secs(12)).await;
    world.store.set_unreachable(false);
    let view = world.ended(id).await;
    let record = world.store.job(id).await.expect("reachable").expect("on record");
    assert_eq!(record.stage.state, view.progress.state);
}

#[tokio::test(start_paused = true)]
async fn jobs_whose_takeover_was_not_confirmed_are_run_by_the_new_owner() {
    let first = World::new();
    let (store, timer) = (first.store.clone(), first.timer.clone());
    let waiting = job_with(1, "zh:en", |spec| spec.wait_ms = Some(60_000));
    let _gone = Node::works(&first, "a", 1, 60_000).await;
    let id = first.submit(waiting).await;
    first.kill();
    let second = World::over(store, timer, "instance-2", |_| {});
    second.store.lose_reply("claim_orphans");
    let _node = Node::works(&second, "b", 1, 10).await;
    assert_eq!(done_by(&second.ended(id).await), "b");
}
