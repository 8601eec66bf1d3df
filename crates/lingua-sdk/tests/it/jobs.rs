//! Jobs: taken, refused, done, failed, cancelled.

use std::time::Duration;

use lingua_sdk::{Failure, Output};
use lingua_wire::scheduler::HeartbeatAck;

use crate::bounded;
use crate::scheduler::{Said, Scheduler, fail, job};
use crate::worker::{options, start};

#[tokio::test]
async fn a_job_is_acknowledged_before_it_is_done() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler));
        let mut peer = scheduler.accept_registered(1).await;
        peer.assign(job(1), 10).await;
        assert_eq!(peer.next().await, Said::Ack(job(1)));
        let work = node.work().await;
        assert_eq!(work.job.text.as_deref(), Some("hello"));
        assert_eq!((work.job.session_id.as_str(), work.job.deadline_ms), ("room-1", Some(5000)));
        assert_eq!(node.stats.running(), 1);
        work.context.partial("he");
        work.context.partial("hel");
        work.end(Ok(Output::translated("你好").with_asr("hello").with_extra("model", "m1")));
        assert_eq!(peer.next().await, Said::Partial(job(1), "he".to_owned()));
        assert_eq!(peer.next().await, Said::Partial(job(1), "hel".to_owned()));
        let (result, audio) = peer.done(job(1)).await;
        assert_eq!(result, r#"{"model":"m1","text_asr":"hello","text_translated":"你好"}"#);
        assert_eq!(audio, None);
        assert_eq!((node.stats.running(), node.stats.done()), (0, 1));
    })
    .await;
}

#[tokio::test]
async fn a_node_without_room_answers_busy() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler).slots(2));
        let mut peer = scheduler.accept_registered(1).await;
        for number in 1..=2 {
            peer.assign(job(number), number as u64).await;
            assert_eq!(peer.next().await, Said::Ack(job(number)));
        }
        peer.assign(job(3), 3).await;
        assert_eq!(peer.next().await, fail(job(3), "BUSY"));
        node.work().await.end(Ok(Output::translated("one")));
        assert!(matches!(peer.next().await, Said::Done { .. }));
        peer.assign(job(4), 4).await;
        assert_eq!(peer.next().await, Said::Ack(job(4)));
        assert_eq!((node.stats.most_at_once(), node.stats.refused()), (2, 1));
    })
    .await;
}

#[tokio::test]
async fn an_old_order_is_refused_until_a_new_epoch_begins() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let _node = start(options(&scheduler).slots(8));
        let mut peer = scheduler.accept_registered(1).await;
        peer.assign(job(1), 10).await;
        assert_eq!(peer.next().await, Said::Ack(job(1)));
        for old in [9, 10] {
            peer.assign(job(2), old).await;
            assert_eq!(peer.next().await, fail(job(2), "STALE_FENCE"));
        }
        // The same order twice is no old one: to refuse it would end what runs.
        peer.assign(job(1), 10).await;
        assert_eq!(peer.next().await, Said::Ack(job(1)));
        drop(peer);
        let mut peer = scheduler.accept_registered(2).await;
        peer.assign(job(3), 5).await;
        assert_eq!(peer.next().await, Said::Ack(job(3)));
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_job_reaches_its_handler() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler));
        let mut peer = scheduler.accept_registered(1).await;
        peer.assign(job(1), 1).await;
        assert_eq!(peer.next().await, Said::Ack(job(1)));
        let work = node.work().await;
        assert!(!work.context.is_cancelled());
        peer.cancel(job(1), "the client left").await;
        assert_eq!(&*work.context.cancelled().await, "the client left");
        work.end(Err(Failure::permanent("STOPPED")));
        let stopped = Said::Fail { job: job(1), reason: "STOPPED".to_owned(), retryable: false };
        assert_eq!(peer.next().await, stopped);
        assert_eq!(node.stats.failed(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_job_that_a_heartbeat_names_is_cancelled() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler));
        let mut peer = scheduler.accept().await;
        peer.register(1, 500).await;
        peer.assign(job(1), 1).await;
        assert_eq!(peer.next().await, Said::Ack(job(1)));
        let work = node.work().await;
        peer.ack = Some(HeartbeatAck { cancel: vec![job(1)], drain: false });
        assert_eq!(peer.heartbeat().await.running, Some(vec![job(1)]));
        work.context.cancelled().await;
    })
    .await;
}

#[tokio::test]
async fn a_handler_that_ignores_its_cancellation_is_dropped() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler).cancel_grace(Duration::from_millis(1)));
        let mut peer = scheduler.accept_registered(1).await;
        peer.assign(job(1), 1).await;
        assert_eq!(peer.next().await, Said::Ack(job(1)));
        let work = node.work().await;
        peer.cancel(job(1), "too late").await;
        work.dropped().await;
        let cancelled =
            Said::Fail { job: job(1), reason: "CANCELLED".to_owned(), retryable: false };
        assert_eq!(peer.next().await, cancelled);
        assert_eq!(node.stats.running(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_handler_that_panics_gives_its_slot_back() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler).slots(1));
        let mut peer = scheduler.accept_registered(1).await;
        peer.assign(job(1), 1).await;
        assert_eq!(peer.next().await, Said::Ack(job(1)));
        drop(node.work().await);
        assert_eq!(peer.next().await, fail(job(1), Failure::PANICKED));
        peer.assign(job(2), 2).await;
        assert_eq!(peer.next().await, Said::Ack(job(2)));
    })
    .await;
}
