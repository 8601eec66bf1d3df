//! Draining by order, and stopping by wish.

use std::time::Duration;

use lingua_core::Health;
use lingua_sdk::Output;
use lingua_wire::scheduler::{HeartbeatAck, SchedulerMessage};

use crate::bounded;
use crate::scheduler::{NEVER_MS, Said, Scheduler, fail, job};
use crate::worker::{options, start};

const DRAIN: HeartbeatAck = HeartbeatAck { cancel: Vec::new(), drain: true };
const RESUME: HeartbeatAck = HeartbeatAck { cancel: Vec::new(), drain: false };

#[tokio::test]
async fn a_drained_node_finishes_what_it_has_and_takes_no_more() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler));
        let mut peer = scheduler.accept_registered(1).await;
        peer.ack = Some(DRAIN);
        peer.assign(job(1), 1).await;
        assert_eq!(peer.next().await, Said::Ack(job(1)));
        peer.drain().await;
        assert_eq!(peer.heartbeat().await.health, Some(Health::Draining));
        peer.assign(job(2), 2).await;
        assert_eq!(peer.next().await, fail(job(2), "BUSY"));
        let work = node.work().await;
        assert!(!work.context.is_cancelled());
        work.end(Ok(Output::default()));
        peer.done(job(1)).await;
        // The end of the order comes with the answer to a heartbeat.
        peer.say(SchedulerMessage::HeartbeatAck(RESUME)).await;
        peer.ack = Some(RESUME);
        assert_eq!(peer.heartbeat().await.health, Some(Health::Ready));
        peer.assign(job(3), 3).await;
        assert_eq!(peer.next().await, Said::Ack(job(3)));
    })
    .await;
}

#[tokio::test]
async fn an_order_to_drain_is_heard_again_after_a_reconnect() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let _node = start(options(&scheduler));
        let mut peer = scheduler.accept_registered(1).await;
        peer.ack = Some(DRAIN);
        peer.drain().await;
        assert_eq!(peer.heartbeat().await.health, Some(Health::Draining));
        drop(peer);
        let mut peer = scheduler.accept().await;
        peer.ack = Some(DRAIN);
        assert_eq!(peer.register(2, NEVER_MS).await.health, Some(Health::Ready));
        // The order is the scheduler's, which answers the first sign of life with it.
        assert_eq!(peer.heartbeat().await.health, Some(Health::Ready));
        assert_eq!(peer.heartbeat().await.health, Some(Health::Draining));
        peer.assign(job(1), 1).await;
        assert_eq!(peer.next().await, fail(job(1), "BUSY"));
    })
    .await;
}

#[tokio::test]
async fn a_node_that_stops_says_goodbye_when_its_results_have_arrived() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler));
        let mut peer = scheduler.accept_registered(1).await;
        peer.assign(job(1), 1).await;
        assert_eq!(peer.next().await, Said::Ack(job(1)));
        let work = node.work().await;
        node.stop();
        assert_eq!(peer.heartbeat().await.health, Some(Health::Draining));
        peer.assign(job(2), 2).await;
        assert_eq!(peer.next().await, fail(job(2), "BUSY"));
        work.end(Ok(Output::default()));
        peer.done(job(1)).await;
        peer.confirm(job(1)).await;
        assert_eq!(peer.next().await, Said::Bye);
        assert_eq!(peer.next().await, Said::Closed);
        drop(peer);
        node.ended().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn an_idle_node_stops_at_once() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler));
        let mut peer = scheduler.accept_registered(1).await;
        peer.settle().await;
        node.stop();
        assert_eq!(peer.next().await, Said::Bye);
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
async fn the_grace_of_a_node_that_stops_ends() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let short = Duration::from_millis(10);
        let mut node = start(options(&scheduler).grace(short).cancel_grace(short));
        let mut peer = scheduler.accept_registered(1).await;
        peer.assign(job(1), 1).await;
        assert_eq!(peer.next().await, Said::Ack(job(1)));
        let work = node.work().await;
        node.stop();
        assert_eq!(peer.next().await, Said::Bye);
        drop(peer);
        work.context.cancelled().await;
        work.dropped().await;
        node.ended().await.unwrap();
    })
    .await;
}
