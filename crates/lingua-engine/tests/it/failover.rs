//! A store that forgets its last writes, and slots that would be held for ever.

use std::time::Duration;

use lingua_core::Attempt;
use lingua_core::job::{JobState, Stage};
use lingua_engine::handle::NodeHeartbeat;
use lingua_store::Store as _;
use lingua_store::contract::{AdvanceRequest, JobRecord, LeaseKey, NewJob};
use lingua_store::embedded::LostWrites;

use crate::bus::two;
use crate::world::{Habit, Node, World, done_by, job, job_with};

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

fn beat(node: &Node, running: Vec<LeaseKey>) -> NodeHeartbeat {
    let (epoch, running) = (Some(node.epoch), Some(running));
    NodeHeartbeat { epoch, running, ..NodeHeartbeat::of(node.id.clone()) }
}

#[tokio::test(start_paused = true)]
async fn an_end_that_the_store_forgot_is_written_again() {
    let world = World::new();
    let _node = Node::works(&world, "a", 1, 10).await;
    let before = world.store.snapshot();
    let view = world.translate(job(1, "zh:en")).await;
    assert_eq!(done_by(&view), "a");
    world.store.roll_back(&before, LostWrites::Jobs);
    assert_eq!(world.store.job(view.id).await.unwrap(), None, "it is forgotten");
    pass(1_000).await;
    let record = world.store.job(view.id).await.unwrap().expect("it is written again");
    assert_eq!(record.stage.state, JobState::Done);
}

/// Rule S3: the client has seen the first end, so the job must not end again elsewhere.
#[tokio::test(start_paused = true)]
async fn a_job_whose_lost_end_another_instance_does_not_know_ends_once() {
    let (one, two) = two().await;
    let node = Node::works(&one, "a", 1, 10).await;
    let before = one.store.snapshot();
    let seen = one.translate(job(1, "zh:en")).await;
    one.store.roll_back(&before, LostWrites::Jobs);
    let again = job_with(1, "zh:en", |spec| spec.wait_ms = Some(20_000));
    assert!(!two.engine.submit(again).await.unwrap().existed, "it is forgotten");
    // The second instance waits until the node has reported; the first writes the end meanwhile.
    let ended = two.ended(seen.id).await.progress.ended;
    assert_eq!(ended, seen.progress.ended);
    pass(20_000).await;
    assert_eq!((node.done(), two.engine.open_jobs()), (1, 0));
}

/// Rule S3: the first request's end may have been seen, so the second must not get another one.
#[tokio::test(start_paused = true)]
async fn a_job_submitted_again_after_its_end_was_lost_ends_once() {
    let world = World::new();
    let node = Node::works(&world, "a", 1, 10).await;
    let before = world.store.snapshot();
    let seen = world.translate(job(1, "zh:en")).await;
    world.store.roll_back(&before, LostWrites::Jobs);
    assert!(world.engine.submit(job(1, "zh:en")).await.unwrap().existed, "it has ended");
    assert_eq!(world.ended(seen.id).await.progress.ended, seen.progress.ended);
    pass(20_000).await;
    assert_eq!((node.done(), world.engine.open_jobs()), (1, 0));
}

/// Rule S5: an attempt that began after the lost end must not keep the job open.
#[tokio::test(start_paused = true)]
async fn a_job_whose_lost_end_is_of_an_earlier_attempt_does_not_stay_open() {
    let world = World::new();
    let _node = Node::works(&world, "a", 1, 10).await;
    let before = world.store.snapshot();
    let seen = world.translate(job(1, "zh:en")).await;
    let JobRecord { id, owner, spec, deadline_ms, recoverable, .. } =
        world.store.job(seen.id).await.unwrap().expect("it is on record");
    world.store.roll_back(&before, LostWrites::Jobs);
    // Another instance took it for open, began the second attempt, and died.
    let new = NewJob { id, owner: owner.clone(), spec, deadline_ms, recoverable, label: 0 };
    world.store.create_job(new).await.unwrap();
    let first = Stage { state: JobState::New, attempt: Attempt::FIRST };
    let second = Stage { state: JobState::Dispatched, attempt: Attempt(2) };
    let step = AdvanceRequest::new(id, owner, first, second, 1).unwrap();
    world.store.advance_job(step).await.unwrap();
    pass(1_000).await;
    let status = world.engine.job(id).await.unwrap().expect("it is on record");
    assert_eq!(status.progress.state, JobState::Done);
    assert_eq!(status.progress.ended, seen.progress.ended);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_the_store_forgot_while_it_ran_ends_all_the_same() {
    let world = World::new();
    let mut node = Node::works(&world, "a", 1, 2_000).await;
    let before = world.store.snapshot();
    let id = world.submit(job(1, "zh:en")).await;
    node.next_job().await;
    world.store.roll_back(&before, LostWrites::Jobs);
    assert_eq!(done_by(&world.ended(id).await), "a");
    let record = world.store.job(id).await.unwrap().expect("it is on record");
    assert_eq!(record.stage.state, JobState::Done);
    assert_eq!(node.done(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_handed_in_again_while_the_store_has_forgotten_it_runs_once() {
    let world = World::new();
    let mut node = Node::works(&world, "a", 2, 2_000).await;
    let before = world.store.snapshot();
    let id = world.submit(job(1, "zh:en")).await;
    node.next_job().await;
    world.store.roll_back(&before, LostWrites::Jobs);
    let again = world.engine.submit(job(1, "zh:en")).await.unwrap();
    assert!(again.existed, "it runs here");
    assert_eq!(done_by(&world.ended(id).await), "a");
    assert_eq!(node.done(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_failover_a_node_gets_nothing_until_it_has_reported() {
    let world = World::new();
    let mut node = Node::works(&world, "a", 1, 10).await;
    pass(1_000).await;
    let before = world.store.snapshot();
    world.store.roll_back(&before, LostWrites::Cells);
    pass(500).await;
    let id = world.submit(job(1, "zh:en")).await;
    pass(1_000).await;
    assert!(node.told.try_recv().is_err(), "nobody knows what it runs");
    world.engine.heartbeat(beat(&node, vec![])).await.unwrap();
    assert_eq!(done_by(&world.ended(id).await), "a");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_runs_without_a_lease_stops_and_its_job_is_retried_at_once() {
    let world = World::new();
    let mut hangs = Node::join(&world, "a", "zh en", 1, Habit::Hangs).await;
    let before = world.store.snapshot();
    let id = world.submit(job(1, "zh:en")).await;
    hangs.next_job().await;
    world.store.roll_back(&before, LostWrites::Cells);
    pass(500).await;
    let _works = Node::works(&world, "b", 1, 10).await;
    let key = LeaseKey { job: id, attempt: Attempt::FIRST };
    let told = world.engine.heartbeat(beat(&hangs, vec![key])).await.unwrap();
    assert_eq!(told.cancel, [key]);
    pass(1_000).await;
    let view = world.engine.job(id).await.unwrap().unwrap();
    assert_eq!(done_by(&view), "b", "not after a minute");
}

/// Each heartbeat renews the leases of a node's jobs: a lost release must not hold the slot for
/// ever.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_does_not_hold_the_slot_of_a_job_that_has_ended() {
    let world = World::new();
    let mut node = Node::join(&world, "a", "zh en", 1, Habit::Hangs).await;
    let id = world.submit(job(1, "zh:en")).await;
    node.next_job().await;
    let leased = world.store.snapshot();
    world.engine.cancel(id).await.unwrap();
    world.store.roll_back(&leased, LostWrites::Cells);
    assert_eq!(world.used().await, 1, "the release was lost");
    let key = LeaseKey { job: id, attempt: Attempt::FIRST };
    let told = world.engine.heartbeat(beat(&node, vec![key])).await.unwrap();
    assert_eq!((told.cancel, world.used().await), (vec![key], 0));
}

/// Parts of a store fail over each on their own: the place may be lost and the registration not.
#[tokio::test(start_paused = true)]
async fn a_node_whose_place_was_forgotten_gets_another_one() {
    let world = World::new();
    let before = world.store.snapshot();
    let node = Node::works(&world, "a", 1, 10).await;
    world.store.roll_back(&before, LostWrites::Cluster);
    assert_eq!(world.engine.set_drain(&node.id, true).await, Ok(None), "nobody finds it");
    // The first heartbeat notices, and the node's own epoch is still accepted afterwards.
    for _ in 0..2 {
        pass(1_000).await;
        world.engine.heartbeat(beat(&node, vec![])).await.expect("registered again");
    }
    let seen = world.engine.nodes().await.expect("nodes");
    assert_eq!(seen.nodes.len(), 1, "nothing is left of the earlier registration");
    assert_eq!(done_by(&world.translate(job(1, "zh:en")).await), "a");
    assert_ne!(world.engine.set_drain(&node.id, true).await, Ok(None), "it is found");
}

/// A table of an earlier version would look like the present one.
#[tokio::test(start_paused = true)]
async fn the_pool_table_does_not_go_back_with_the_store() {
    let world = World::new();
    let _a = Node::works(&world, "a", 1, 10).await;
    pass(2_000).await;
    let before = world.store.snapshot();
    let _b = Node::works(&world, "b", 1, 10).await;
    pass(2_000).await;
    let at = || world.engine.pools().map(|table| (table.term, table.version)).unwrap();
    let seen = at();
    world.store.roll_back(&before, LostWrites::Everything);
    pass(5_000).await;
    assert!(at() > seen, "{:?} after {seen:?}", at());
}

/// The clocks of two instances may be an hour apart; the store's clock tells the age of a job.
#[tokio::test(start_paused = true)]
async fn a_job_taken_over_by_a_wrong_clock_keeps_its_deadline() {
    use lingua_engine::TokioTimer;
    for wrong_ms in [1_800_003_600_000, 1_799_996_400_000] {
        let first = World::new();
        let request = job_with(1, "zh:en", |s| {
            s.deadline_ms = Some(30_000);
            s.wait_ms = Some(30_000);
        });
        let mut node = Node::join(&first, "a", "zh en", 1, Habit::Hangs).await;
        let id = first.submit(request).await;
        node.next_job().await;
        let store = first.store.clone();
        first.kill();
        pass(9_500).await;
        let timer = TokioTimer::starting_at(wrong_ms);
        let second = World::over(store, timer, "instance-2", |_| {});
        pass(2_000).await;
        let _node = Node::works(&second, "b", 1, 10).await;
        assert_eq!(done_by(&second.ended(id).await), "b");
    }
}
