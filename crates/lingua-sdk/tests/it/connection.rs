//! Connections: made, lost, made again, and those that end for good.

use std::time::Duration;

use lingua_core::{Health, Service, ServiceSet};
use lingua_sdk::node::Error;
use lingua_sdk::{NodeOptions, Output};
use lingua_wire::ErrorCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message as Frame;

use crate::bounded;
use crate::scheduler::{NEVER_MS, Said, Scheduler, job};
use crate::worker::{options, start};

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
        assert_eq!(first.node_id, None);
        let parts = first.into_parts().unwrap();
        assert_eq!((parts.health, parts.version.as_deref()), (Health::Degraded, Some("7.1")));
        assert_eq!(parts.profile.slots_max(), 3);
        assert!(!parts.profile.capabilities().services().contains(Service::Tts));
        drop(peer);
        // The name that the scheduler made up is kept.
        let again = scheduler.accept().await.register(2, NEVER_MS).await;
        assert_eq!(again.node_id.unwrap().as_str(), "node-0000CAFE");
    })
    .await;
}

#[tokio::test]
async fn heartbeats_list_what_runs() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler));
        let mut peer = scheduler.accept().await;
        peer.register(7, 500).await;
        let idle = peer.heartbeat().await;
        assert_eq!(idle.node_id.unwrap().as_str(), "node-1");
        assert_eq!(idle.epoch.unwrap().0, 7);
        assert_eq!((idle.health, idle.running), (Some(Health::Ready), Some(vec![])));
        peer.assign(job(1), 1).await;
        assert_eq!(peer.next().await, Said::Ack(job(1)));
        assert_eq!(peer.heartbeat().await.running, Some(vec![job(1)]));
        node.work().await.end(Ok(Output::default()));
        peer.done(job(1)).await;
        assert_eq!(peer.heartbeat().await.running, Some(vec![]));
    })
    .await;
}

#[tokio::test]
async fn a_result_is_sent_again_until_it_is_confirmed_and_not_after() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler));
        let mut peer = scheduler.accept_registered(1).await;
        peer.assign(job(1), 1).await;
        node.work().await.end(Ok(Output::translated("one")));
        assert_eq!(peer.next().await, Said::Ack(job(1)));
        let (first, _) = peer.done(job(1)).await;
        drop(peer);
        let mut peer = scheduler.accept_registered(2).await;
        assert_eq!(peer.done(job(1)).await.0, first);
        drop(peer);
        let mut peer = scheduler.accept_registered(3).await;
        assert_eq!(peer.done(job(1)).await.0, first);
        peer.confirm(job(1)).await;
        peer.settle().await;
        drop(peer);
        let mut peer = scheduler.accept_registered(4).await;
        peer.assign(job(3), 1).await;
        assert_eq!(peer.next().await, Said::Ack(job(3)));
        assert_eq!((node.stats.reconnects(), node.stats.done()), (3, 1));
    })
    .await;
}

#[tokio::test]
async fn a_job_goes_on_while_the_connection_is_gone() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler));
        let mut peer = scheduler.accept_registered(1).await;
        peer.assign(job(1), 1).await;
        let work = node.work().await;
        drop(peer);
        let mut peer = scheduler.accept().await;
        work.end(Ok(Output::translated("late")));
        peer.register(2, NEVER_MS).await;
        assert!(peer.done(job(1)).await.0.contains("late"));
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
        peer.assign(job(1), 1).await;
        assert_eq!(peer.next().await, Said::Ack(job(1)));
        // It never was registered before.
        assert_eq!(node.stats.reconnects(), 0);
        assert!(node.stats.is_connected());
    })
    .await;
}

#[tokio::test]
async fn a_silent_scheduler_is_left() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let _node = start(options(&scheduler));
        let mut silent = scheduler.accept().await;
        silent.ack = None;
        silent.register(1, 20).await;
        let mut peer = scheduler.accept().await;
        peer.register(2, NEVER_MS).await;
        assert_eq!(silent.next().await, Said::Closed);
    })
    .await;
}

#[tokio::test]
async fn pings_are_answered_and_unknown_messages_passed_over() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let _node = start(options(&scheduler));
        let mut peer = scheduler.accept_registered(1).await;
        peer.settle().await;
        for odd in [r#"{"type":"from_the_future","x":1}"#, "no json", r#"{"type":"job_assign"}"#] {
            peer.send(Frame::text(odd)).await;
        }
        peer.send(Frame::binary(vec![0; 10])).await;
        peer.assign(job(1), 1).await;
        assert_eq!(peer.next().await, Said::Ack(job(1)));
    })
    .await;
}

#[tokio::test]
async fn a_node_whose_name_was_taken_stops() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler));
        let mut peer = scheduler.accept_registered(1).await;
        peer.assign(job(1), 1).await;
        let work = node.work().await;
        peer.error(ErrorCode::StaleEpoch, true).await;
        work.context.cancelled().await;
        work.end(Ok(Output::default()));
        let error = node.ended().await.unwrap_err();
        assert_eq!(error.code(), "STALE_EPOCH");
        assert!(error.to_string().contains("node-1"), "{error}");
        assert!(matches!(error, Error::TakenOver { .. }));
    })
    .await;
}

#[tokio::test]
async fn other_fatal_errors_are_survived() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let node = start(options(&scheduler));
        scheduler.accept_registered(1).await.error(ErrorCode::SchedulerDependencyDown, true).await;
        let mut peer = scheduler.accept().await;
        let Said::Register(_) = peer.next().await else { panic!("no registration") };
        peer.error(ErrorCode::SchedulerDependencyDown, true).await;
        let mut peer = scheduler.accept_registered(2).await;
        peer.assign(job(1), 1).await;
        assert_eq!(peer.next().await, Said::Ack(job(1)));
        assert_eq!(node.stats.reconnects(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_node_that_was_forgotten_registers_again() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let node = start(options(&scheduler));
        let mut peer = scheduler.accept_registered(1).await;
        peer.error(ErrorCode::StaleAttempt, false).await;
        peer.settle().await;
        peer.error(ErrorCode::NodeNotRegistered, false).await;
        let mut peer = scheduler.accept_registered(2).await;
        peer.settle().await;
        assert_eq!(node.stats.reconnects(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_refused_registration_stops_the_node() {
    bounded(async {
        for code in [ErrorCode::Unauthorized, ErrorCode::Forbidden, ErrorCode::InvalidLanguage] {
            let scheduler = Scheduler::start().await;
            let node = start(options(&scheduler));
            let mut peer = scheduler.accept().await;
            assert!(matches!(peer.next().await, Said::Register(_)));
            peer.error(code, true).await;
            assert_eq!(node.ended().await.unwrap_err().code(), code.as_str());
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
async fn options_that_no_scheduler_would_take_are_refused_at_once() {
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
