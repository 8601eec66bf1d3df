//! Connections: made, lost, made again, and those that end for good.

use std::time::Duration;

use lingua_core::{Health, Service, ServiceSet};
use lingua_sdk::NodeRunError;
use lingua_sdk::{Failure, NodeOptions, Output};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message as Frame;

use crate::bounded;
use crate::scheduler::{NEVER_MS, Report, Scheduler, fail, job, named};
use crate::worker::{connected, options, start};

#[tokio::test]
async fn the_registration_says_what_the_options_say() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let options = NodeOptions::new(scheduler.url())
            .token("secret")
            .languages(&["zh_CN", "en"], &["en"], &["zh"])
            .nmt_pairs(&[("zh", "en")])
            .services(ServiceSet::ALL.without(Service::Tts))
            .slots(3)
            .accept_public_jobs(false)
            .health(Health::Degraded)
            .version("7.1");
        let _node = start(options.backoff(Duration::from_millis(1), Duration::from_millis(2)));
        let mut peer = scheduler.accept().await;
        assert_eq!(peer.authorization.as_deref(), Some("Bearer secret"));
        let first = peer.register(1, NEVER_MS).await;
        let services =
            json!({"asr": true, "nmt": true, "tts": false, "tone": true, "semantic": true});
        let languages = json!({
            "asr_languages": ["zh_CN", "en"],
            "semantic_languages": ["en"],
            "tts_languages": ["zh"],
            "nmt_pairs": [["zh", "en"]],
        });
        let expected = json!({
            "type": "register",
            "version": "7.1",
            "health": "degraded",
            "language_capabilities": languages,
            "services": services,
            "max_concurrent_jobs": 3,
            "accept_public_jobs": false,
        });
        assert_eq!(first, expected);
        drop(peer);
        // The node keeps the id that the scheduler made up.
        let again = scheduler.accept().await.register(2, NEVER_MS).await;
        assert_eq!(again["node_id"], "node-0000CAFE");
    })
    .await;
}

/// The scheduler's store has forgotten the node, and its instance has registered it again.
#[tokio::test]
async fn a_second_registration_by_the_scheduler_changes_the_epoch_and_nothing_else() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler));
        let mut peer = scheduler.accept_registered(7).await;
        peer.assign_acked(job(1), 1).await;
        let _running = node.work().await;
        let again = json!({
            "type": "registered", "node_id": "node-1", "epoch": 9,
            "heartbeat_interval_ms": NEVER_MS, "pairs": 1,
        });
        peer.send(again).await;
        let heartbeat = peer.heartbeat().await;
        assert_eq!(
            (&heartbeat["epoch"], &heartbeat["running"]),
            (&json!(9), &json!([named(job(1))]))
        );
    })
    .await;
}

#[tokio::test]
async fn heartbeats_list_the_running_jobs() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler));
        let mut peer = scheduler.accept().await;
        peer.register(7, 500).await;
        let idle = peer.heartbeat().await;
        let expected = json!({
            "type": "heartbeat", "node_id": "node-1", "epoch": 7, "health": "ready", "running": [],
        });
        assert_eq!(idle, expected);
        peer.assign_acked(job(1), 1).await;
        assert_eq!(peer.heartbeat().await["running"], json!([named(job(1))]));
        node.work().await.end(Ok(Output::default()));
        peer.done(job(1)).await;
        assert_eq!(peer.heartbeat().await["running"], json!([]));
    })
    .await;
}

#[tokio::test]
async fn a_result_is_sent_again_until_it_is_confirmed_and_not_after() {
    bounded(async {
        let (scheduler, mut node, mut peer) = connected(|options| options).await;
        peer.assign(job(1), 1).await;
        node.work().await.end(Ok(Output::translated("one")));
        assert_eq!(peer.next().await, Report::Ack(job(1)));
        let (first, _) = peer.done(job(1)).await;
        drop(peer);
        let mut peer = scheduler.accept_registered(2).await;
        assert_eq!(peer.done(job(1)).await.0, first);
        drop(peer);
        let mut peer = scheduler.accept_registered(3).await;
        assert_eq!(peer.done(job(1)).await.0, first);
        peer.confirm(job(1)).await;
        peer.sync().await;
        drop(peer);
        let mut peer = scheduler.accept_registered(4).await;
        peer.assign_acked(job(3), 1).await;
        assert_eq!((node.stats.reconnects(), node.stats.done()), (3, 1));
    })
    .await;
}

#[tokio::test]
async fn a_failure_is_sent_again_until_it_is_confirmed_but_a_refusal_is_not() {
    bounded(async {
        let (scheduler, mut node, mut peer) = connected(|options| options.slots(1)).await;
        peer.assign_acked(job(1), 1).await;
        peer.assign(job(2), 2).await;
        assert_eq!(peer.next().await, fail(job(2), "BUSY"));
        node.work().await.end(Err(Failure::retryable("MODEL_LOAD_FAILED")));
        let failure = fail(job(1), "MODEL_LOAD_FAILED");
        assert_eq!(peer.next().await, failure);
        drop(peer);
        let mut peer = scheduler.accept_registered(2).await;
        assert_eq!(peer.next().await, failure);
        peer.sync().await;
    })
    .await;
}

#[tokio::test]
async fn a_job_goes_on_while_the_connection_is_lost() {
    bounded(async {
        let (scheduler, mut node, mut peer) = connected(|options| options).await;
        peer.assign(job(1), 1).await;
        let work = node.work().await;
        drop(peer);
        let mut peer = scheduler.accept().await;
        work.end(Ok(Output::translated("late")));
        peer.register(2, NEVER_MS).await;
        assert_eq!(peer.done(job(1)).await.0, json!({"text_translated": "late"}));
    })
    .await;
}

#[tokio::test]
async fn a_scheduler_that_drops_connections_is_tried_again() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let node = start(options(&scheduler));
        for _ in 0..5 {
            drop(scheduler.listener.accept().await.unwrap());
        }
        drop(scheduler.accept().await);
        let mut peer = scheduler.accept_registered(1).await;
        peer.assign_acked(job(1), 1).await;
        // It was never registered before.
        assert_eq!(node.stats.reconnects(), 0);
        assert!(node.stats.is_connected());
    })
    .await;
}

#[tokio::test]
async fn a_node_leaves_a_silent_scheduler() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let _node = start(options(&scheduler));
        let mut silent = scheduler.accept().await;
        silent.ack = None;
        silent.register(1, 20).await;
        let mut peer = scheduler.accept().await;
        peer.register(2, NEVER_MS).await;
        assert_eq!(silent.next().await, Report::Closed);
    })
    .await;
}

#[tokio::test]
async fn pings_are_answered_and_unknown_messages_are_ignored() {
    bounded(async {
        let (_scheduler, _node, mut peer) = connected(|options| options).await;
        peer.sync().await;
        for odd in [r#"{"type":"from_the_future","x":1}"#, "no json", r#"{"type":"job_assign"}"#] {
            peer.send_frame(Frame::text(odd)).await;
        }
        peer.send_frame(Frame::binary(vec![0; 10])).await;
        peer.assign_acked(job(1), 1).await;
    })
    .await;
}

#[tokio::test]
async fn a_node_whose_id_was_taken_over_stops() {
    bounded(async {
        let (_scheduler, mut node, mut peer) = connected(|options| options).await;
        peer.assign(job(1), 1).await;
        let work = node.work().await;
        peer.error("STALE_EPOCH", true).await;
        work.context.cancelled().await;
        work.end(Ok(Output::default()));
        let error = node.ended().await.unwrap_err();
        assert_eq!(error.code(), "STALE_EPOCH");
        assert!(error.to_string().contains("node-1"), "{error}");
        assert!(matches!(error, NodeRunError::TakenOver { .. }));
    })
    .await;
}

#[tokio::test]
async fn other_fatal_errors_are_survived() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let node = start(options(&scheduler));
        scheduler.accept_registered(1).await.error("SCHEDULER_DEPENDENCY_DOWN", true).await;
        let mut peer = scheduler.accept().await;
        let Report::Register(_) = peer.next().await else { panic!("no registration") };
        peer.error("SCHEDULER_DEPENDENCY_DOWN", true).await;
        let mut peer = scheduler.accept_registered(2).await;
        peer.assign_acked(job(1), 1).await;
        assert_eq!(node.stats.reconnects(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_node_that_the_scheduler_forgot_registers_again() {
    bounded(async {
        let (scheduler, node, mut peer) = connected(|options| options).await;
        peer.error("STALE_ATTEMPT", false).await;
        peer.sync().await;
        peer.error("NODE_NOT_REGISTERED", false).await;
        let mut peer = scheduler.accept_registered(2).await;
        peer.sync().await;
        assert_eq!(node.stats.reconnects(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_refused_registration_stops_the_node() {
    bounded(async {
        for code in ["UNAUTHORIZED", "FORBIDDEN", "INVALID_LANGUAGE"] {
            let scheduler = Scheduler::start().await;
            let node = start(options(&scheduler));
            let mut peer = scheduler.accept().await;
            assert!(matches!(peer.next().await, Report::Register(_)));
            peer.error(code, true).await;
            assert_eq!(node.ended().await.unwrap_err().code(), code);
        }
    })
    .await;
}

#[tokio::test]
async fn a_handshake_without_the_right_token_stops_the_node() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let node = start(options(&scheduler).token("wrong"));
        let (mut stream, _) = scheduler.listener.accept().await.unwrap();
        let mut request = [0; 4096];
        assert!(stream.read(&mut request).await.unwrap() > 0);
        let answer = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        let error = node.ended().await.unwrap_err();
        assert_eq!(error.code(), "UNAUTHORIZED");
        assert!(error.to_string().contains("token"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn options_that_no_scheduler_would_accept_are_refused_at_once() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let langs = ["zh", "en"];
        let good = || options(&scheduler);
        let at = |url: &str| NodeOptions::new(url).languages(&langs, &langs, &langs);
        for (options, code) in [
            (good().languages(&[], &langs, &langs), "ASR_LANGUAGES_REQUIRED"),
            (good().languages(&["??"], &langs, &langs), "INVALID_LANGUAGE"),
            (good().slots(0), "INVALID_REQUEST"),
            (good().token("line\nbreak"), "INVALID_REQUEST"),
            (at("nonsense"), "INVALID_REQUEST"),
            (at("http://127.0.0.1:1/v1/node/ws"), "INVALID_REQUEST"),
            (at("https://127.0.0.1:1/v1/node/ws"), "INVALID_REQUEST"),
        ] {
            let shown = format!("{options:?}");
            let error = start(options).ended().await.unwrap_err();
            assert_eq!(error.code(), code, "{shown}: {error}");
        }
    })
    .await;
}
