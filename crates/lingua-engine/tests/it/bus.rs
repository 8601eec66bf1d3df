//! Jobs of one instance on nodes of another.

use std::sync::Arc;
use std::time::Duration;

use lingua_core::job::{JobState, Payload};
use lingua_engine::events::EngineEvent;
use lingua_engine::handle::Waited;
use lingua_engine::node::ToNode;
use lingua_engine::speech::Speech;
use lingua_store::Store as _;

use crate::world::{Habit, Node, World, done_by, job, job_with};

/// Two instances over one store, both announced.
pub(crate) async fn two() -> (World, World) {
    let one = World::new();
    let two = World::over(one.store.clone(), one.timer.clone(), "instance-2", |o| o.seed = 8);
    both_are_there(&one).await;
    (one, two)
}

async fn both_are_there(world: &World) {
    while world.store.instances().await.expect("instances").len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_of_one_runs_on_a_node_of_the_other() {
    let (one, two) = two().await;
    let mut node = Node::works(&two, "n", 1, 20).await;
    let view = one.translate(job(1, "zh:en")).await;
    assert_eq!(done_by(&view), "n");
    let ended = view.progress.ended.expect("it ended");
    assert_eq!(ended.result.as_ref().map(|r| r.as_str()), Some("{\"by\":\"n\"}"));
    assert!(ended.attempts[0].acked_ms.is_some(), "the ACK came over the bus: {ended:?}");
    assert_eq!(one.used().await, 0);
    // The node is told that its result counted.
    node.next_job().await;
    let confirmed = node.told.recv().await.expect("told");
    assert!(matches!(confirmed, ToNode::Confirmed { accepted: true, .. }), "{confirmed:?}");
}

#[tokio::test(start_paused = true)]
async fn sound_goes_along() {
    let (one, two) = two().await;
    let mut node = Node::works(&two, "n", 1, 20).await;
    let (format, data) = (Arc::from("pcm16"), "what was said".into());
    let payload = Payload::Audio { format, sample_rate: Some(16_000), data };
    let request = job_with(1, "zh:en", |s| s.payload = payload);
    one.translate(request.clone()).await;
    assert_eq!(node.next_job().await.request.spec, request.spec);
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_instance_listens_along() {
    let (one, two) = two().await;
    let mut node = Node::join(&two, "n", "zh en", 1, Habit::Hangs).await;
    let speech = Arc::new(Speech::new("pcm16".into(), 16_000));
    assert!(speech.push(["be".into()]));
    let mut request = job_with(1, "zh:en", |s| s.payload = Payload::Absent);
    request.speech = Some(Arc::clone(&speech));
    let id = one.submit(request).await;
    assert!(node.next_job().await.stream, "it gets the job with its first sound");
    assert!(speech.push(["fore".into()]));
    speech.finish();
    one.engine.audio_added(id);
    let mut heard = vec![];
    let bytes = loop {
        match node.told.recv().await.expect("told") {
            ToNode::Sound { sound, .. } => heard.extend(sound.concat()),
            ToNode::SoundEnd { bytes, .. } => break bytes,
            _ => {}
        }
    };
    assert_eq!((heard.as_slice(), bytes), (&b"before"[..], 6));
}

#[tokio::test(start_paused = true)]
async fn many_jobs_of_both_never_oversell_a_node() {
    let (one, two) = two().await;
    let nodes = [Node::works(&one, "a", 2, 30).await, Node::works(&two, "b", 3, 20).await];
    let mut ids = vec![];
    for n in 0..60 {
        let at = if n % 2 == 0 { &one } else { &two };
        let request = job_with(n, "zh:en", |s| s.wait_ms = Some(60_000));
        ids.push(at.submit(request).await);
    }
    for id in ids {
        assert_eq!(two.ended(id).await.progress.state, JobState::Done);
    }
    nodes.iter().for_each(Node::check);
    assert!(nodes.iter().all(|node| node.done() > 10), "both work for both");
    assert_eq!(one.used().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_a_failure_and_a_lost_node_come_back_over_the_bus() {
    for habit in [Habit::Busy, Habit::Fails { retryable: true }, Habit::Silent] {
        let (one, two) = two().await;
        let mut bad = Node::join(&two, "bad", "zh en", 1, habit).await;
        let good = Node::works(&two, "good", 1, 10).await;
        let request = job_with(1, "zh:en", |s| s.preferred = Some(bad.id.clone()));
        let id = one.submit(request).await;
        bad.next_job().await;
        if matches!(habit, Habit::Silent) {
            bad.dies(&two).await;
        }
        let started = tokio::time::Instant::now();
        assert_eq!(done_by(&one.ended(id).await), "good", "{habit:?}");
        assert!(started.elapsed() < Duration::from_secs(2), "no timer was waited for: {habit:?}");
        assert_eq!(good.done(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_instance_is_waited_for_no_longer_than_an_ack() {
    let (one, two) = two().await;
    let far = Node::works(&two, "far", 1, 10).await;
    two.kill();
    let mut request = job_with(1, "zh:en", |s| s.preferred = Some(far.id.clone()));
    let near = Node::works(&one, "near", 1, 10).await;
    let started = tokio::time::Instant::now();
    // It is still believed to live, so the order goes into its inbox.
    assert_eq!(done_by(&one.translate(request.clone()).await), "near");
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    // Now it is not, and its node still counts as fresh: nothing is waited for.
    tokio::time::sleep(Duration::from_secs(5)).await;
    request.id = lingua_core::JobId::new(2);
    let started = tokio::time::Instant::now();
    assert_eq!(done_by(&one.translate(request).await), "near");
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(near.done(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_moves_is_told_once_and_its_old_connection_is_over() {
    let (one, two) = two().await;
    let mut before = Node::works(&one, "n", 1, 10).await;
    let after = Node::works(&two, "n", 1, 10).await;
    let told = before.told.recv().await.expect("told");
    assert!(matches!(told, ToNode::Superseded), "{told:?}");
    assert!(after.epoch > before.epoch);
    assert_eq!(done_by(&one.translate(job(1, "zh:en")).await), "n");
    assert_eq!((before.done(), after.done()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_result_is_brought_to_the_owner_by_whoever_has_the_node_now() {
    let (one, two) = two().await;
    let mut node = Node::join(&one, "n", "zh en", 1, Habit::Hangs).await;
    let id = one.submit(job(1, "zh:en")).await;
    let assignment = node.next_job().await;
    // Another instance is given the result, and asks the owner whether it counts.
    let mut report = node.report(1);
    report.fence = Some(assignment.fence);
    two.engine.done(id, report.clone(), "{}".to_owned(), true).await.expect("it counted");
    assert_eq!(one.ended(id).await.progress.state, JobState::Done);
    let again = two.engine.done(id, report, "{}".to_owned(), true).await.unwrap_err();
    assert_eq!(again.code(), "STALE_ATTEMPT");
}

#[tokio::test(start_paused = true)]
async fn a_stale_attempt_is_refused_over_the_bus() {
    let (one, two) = two().await;
    let mut node = Node::join(&one, "n", "zh en", 1, Habit::Hangs).await;
    let id = one.submit(job(1, "zh:en")).await;
    node.next_job().await;
    let stale = two.engine.done(id, node.report(9), "{}".to_owned(), true).await.unwrap_err();
    assert_eq!(stale.code(), "STALE_ATTEMPT");
    assert_eq!(one.engine.open_jobs(), 1, "nothing was changed");
}

#[tokio::test(start_paused = true)]
async fn a_word_waits_for_the_heir_of_a_dead_owner() {
    let (one, two) = two().await;
    let mut node = Node::join(&two, "n", "zh en", 1, Habit::Hangs).await;
    let id = one.submit(job(1, "zh:en")).await;
    let assignment = node.next_job().await;
    one.kill();
    let mut report = node.report(1);
    report.fence = Some(assignment.fence);
    two.engine.done(id, report, "\"kept\"".to_owned(), true).await.expect("the heir heard it");
    let view = two.ended(id).await;
    let ended = view.progress.ended.as_ref().expect("it ended");
    assert_eq!(ended.result.as_ref().map(|r| r.as_str()), Some("\"kept\""), "{view:?}");
    assert_eq!(view.owner.as_str(), "instance-2");
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_elsewhere_sees_how_far_a_job_is() {
    let (one, two) = two().await;
    let mut node = Node::join(&one, "n", "zh en", 1, Habit::Hangs).await;
    let id = one.submit(job(1, "zh:en")).await;
    node.next_job().await;
    assert!(!two.engine.partial(id, node.report(1), "of no job from here"));
    assert!(one.engine.partial(id, node.report(1), "so far"));
    let view = match two.engine.wait_ended(id, 0).await.expect("a reply") {
        Waited::NotYet(view) => view,
        other => panic!("{other:?}"),
    };
    assert_eq!(view.progress.state, JobState::Acked, "the record says less than the owner");
    assert_eq!(view.progress.partial.as_deref(), Some("so far"));
    assert_eq!(view.progress.attempts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn partial_texts_and_events_cross_the_bus() {
    let (one, two) = two().await;
    let mut events = two.engine.events();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut node = Node::join(&two, "n", "zh en", 1, Habit::Hangs).await;
    let id = one.submit(job(1, "zh:en")).await;
    node.next_job().await;
    assert!(two.engine.partial(id, node.report(1), "so far"));
    let mut seen = vec![];
    while !seen
        .iter()
        .any(|e| matches!(e, EngineEvent::Job { text: Some(text), .. } if &**text == "so far"))
    {
        seen.push(events.recv().await.expect("an event"));
    }
    let is_sent =
        |e: &EngineEvent| matches!(e, EngineEvent::Job { state: JobState::Dispatched, .. });
    assert!(seen.iter().any(is_sent), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_is_called_off_from_anywhere_and_its_node_hears_of_it() {
    let (one, two) = two().await;
    let mut node = Node::join(&two, "n", "zh en", 1, Habit::Hangs).await;
    let id = one.submit(job(1, "zh:en")).await;
    node.next_job().await;
    let view = two.engine.cancel(id).await.expect("a reply").expect("the job");
    assert_eq!(view.progress.state, JobState::Cancelled);
    let told = node.told.recv().await.expect("told");
    assert!(matches!(told, ToNode::Cancel { key, .. } if key.job == id), "{told:?}");
    assert_eq!(one.used().await, 0);
}

#[tokio::test(start_paused = true)]
async fn one_process_says_nothing_on_the_bus() {
    let one = World::new();
    let _node = Node::works(&one, "n", 1, 5).await;
    one.translate(job(1, "zh:en")).await;
    let inbox = one.store.receive(&one.engine.options().instance, 0, 10);
    let heard = tokio::time::timeout(Duration::from_secs(1), inbox).await;
    assert!(heard.is_err(), "{heard:?}");
}
