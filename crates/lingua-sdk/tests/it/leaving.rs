//! Draining on the order of the scheduler, and stopping.

use std::time::Duration;

use lingua_sdk::Output;

use crate::bounded;
use crate::scheduler::{NEVER_MS, Report, Scheduler, fail, heartbeat_ack, job};
use crate::worker::{connected, options, start};

#[tokio::test]
async fn a_draining_node_finishes_its_jobs_and_accepts_no_more() {
    bounded(async {
        let (_scheduler, mut node, mut peer) = connected(|options| options).await;
        peer.ack = Some(heartbeat_ack(&[], true));
        peer.assign_acked(job(1), 1).await;
        peer.drain().await;
        assert_eq!(peer.heartbeat().await["health"], "draining");
        peer.assign(job(2), 2).await;
        assert_eq!(peer.next().await, fail(job(2), "BUSY"));
        let work = node.work().await;
        assert!(!work.context.is_cancelled());
        work.end(Ok(Output::default()));
        peer.done(job(1)).await;
        // The acknowledgement of a heartbeat ends the order.
        peer.send(heartbeat_ack(&[], false)).await;
        peer.ack = Some(heartbeat_ack(&[], false));
        assert_eq!(peer.heartbeat().await["health"], "ready");
        peer.assign_acked(job(3), 3).await;
    })
    .await;
}

#[tokio::test]
async fn the_scheduler_repeats_an_order_to_drain_after_a_reconnect() {
    bounded(async {
        let (scheduler, _node, mut peer) = connected(|options| options).await;
        peer.ack = Some(heartbeat_ack(&[], true));
        peer.drain().await;
        assert_eq!(peer.heartbeat().await["health"], "draining");
        drop(peer);
        let mut peer = scheduler.accept().await;
        peer.ack = Some(heartbeat_ack(&[], true));
        assert_eq!(peer.register(2, NEVER_MS).await["health"], "ready");
        // The scheduler repeats the order when it acknowledges the first heartbeat.
        assert_eq!(peer.heartbeat().await["health"], "ready");
        assert_eq!(peer.heartbeat().await["health"], "draining");
        peer.assign(job(1), 1).await;
        assert_eq!(peer.next().await, fail(job(1), "BUSY"));
    })
    .await;
}

#[tokio::test]
async fn a_stopping_node_says_bye_after_its_results_are_confirmed() {
    bounded(async {
        let (_scheduler, mut node, mut peer) = connected(|options| options).await;
        peer.assign_acked(job(1), 1).await;
        let work = node.work().await;
        node.stop();
        assert_eq!(peer.heartbeat().await["health"], "draining");
        peer.assign(job(2), 2).await;
        assert_eq!(peer.next().await, fail(job(2), "BUSY"));
        work.end(Ok(Output::default()));
        peer.done(job(1)).await;
        peer.confirm(job(1)).await;
        assert_eq!(peer.next().await, Report::Bye);
        assert_eq!(peer.next().await, Report::Closed);
        drop(peer);
        node.ended().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn an_idle_node_stops_at_once() {
    bounded(async {
        let (_scheduler, mut node, mut peer) = connected(|options| options).await;
        peer.sync().await;
        node.stop();
        assert_eq!(peer.next().await, Report::Bye);
        drop(peer);
        node.ended().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_node_that_is_not_connected_stops_at_once() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let far = Duration::from_secs(3600);
        let mut node = start(options(&scheduler).backoff(far, far));
        drop(scheduler.listener.accept().await.unwrap());
        node.stop();
        node.ended().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_stopping_node_cancels_jobs_that_outlast_its_grace() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let short = Duration::from_millis(10);
        let mut node = start(options(&scheduler).grace(short).cancel_grace(short));
        let mut peer = scheduler.accept_registered(1).await;
        peer.assign_acked(job(1), 1).await;
        let work = node.work().await;
        node.stop();
        assert_eq!(peer.next().await, Report::Bye);
        drop(peer);
        work.context.cancelled().await;
        work.dropped().await;
        node.ended().await.unwrap();
    })
    .await;
}
