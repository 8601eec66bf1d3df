//! Leader, table, instances, bus and feed.

use lingua_core::{InstanceId, Term};

use crate::conformance::World;
use crate::conformance::fixture::{FRESH_MS, instance, node};
use crate::contract::{
    AnnounceReply, AnnounceRequest, BusDelivery, Bytes, Change, ElectReply, ElectRequest,
    Incarnation, MESSAGE_BYTES_MAX, NodeCommand, PublishReply, PublishRequest, Store,
    TABLE_BYTES_MAX,
};
use crate::error::StoreError;

const LEASE_MS: u64 = 9_000;

fn presence(who: &InstanceId, incarnation: u64) -> AnnounceRequest {
    let (instance, incarnation) = (who.clone(), Incarnation(incarnation));
    AnnounceRequest {
        instance,
        incarnation,
        address: "127.0.0.1:7410".to_owned(),
        lease_ms: LEASE_MS,
    }
}

impl<S: Store> World<S> {
    async fn elect(&self, n: usize, incarnation: u64) -> ElectReply {
        let (instance, incarnation) = (instance(n), Incarnation(incarnation));
        let candidate = ElectRequest { instance, incarnation, lease_ms: LEASE_MS };
        self.store.elect(candidate).await.expect("a reply")
    }

    async fn lead(&self, n: usize, incarnation: u64) -> Term {
        match self.elect(n, incarnation).await {
            ElectReply::Leading { term, .. } => term,
            other => panic!("{n} does not lead: {other:?}"),
        }
    }

    async fn publish(&self, n: usize, term: Term, replaces: u64, text: &str) -> PublishReply {
        let table = text.to_owned().into();
        let publish = PublishRequest { instance: instance(n), term, replaces, table };
        self.store.publish(publish).await.expect("a reply")
    }
}

/// A leader whose lease has expired cannot renew it.
pub async fn an_expired_leader_does_not_renew<S: Store>(w: World<S>) {
    let first = w.lead(0, 1).await;
    w.clock.advance(LEASE_MS);
    assert_eq!(w.lead(0, 1).await, first, "renewed in its last moment");
    w.clock.advance(LEASE_MS + 1);
    let second = w.lead(1, 1).await;
    assert!(second > first);
    let told = w.elect(0, 1).await;
    assert!(matches!(told, ElectReply::Following { ref leader, term, .. }
        if *leader == instance(1) && term == second));
    assert_eq!(w.publish(0, first, 0, "old").await, PublishReply::NotLeader);
    let reborn = w.elect(1, 2).await;
    assert!(matches!(reborn, ElectReply::Following { .. }), "another life is another candidate");
}

/// The table and its version are read together, and neither expires.
pub async fn the_table_and_its_version_are_written_together<S: Store>(w: World<S>) {
    assert_eq!(w.store.table().await.expect("a reply"), None);
    let term = w.lead(0, 1).await;
    assert_eq!(w.publish(0, term, 0, "one").await, PublishReply::Published(1));
    w.clock.advance(30 * 24 * 3_600_000);
    let table = w.store.table().await.expect("a reply").expect("a table");
    assert_eq!((table.version, &*table.table), (1, &b"one"[..]));
    let term = w.lead(1, 1).await;
    assert_eq!(w.publish(1, term, 0, "again").await, PublishReply::Conflict(1));
    assert_eq!(w.publish(1, term, 1, "two").await, PublishReply::Published(2));
}

/// Publishing compares term and version.
pub async fn only_the_present_term_publishes<S: Store>(w: World<S>) {
    let term = w.lead(0, 1).await;
    assert_eq!(w.publish(1, term, 0, "x").await, PublishReply::NotLeader);
    assert_eq!(w.publish(0, Term(term.0 + 1), 0, "x").await, PublishReply::NotLeader);
    assert_eq!(w.publish(0, Term(term.0 - 1), 0, "x").await, PublishReply::NotLeader);
    assert_eq!(w.publish(0, term, 1, "x").await, PublishReply::Conflict(0));
    assert_eq!(w.publish(0, term, 0, "x").await, PublishReply::Published(1));
    let huge = vec![0; TABLE_BYTES_MAX + 1].into();
    let refused =
        w.store.publish(PublishRequest { instance: instance(0), term, replaces: 1, table: huge });
    assert!(matches!(refused.await, Err(StoreError::LimitReached { .. })));
    w.clock.advance(LEASE_MS + 1);
    assert_eq!(w.publish(0, term, 1, "y").await, PublishReply::NotLeader, "its lease is over");
}

/// After a leader resigns, another one is elected at once.
pub async fn a_resigned_leader_is_replaced_at_once<S: Store>(w: World<S>) {
    let first = w.lead(0, 1).await;
    assert!(!w.store.resign(&instance(1), first).await.expect("a reply"));
    assert!(w.store.resign(&instance(0), first).await.expect("a reply"));
    assert!(!w.store.resign(&instance(0), first).await.expect("a reply"));
    assert!(w.lead(1, 1).await > first);
}

/// A name belongs to one living process, and is free after its death.
pub async fn two_living_processes_never_share_a_name<S: Store>(w: World<S>) {
    let name = instance(0);
    let announce =
        async |incarnation| w.store.announce(presence(&name, incarnation)).await.expect("a reply");
    assert_eq!(announce(1).await, AnnounceReply::Present);
    assert_eq!(announce(1).await, AnnounceReply::Present);
    assert!(matches!(announce(2).await, AnnounceReply::NameTaken { .. }));
    w.clock.advance(LEASE_MS + 1);
    assert!(!w.store.instances().await.expect("a reply")[0].alive);
    assert_eq!(announce(2).await, AnnounceReply::Present);
    assert!(!w.store.withdraw(&name, Incarnation(1)).await.expect("a reply"));
    assert!(w.store.withdraw(&name, Incarnation(2)).await.expect("a reply"));
    assert!(w.store.instances().await.expect("a reply").is_empty());
    let long = AnnounceRequest { address: "x".repeat(10_000_000), ..presence(&name, 3) };
    assert!(matches!(w.store.announce(long).await, Err(StoreError::LimitReached { .. })));
}

/// Messages come at least once and in order: unacknowledged ones come again.
pub async fn messages_stay_until_they_are_acknowledged<S: Store>(w: World<S>) {
    let me = instance(0);
    let send = async |text: &str| w.store.send(&me, text.to_owned().into()).await.expect("a reply");
    assert_eq!(send("nobody is there").await, BusDelivery::NoInstance);
    w.store.announce(presence(&me, 1)).await.expect("a reply");
    for text in ["one", "two", "three"] {
        assert_eq!(send(text).await, BusDelivery::Sent);
    }
    let read = async |after, limit| {
        let messages = w.store.receive(&me, after, limit).await.expect("a reply");
        let text = |m: &crate::contract::Envelope| String::from_utf8_lossy(&m.message).into_owned();
        (messages.iter().map(text).collect::<Vec<_>>(), messages.last().map_or(0, |m| m.seq))
    };
    let (first, seq) = read(0, 2).await;
    assert_eq!(first, ["one", "two"]);
    assert_eq!(read(0, 2).await.0, ["one", "two"], "not acknowledged, so it comes again");
    assert_eq!(read(seq, 2).await.0, ["three"]);
    let huge = vec![0; MESSAGE_BYTES_MAX + 1].into();
    assert!(matches!(w.store.send(&me, huge).await, Err(StoreError::LimitReached { .. })));
    w.clock.advance(LEASE_MS + 1);
    assert_eq!(send("too late").await, BusDelivery::NoInstance);
}

/// A waiting reader is woken, whether it or the message comes first.
pub async fn a_waiting_reader_wakes_up<S: Store>(w: World<S>) {
    let me = instance(0);
    w.store.announce(presence(&me, 1)).await.expect("a reply");
    let head = w.store.feed_head().await.expect("a reply");
    let read_mail = async { w.store.receive(&me, 0, 10).await.expect("a reply") };
    let read_news = async { w.store.changes(head, 10).await.expect("a reply") };
    let act = async {
        tokio::task::yield_now().await;
        w.store.send(&me, Bytes::from_static(b"wake up")).await.expect("a reply");
        w.join(0, "zh en", 1).await
    };
    let (mail, news, place) = join3(read_mail, read_news, act).await;
    assert_eq!(&*mail[0].message, b"wake up");
    let (cell, slot, epoch) = (place.cell, place.slot, place.epoch);
    assert_eq!(news.changes, [Change::Node { cell, slot, epoch, node: node(0) }]);
}

/// The return of a node that was silent for too long is a change: earlier replies of its cell are
/// no longer true.
pub async fn the_return_of_a_silent_node_is_a_change<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 1).await;
    let (cell, slot, epoch) = (place.cell, place.slot, place.epoch);
    let head = w.store.feed_head().await.expect("a reply");
    w.heartbeat(place, vec![]).await;
    assert_eq!(w.store.feed_head().await, Ok(head), "it was not silent");
    w.clock.advance(FRESH_MS + 1);
    w.heartbeat(place, vec![]).await;
    w.heartbeat(place, vec![]).await;
    let told = w.store.changes(head, 10).await.expect("a reply");
    assert_eq!(told.changes, [Change::Node { cell, slot, epoch, node: node(0) }]);
}

/// The feed lists every change in order; a reader that is too far behind gets a gap.
pub async fn the_feed_lists_changes_and_reports_gaps<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 1).await;
    let (cell, slot, epoch) = (place.cell, place.slot, place.epoch);
    w.store.set_state(place, NodeCommand::Drain).await.expect("a reply");
    w.store.set_state(place, NodeCommand::Drain).await.expect("a reply");
    let term = w.lead(0, 1).await;
    w.lead(0, 1).await;
    w.publish(0, term, 0, "one").await;
    w.store.announce(presence(&instance(0), 1)).await.expect("a reply");
    w.store.announce(presence(&instance(0), 1)).await.expect("a reply");
    let node = Change::Node { cell, slot, epoch, node: node(0) };
    let all =
        [node.clone(), node, Change::Leader(term), Change::Table(1), Change::Instance(instance(0))];
    let told = w.store.changes(0, 100).await.expect("a reply");
    assert_eq!((told.changes.as_slice(), told.next, told.gap), (&all[..], 5, false));
    let piece = w.store.changes(1, 2).await.expect("a reply");
    assert_eq!((piece.changes.as_slice(), piece.next), (&all[1..3], 3));

    for n in 0..5_000 {
        let order = if n % 2 == 0 { NodeCommand::Resume } else { NodeCommand::Drain };
        w.store.set_state(place, order).await.expect("a reply");
    }
    let head = w.store.feed_head().await.expect("a reply");
    let behind = w.store.changes(0, 10).await.expect("a reply");
    assert!(behind.gap && behind.changes.is_empty());
    assert_eq!(behind.next, head);
    let ahead = w.store.changes(head + 100, 10).await.expect("a reply");
    assert!(ahead.gap, "a position that never was: the store has been restarted");
}

async fn join3<A, B, C>(
    a: impl Future<Output = A>,
    b: impl Future<Output = B>,
    c: impl Future<Output = C>,
) -> (A, B, C) {
    tokio::join!(a, b, c)
}

/// The identity does not change while nothing is lost, and the clock is the store's own.
pub async fn the_identity_stays_while_nothing_is_lost_and_the_clock_is_the_stores<S: Store>(
    w: World<S>,
) {
    let before = w.store.identity();
    let started_ms = w.store.now_ms().await.expect("a reply");
    w.lead(0, 1).await;
    w.clock.advance(LEASE_MS + 1);
    w.lead(1, 1).await;
    assert_eq!(w.store.identity(), before);
    assert_eq!(w.store.now_ms().await.expect("a reply"), started_ms + LEASE_MS + 1);
}
