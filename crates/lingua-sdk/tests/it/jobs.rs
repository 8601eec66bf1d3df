//! Jobs: taken, refused, done, failed, cancelled.

use std::time::Duration;

use lingua_sdk::{Failure, Output};
use serde_json::json;

use crate::bounded;
use crate::scheduler::{Report, Scheduler, fail, heartbeat_ack, job, named};
use crate::worker::{connected, options, start};

#[tokio::test]
async fn a_job_is_acknowledged_before_it_is_done() {
    bounded(async {
        let (_scheduler, mut node, mut peer) = connected(|options| options).await;
        peer.assign_acked(job(1), 10).await;
        let work = node.work().await;
        assert_eq!(work.job.text.as_deref(), Some("hello"));
        assert_eq!((work.job.session_id.as_str(), work.job.deadline_ms), ("room-1", Some(5000)));
        assert_eq!(node.stats.running(), 1);
        work.context.partial("he");
        work.context.partial("hel");
        work.end(Ok(Output::translated("你好").with_asr("hello").with_extra("model", "m1")));
        assert_eq!(peer.next().await, Report::Partial(job(1), "he".to_owned()));
        assert_eq!(peer.next().await, Report::Partial(job(1), "hel".to_owned()));
        let (result, audio) = peer.done(job(1)).await;
        let expected = json!({"text_asr": "hello", "text_translated": "你好", "model": "m1"});
        assert_eq!(result, expected);
        assert_eq!(audio, None);
        assert_eq!((node.stats.running(), node.stats.done()), (0, 1));
    })
    .await;
}

#[tokio::test]
async fn a_node_without_a_free_slot_refuses_with_busy() {
    bounded(async {
        let (_scheduler, mut node, mut peer) = connected(|options| options.slots(2)).await;
        for number in 1..=2 {
            peer.assign_acked(job(number), number as u64).await;
        }
        peer.assign(job(3), 3).await;
        assert_eq!(peer.next().await, fail(job(3), "BUSY"));
        node.work().await.end(Ok(Output::translated("one")));
        assert!(matches!(peer.next().await, Report::Done { .. }));
        peer.assign_acked(job(4), 4).await;
        assert_eq!((node.stats.most_at_once(), node.stats.refused()), (2, 1));
    })
    .await;
}

#[tokio::test]
async fn an_old_fence_is_refused_until_a_new_epoch_begins() {
    bounded(async {
        let (scheduler, _node, mut peer) = connected(|options| options.slots(8)).await;
        peer.assign_acked(job(1), 10).await;
        for old in [9, 10] {
            peer.assign(job(2), old).await;
            assert_eq!(peer.next().await, fail(job(2), "STALE_FENCE"));
        }
        // The same assignment twice is not an old one: a refusal would end the attempt that runs.
        peer.assign_acked(job(1), 10).await;
        drop(peer);
        let mut peer = scheduler.accept_registered(2).await;
        peer.assign_acked(job(3), 5).await;
    })
    .await;
}

#[tokio::test]
async fn a_cancellation_reaches_the_handler() {
    bounded(async {
        let (_scheduler, mut node, mut peer) = connected(|options| options).await;
        peer.assign_acked(job(1), 1).await;
        let work = node.work().await;
        assert!(!work.context.is_cancelled());
        peer.cancel(job(1), "the client left").await;
        assert_eq!(&*work.context.cancelled().await, "the client left");
        work.end(Err(Failure::permanent("STOPPED")));
        let stopped = Report::Fail { job: job(1), reason: "STOPPED".to_owned(), retryable: false };
        assert_eq!(peer.next().await, stopped);
        assert_eq!(node.stats.failed(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_job_in_the_cancel_list_of_a_heartbeat_ack_is_cancelled() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler));
        let mut peer = scheduler.accept().await;
        peer.register(1, 500).await;
        peer.assign_acked(job(1), 1).await;
        let work = node.work().await;
        peer.ack = Some(heartbeat_ack(&[job(1)], false));
        assert_eq!(peer.heartbeat().await["running"], json!([named(job(1))]));
        work.context.cancelled().await;
    })
    .await;
}

#[tokio::test]
async fn a_handler_that_ignores_its_cancellation_is_dropped() {
    bounded(async {
        let (_scheduler, mut node, mut peer) =
            connected(|options| options.cancel_grace(Duration::from_millis(1))).await;
        peer.assign_acked(job(1), 1).await;
        let work = node.work().await;
        peer.cancel(job(1), "too late").await;
        work.dropped().await;
        let cancelled =
            Report::Fail { job: job(1), reason: "CANCELLED".to_owned(), retryable: false };
        assert_eq!(peer.next().await, cancelled);
        assert_eq!(node.stats.running(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_handler_that_panics_frees_its_slot() {
    bounded(async {
        let (_scheduler, mut node, mut peer) = connected(|options| options.slots(1)).await;
        peer.assign_acked(job(1), 1).await;
        drop(node.work().await);
        assert_eq!(peer.next().await, fail(job(1), Failure::PANICKED));
        peer.assign_acked(job(2), 2).await;
    })
    .await;
}
