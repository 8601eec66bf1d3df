//! The partial texts of a node, for clients that watch.

use std::time::Duration;

use lingua_core::JobId;
use lingua_engine::events::EngineEvent;
use lingua_engine::handle::PARTIAL_BYTES_MAX;

use crate::world::{Habit, Node, World, done_by, error_of, job};

async fn partial_of(world: &World, id: JobId) -> Option<String> {
    settle().await;
    let view = world.engine.job(id).await.expect("a reply").expect("a job");
    view.progress.partial.as_deref().map(str::to_owned)
}

/// Lets everybody hear what was said to them.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn the_latest_text_of_a_live_job_is_shown_and_goes_with_its_end() {
    let world = World::new();
    let mut events = world.engine.events();
    let mut node = Node::join(&world, "a", "zh en", 1, Habit::Hangs).await;
    let id = world.submit(job(1, "zh:en")).await;
    node.next_job().await;
    assert_eq!(partial_of(&world, id).await, None);
    for text in ["ni", "ni hao"] {
        assert!(world.engine.partial(id, node.report(1), text));
    }
    assert_eq!(partial_of(&world, id).await.as_deref(), Some("ni hao"));
    world.engine.done(id, node.report(1), "{}".to_owned(), true).await.expect("heard");
    let view = world.ended(id).await;
    assert_eq!((done_by(&view), view.progress.partial), ("a".to_owned(), None));
    assert!(!world.engine.partial(id, node.report(1), "too late"));
    settle().await;

    let mut told = vec![];
    while let Ok(event) = events.try_recv() {
        match event {
            EngineEvent::Job { job, state, text, .. } if job == id => {
                told.push(text.map_or(state.to_string(), |text| text.to_string()));
            }
            _ => {}
        }
    }
    assert_eq!(told, ["DISPATCHED", "ACKED", "ni", "ni hao", "DONE"]);
}

#[tokio::test(start_paused = true)]
async fn a_stale_attempt_or_another_node_is_not_heard() {
    let world = World::new();
    let mut first = Node::join(&world, "first", "zh en", 1, Habit::Hangs).await;
    let id = world.submit(job(1, "zh:en")).await;
    first.next_job().await;
    world.engine.partial(id, first.report(1), "first");
    assert_eq!(partial_of(&world, id).await.as_deref(), Some("first"));
    let mut second = Node::join(&world, "second", "zh en", 1, Habit::Hangs).await;
    let other = world.submit(job(2, "zh:en")).await;
    assert_eq!(second.next_job().await.job, other);
    first.dies(&world).await;
    assert_eq!(partial_of(&world, id).await, None, "it went with its attempt");
    world.engine.partial(id, first.report(1), "from the grave");
    assert_eq!(partial_of(&world, id).await, None, "the job looks for another node");

    world.engine.done(other, second.report(1), "{}".to_owned(), true).await.expect("heard");
    let again = second.next_job().await;
    assert_eq!((again.job, again.attempt.0), (id, 2));
    for report in [first.report(1), first.report(2), second.report(1)] {
        world.engine.partial(id, report, "stale");
    }
    assert_eq!(partial_of(&world, id).await, None);
    world.engine.partial(id, second.report(2), "second");
    assert_eq!(partial_of(&world, id).await.as_deref(), Some("second"));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_talks_without_end_does_not_stop_the_clock() {
    let world = World::with(|options| options.max_retry = 0);
    let mut node = Node::join(&world, "a", "zh en", 1, Habit::Hangs).await;
    let id = world.submit(job(1, "zh:en")).await;
    node.next_job().await;
    let (engine, report) = (world.engine.clone(), node.report(1));
    let talking = tokio::spawn(async move {
        loop {
            while engine.partial(id, report.clone(), "and") {}
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let view = world.ended(id).await;
    talking.abort();
    assert_eq!(error_of(&view), "ALL_CANDIDATES_FULL_OR_FAILED");
}

#[tokio::test(start_paused = true)]
async fn a_long_text_is_cut_between_characters_and_a_flood_is_dropped() {
    let world = World::with(|options| options.bounds.job_inbox_max = 4);
    let mut node = Node::join(&world, "a", "zh en", 1, Habit::Hangs).await;
    let id = world.submit(job(1, "zh:en")).await;
    node.next_job().await;
    settle().await;
    let long = "语".repeat(PARTIAL_BYTES_MAX);
    let taken = (0..100).filter(|_| world.engine.partial(id, node.report(1), &long)).count();
    assert_eq!(taken, 4, "nobody had the time to listen");
    let shown = partial_of(&world, id).await.expect("a text");
    assert!(shown.len() > PARTIAL_BYTES_MAX - 3 && shown.len() <= PARTIAL_BYTES_MAX);
}
