//! What becomes of jobs when nodes do this or that.

use std::time::Duration;

use lingua_core::Attempt;
use lingua_core::job::JobState;
use lingua_engine::handle::Waited;
use lingua_engine::node::ToNode;

use crate::world::{Habit, Node, World, done_by, error_of, job, job_with};

#[tokio::test(start_paused = true)]
async fn a_job_goes_to_a_node_and_its_result_comes_back() {
    let world = World::new();
    let node = Node::works(&world, "a", 2, 300).await;
    let view = world.translate(job(1, "zh:en")).await;
    assert_eq!(done_by(&view), "a");
    let ended = view.progress.ended.expect("it ended");
    assert_eq!(ended.result.as_ref().map(|result| result.as_str()), Some("{\"by\":\"a\"}"));
    assert_eq!(ended.ended_ms - ended.accepted_ms, 300);
    assert_eq!(ended.attempts.len(), 1);
    assert!(ended.attempts[0].acked_ms.is_some());
    assert_eq!(world.used().await, 0, "its slot was given back");
    let read_back = world.engine.job(view.id).await.unwrap().unwrap();
    assert_eq!(read_back.progress.ended, Some(ended), "the record says the same");
    node.check();
}

#[tokio::test(start_paused = true)]
async fn an_ack_timeout_is_retried_on_another_node() {
    let world = World::new();
    let mut silent = Node::join(&world, "silent", "zh en", 4, Habit::Silent).await;
    let id = world.submit(job(1, "zh:en")).await;
    silent.next_job().await;
    Node::works(&world, "works", 1, 10).await;
    let view = world.ended(id).await;
    assert_eq!(done_by(&view), "works");
    let ended = view.progress.ended.unwrap();
    assert_eq!(ended.attempts[0].reason.as_deref(), Some("ack_timeout"));
    assert_eq!(ended.ended_ms - ended.accepted_ms, 5_010);
    let told = silent.told.recv().await.unwrap();
    assert!(matches!(told, ToNode::Cancel { key, .. } if key.attempt.0 == 1), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_hangs_is_given_up_after_the_run_timeout() {
    let world = World::new();
    let mut hangs = Node::join(&world, "hangs", "zh en", 4, Habit::Hangs).await;
    let id = world.submit(job(1, "zh:en")).await;
    hangs.next_job().await;
    Node::works(&world, "works", 1, 10).await;
    let view = world.ended(id).await;
    assert_eq!(done_by(&view), "works");
    let ended = view.progress.ended.unwrap();
    assert_eq!(ended.attempts[0].reason.as_deref(), Some("run_timeout"));
    assert_eq!(ended.ended_ms - ended.accepted_ms, 60_010);
}

#[tokio::test(start_paused = true)]
async fn a_lost_node_is_replaced_at_once_and_its_late_result_is_refused() {
    let world = World::new();
    let mut first = Node::join(&world, "first", "zh en", 1, Habit::Hangs).await;
    let id = world.submit(job(1, "zh:en")).await;
    first.next_job().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let second = Node::works(&world, "second", 1, 100).await;
    first.dies(&world).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let late = world.engine.done(id, first.report(1), "{}".to_owned(), true).await.unwrap_err();
    assert_eq!(late.code(), "STALE_ATTEMPT");
    let view = world.ended(id).await;
    assert_eq!(done_by(&view), "second");
    let ended = view.progress.ended.unwrap();
    assert_eq!(ended.ended_ms - ended.accepted_ms, 150, "no timeout was waited for");
    let after_the_end = world.engine.done(id, first.report(1), "{}".to_owned(), true).await;
    assert_eq!(after_the_end.unwrap_err().code(), "STALE_ATTEMPT");
    second.check();
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_done_changes_nothing() {
    let world = World::new();
    let node = Node::works(&world, "a", 1, 10).await;
    let view = world.translate(job(1, "zh:en")).await;
    let id = world.submit(job(2, "zh:en")).await;
    world.engine.wait_sent(id, 1_000).await.unwrap();
    let twice = world.engine.done(view.id, node.report(1), "{}".to_owned(), true).await;
    assert_eq!(twice.unwrap_err().code(), "STALE_ATTEMPT");
    assert_eq!(world.used().await, 1, "the other job keeps its slot");
    assert_eq!(done_by(&world.ended(id).await), "a");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_retried_elsewhere_unless_it_is_final() {
    let world = World::new();
    let bad = Node::join(&world, "bad", "zh en", 4, Habit::Fails { retryable: true }).await;
    let id = world.submit(job_with(1, "zh:en", |s| s.preferred = Some(bad.id.clone()))).await;
    Node::works(&world, "good", 1, 10).await;
    assert_eq!(done_by(&world.ended(id).await), "good");
    bad.dies(&world).await;

    let fatal = Node::join(&world, "fatal", "ja en", 4, Habit::Fails { retryable: false }).await;
    let view = world.translate(job(2, "ja:en")).await;
    assert_eq!(error_of(&view), "NODE_FAILED");
    let ended = view.progress.ended.unwrap();
    assert_eq!(ended.attempts.len(), 1);
    assert_eq!(ended.detail.as_deref(), Some("MODEL_LOAD_FAILED"));
    drop(fatal);
}

#[tokio::test(start_paused = true)]
async fn after_two_retries_a_job_fails_and_holds_nothing() {
    let world = World::new();
    for name in ["a", "b", "c", "d"] {
        Node::join(&world, name, "zh en", 4, Habit::Fails { retryable: true }).await;
    }
    let view = world.translate(job(1, "zh:en")).await;
    assert_eq!(error_of(&view), "ALL_CANDIDATES_FULL_OR_FAILED");
    let ended = view.progress.ended.unwrap();
    let mut nodes: Vec<_> = ended.attempts.iter().map(|t| t.node.clone()).collect();
    nodes.sort();
    nodes.dedup();
    assert_eq!((ended.attempts.len(), nodes.len()), (3, 3), "each try on another node");
    assert_eq!(world.used().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_busy_node_is_no_failure_of_the_job() {
    let world = World::new();
    for name in ["a", "b", "c", "d"] {
        Node::join(&world, name, "zh en", 4, Habit::Busy).await;
    }
    Node::works(&world, "free", 4, 10).await;
    let view = world.translate(job(1, "zh:en")).await;
    assert_eq!(done_by(&view), "free");
}

#[tokio::test(start_paused = true)]
async fn a_single_node_may_try_again_what_it_failed() {
    let world = World::new();
    Node::join(&world, "only", "zh en", 1, Habit::Fails { retryable: true }).await;
    let view = world.translate(job(1, "zh:en")).await;
    assert_eq!(view.progress.ended.unwrap().attempts.len(), 3, "better the same node than none");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_job_ends_as_cancelled_wherever_it_stands() {
    let world = World::with(|options| options.times.run_ms = 600_000);
    let mut node = Node::join(&world, "a", "zh en", 1, Habit::Hangs).await;
    let running = world.submit(job(1, "zh:en")).await;
    node.next_job().await;
    let waiting = world.submit(job_with(2, "zh:en", |s| s.wait_ms = Some(60_000))).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    for id in [waiting, running] {
        let view = world.engine.cancel(id).await.unwrap().unwrap();
        assert_eq!(view.progress.state, JobState::Cancelled);
        let again = world.engine.cancel(id).await.unwrap().unwrap();
        assert_eq!(again.progress.state, JobState::Cancelled);
    }
    assert!(matches!(node.told.recv().await.unwrap(), ToNode::Cancel { .. }));
    assert_eq!(world.used().await, 0);
    assert!(world.engine.cancel(lingua_core::JobId::new(99)).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_job_that_runs_or_waits() {
    let world = World::new();
    let mut node = Node::join(&world, "a", "zh en", 1, Habit::Hangs).await;
    let running = world.submit(job_with(1, "zh:en", |s| s.deadline_ms = Some(7_000))).await;
    node.next_job().await;
    let waiting = job_with(2, "zh:en", |s| {
        s.deadline_ms = Some(1_000);
        s.wait_ms = Some(60_000);
    });
    let waiting = world.submit(waiting).await;
    for (id, after_ms) in [(waiting, 1_000), (running, 7_000)] {
        let view = world.ended(id).await;
        assert_eq!(error_of(&view), "DEADLINE_EXCEEDED");
        let ended = view.progress.ended.unwrap();
        assert_eq!(ended.ended_ms - ended.accepted_ms, after_ms);
    }
    assert_eq!(world.used().await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_unserved_pair_fails_at_once_and_says_what_is_missing() {
    let world = World::new();
    Node::works(&world, "a", 1, 10).await;
    let view = world.translate(job(1, "ko:en")).await;
    assert_eq!(error_of(&view), "NO_CAPABLE_NODE");
    let ended = view.progress.ended.unwrap();
    assert!(ended.detail.as_deref().unwrap().contains("asr(ko) missing"), "{ended:?}");
    assert_eq!(ended.ended_ms, ended.accepted_ms, "there is nothing to wait for");
}

#[tokio::test(start_paused = true)]
async fn the_same_id_is_the_same_job() {
    let world = World::new();
    let node = Node::works(&world, "a", 1, 10).await;
    assert!(!world.engine.submit(job(1, "zh:en")).await.unwrap().existed);
    assert!(world.engine.submit(job(1, "zh:en")).await.unwrap().existed);
    world.ended(lingua_core::JobId::new(1)).await;
    assert!(world.engine.submit(job(1, "zh:en")).await.unwrap().existed);
    assert_eq!(node.done(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_result_too_large_to_be_kept_is_delivered_and_the_job_still_ends() {
    let world = World::new();
    let mut node = Node::join(&world, "a", "zh en", 1, Habit::Hangs).await;
    let id = world.submit(job(1, "zh:en")).await;
    node.next_job().await;
    let huge = format!("{{\"audio\":\"{}\"}}", "x".repeat(2_000_000));
    let waiting = world.ended(id);
    let done = world.engine.done(id, node.report(1), huge.clone(), true);
    let (view, done) = tokio::join!(waiting, done);
    done.unwrap();
    assert_eq!(view.progress.ended.unwrap().result, Some(huge.into()));
    tokio::time::sleep(Duration::from_millis(10)).await;
    let kept = world.engine.job(id).await.unwrap().unwrap();
    assert_eq!(kept.progress.state, JobState::Done);
    let ended = kept.progress.ended.unwrap();
    assert!(ended.result.is_none() && ended.detail.as_deref().unwrap().contains("too many"));
    assert_eq!(world.used().await, 0);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_dispatch_gives_the_node() {
    let world = World::new();
    Node::works(&world, "a", 1, 500).await;
    let id = world.submit(job(1, "zh:en")).await;
    let Waited::Reached(view) = world.engine.wait_sent(id, 2_000).await.unwrap() else {
        panic!("not sent")
    };
    assert_eq!(view.progress.node.unwrap().as_str(), "a");
    assert!(matches!(world.engine.wait_ended(id, 100).await.unwrap(), Waited::NotYet(_)));
    let nobody = world.engine.wait_ended(lingua_core::JobId::new(9), 10).await.unwrap();
    assert!(matches!(nobody, Waited::NoSuchJob));
}

/// A process that was paused while it wrote "sent" must not send under a lease that has ended.
#[tokio::test(start_paused = true)]
async fn a_job_is_not_sent_after_its_ack_lease_has_ended() {
    let world = World::new();
    let mut node = Node::works(&world, "a", 2, 10).await;
    world.store.delay_reply("advance_job", Duration::from_secs(6));
    let request = job_with(1, "zh:en", |spec| spec.wait_ms = Some(20_000));
    assert_eq!(done_by(&world.translate(request).await), "a");
    assert_eq!(node.next_job().await.attempt, Attempt(2), "the first attempt was never sent");
}

/// Nodes fail, hang, die and come back while a thousand jobs come in: each ends once, no node ever
/// has more than its slots, and at the end nothing is held.
#[tokio::test(start_paused = true)]
async fn under_trouble_every_job_ends_once_and_nothing_is_leaked() {
    let world = World::new();
    let mut nodes = vec![];
    for n in 0..12 {
        let habit = match n {
            0 => Habit::Fails { retryable: true },
            1 => Habit::Busy,
            _ => Habit::Works { ms: 40 + 10 * n },
        };
        nodes.push(Node::join(&world, &format!("n{n}"), "zh en", 3, habit).await);
    }
    let mut ids = vec![];
    for n in 0..1_000u128 {
        ids.push(world.submit(job_with(n, "zh:en", |s| s.wait_ms = Some(20_000))).await);
        tokio::time::sleep(Duration::from_millis(3)).await;
        if n % 100 == 50 {
            let victim = &nodes[(2 + n / 100) as usize];
            victim.dies(&world).await;
            let name = victim.id.to_string();
            nodes.push(Node::works(&world, &name, 3, 50).await);
        }
    }
    let mut failed = 0;
    for id in &ids {
        let view = world.ended(*id).await;
        match view.progress.state {
            JobState::Done => {}
            // Three bad nodes in a row: it happens, and is said.
            JobState::Failed => {
                assert_eq!(error_of(&view), "ALL_CANDIDATES_FULL_OR_FAILED");
                failed += 1;
            }
            other => panic!("{id} ended as {other}"),
        }
    }
    assert!(failed < 20, "{failed} of 1000 jobs failed");
    nodes.iter().for_each(Node::check);
    assert_eq!(world.used().await, 0);
    assert_eq!(world.engine.open_jobs(), 0);
}
