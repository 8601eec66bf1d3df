//! Servers that die, hang, are full, change their role or need a password. Nothing is restarted on
//! this side: the same store works again as soon as a server does.

use std::time::Duration;

use lingua_core::Rules;
use lingua_redis::{RedisOptions, RedisStore};
use lingua_store::conformance::World;
use lingua_store::conformance::fixture::{instance, key, node};
use lingua_store::contract::{
    AnnounceRequest, AssignRequest, Bytes, Incarnation, NodeClass, Place, ReserveOutcome,
};
use lingua_store::{ManualClock, Store, StoreError};

use crate::cluster::Cluster;
use crate::sentinel::Watched;
use crate::servers::{Server, options};

/// How long a store may take to work again.
const RECOVERY: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(20);

/// A store with the servers' own clock, and short timeouts.
fn short_timeouts(url: &str) -> RedisOptions {
    let mut options = options(url, Rules::default(), None);
    options.timeouts.reply = Duration::from_millis(500);
    options.timeouts.connect = Duration::from_secs(2);
    options.timeouts.reconnect_max = Duration::from_millis(200);
    options.timeouts.identity = Duration::from_millis(100);
    options
}

fn assign(n: usize) -> AssignRequest {
    AssignRequest::new(node(n), Incarnation(1), NodeClass(0))
}

/// Assigns a place; retries until there is a reply.
async fn assign_eventually(store: &RedisStore, n: usize) -> Place {
    let asked = async {
        loop {
            match store.assign(assign(n)).await {
                Ok(place) => return place,
                Err(error) => assert!(error.is_safe_to_retry(), "{error}"),
            }
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(RECOVERY, asked).await.expect("it works again").placed().expect("a place")
}

async fn world(server: &Server) -> World<RedisStore> {
    let factory = async |rules, clock: ManualClock| {
        RedisStore::connect(options(&server.url(), rules, Some(clock))).await.unwrap()
    };
    World::new(factory, Rules::default()).await
}

#[tokio::test]
async fn a_flushed_script_cache_is_filled_again() {
    let server = Server::start(&[]).await;
    let w = world(&server).await;
    let place = w.join(0, "zh en", 2).await;
    w.take(place.cell, key(1)).await;
    server.ask::<()>(&["SCRIPT", "FLUSH"]).await.unwrap();
    w.take(place.cell, key(2)).await;
    assert_eq!(w.used(place.cell).await, [2]);
}

#[tokio::test]
async fn a_restarted_server_is_used_again_and_changes_the_identity() {
    let mut server = Server::start(&[]).await;
    let store = RedisStore::connect(short_timeouts(&server.url())).await.unwrap();
    let mut identity = store.watch_servers();
    let before = identity.borrow_and_update().clone();
    assert_eq!(before.changes, 0);
    let first = store.identity();
    store.assign(assign(0)).await.unwrap();
    server.kill();
    let refused = store.assign(assign(1)).await.unwrap_err();
    assert_eq!(refused.code(), "SCHEDULER_DEPENDENCY_DOWN");
    assert!(matches!(store.assign(assign(1)).await, Err(StoreError::Unavailable { .. })));
    server.restart().await;
    let place = assign_eventually(&store, 1).await;
    assert_eq!(place.slot.index(), 0, "it came back empty");
    let after = identity.borrow_and_update().clone();
    assert_eq!(after.changes, 1, "known before the first reply");
    assert_ne!(store.identity(), first);
    assert_ne!(before.servers, after.servers);
}

#[tokio::test]
async fn a_reader_of_an_emptied_feed_gets_a_gap() {
    let server = Server::start(&[]).await;
    let w = world(&server).await;
    let presence = |n: usize| AnnounceRequest {
        instance: instance(n),
        incarnation: Incarnation(1),
        address: String::new(),
        lease_ms: 60_000,
    };
    w.store.announce(presence(0)).await.unwrap();
    let read = w.store.changes(0, 10).await.unwrap();
    assert_eq!((read.next, read.gap), (1, false));
    server.ask::<()>(&["FLUSHALL"]).await.unwrap();
    for n in 1..4 {
        w.store.announce(presence(n)).await.unwrap();
    }
    // Change 2 exists, but it belongs to another feed.
    assert!(w.store.changes(read.next, 10).await.unwrap().gap);
    assert!(!w.store.changes(1, 10).await.unwrap().gap, "reported once");
}

#[tokio::test]
async fn a_hanging_server_is_a_timeout() {
    let server = Server::start(&[]).await;
    let store = RedisStore::connect(short_timeouts(&server.url())).await.unwrap();
    assign_eventually(&store, 0).await;
    server.signal("-STOP");
    let refused = store.assign(assign(1)).await.unwrap_err();
    assert!(matches!(refused, StoreError::TimedOut { .. }), "{refused:?}");
    assert!(refused.is_safe_to_retry());
    server.signal("-CONT");
    assert_eq!(assign_eventually(&store, 1).await.slot.index(), 1, "the same call took one slot");
}

#[tokio::test]
async fn a_full_server_refuses_and_changes_nothing() {
    let server = Server::start(&[]).await;
    let w = world(&server).await;
    let place = w.join(0, "zh en", 2).await;
    w.take(place.cell, key(1)).await;
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let request = lingua_store::conformance::fixture::reserve(key(2));
    let refused = w.store.reserve(place.cell, request).await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::Unavailable { detail } if detail.contains("OOM")),
        "{refused}"
    );
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    assert_eq!(w.used(place.cell).await, [1]);
    w.take(place.cell, key(2)).await;
}

#[tokio::test]
async fn a_master_that_became_a_replica_is_not_written_to() {
    let server = Server::start(&[]).await;
    let store = RedisStore::connect(short_timeouts(&server.url())).await.unwrap();
    assign_eventually(&store, 0).await;
    server.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await.unwrap();
    let refused = store.assign(assign(1)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused:?}");
    server.ask::<()>(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    assign_eventually(&store, 1).await;
}

#[tokio::test]
async fn a_reader_that_gives_up_disturbs_nobody() {
    let server = Server::start(&[]).await;
    let w = world(&server).await;
    let me = instance(0);
    let presence = AnnounceRequest {
        instance: me.clone(),
        incarnation: Incarnation(1),
        address: String::new(),
        lease_ms: 60_000,
    };
    w.store.announce(presence).await.unwrap();
    for _ in 0..8 {
        // It waits on the server, and then its caller goes away.
        let waiting = w.store.receive(&me, 0, 10);
        assert!(tokio::time::timeout(POLL, waiting).await.is_err());
    }
    w.store.send(&me, Bytes::from_static(b"hello")).await.unwrap();
    let got = tokio::time::timeout(RECOVERY, w.store.receive(&me, 0, 10)).await.unwrap().unwrap();
    assert_eq!(&*got[0].message, b"hello");
}

#[tokio::test]
async fn the_clean_up_publishes_the_change_of_an_instance_that_died() {
    let server = Server::start(&[]).await;
    let options = options(&server.url(), Rules::default(), None);
    let prefix = options.key_prefix.clone();
    let store = RedisStore::connect(options).await.unwrap();
    let w = World { store, clock: ManualClock::default(), rules: Rules::default() };
    let place = w.join(0, "zh en", 2).await;
    let head = w.store.feed_head().await.unwrap();
    let news = format!("{prefix}{{{}}}:news", place.cell);
    let change = format!("node {} {} {} node-0", place.cell.index(), place.slot, place.epoch);
    server.ask::<()>(&["RPUSH", &news, &change]).await.unwrap();
    w.store.reap(place.cell, 10).await.unwrap();
    let told = w.store.changes(head, 10).await.unwrap();
    assert_eq!(told.changes.len(), 1);
    assert!(
        !server.ask::<bool>(&["EXISTS", &news]).await.unwrap(),
        "and it is removed from the list"
    );
}

#[tokio::test]
async fn after_a_failover_the_new_master_is_found() {
    let mut watched = Watched::start().await;
    let store = RedisStore::connect(short_timeouts(&watched.url())).await.unwrap();
    let identity = store.watch_servers();
    let place = assign_eventually(&store, 0).await;
    let copies: i64 = watched.master.ask(&["WAIT", "1", "5000"]).await.unwrap();
    assert_eq!(copies, 1, "the replica has what was written");
    watched.master.kill();
    let again = assign_eventually(&store, 0).await;
    assert_eq!(again, place, "the replica had it");
    assert_eq!(identity.borrow().changes, 1);
    // The one that leads the failover knows first, and the store may have asked it; the others
    // follow.
    let port = watched.replica.port.to_string();
    let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "lingua"];
    watched.sentinels[0].ask_until(&question, |answer| answer.contains(&port)).await;
}

#[tokio::test]
async fn a_cluster_loses_a_master_and_goes_on() {
    let mut cluster = Cluster::start().await;
    let store = RedisStore::connect(short_timeouts(&cluster.url())).await.unwrap();
    let first = store.identity();
    let place = assign_eventually(&store, 0).await;
    for server in &cluster.servers[..3] {
        server.ask::<i64>(&["WAIT", "1", "5000"]).await.unwrap();
    }
    cluster.servers[0].kill();
    // Whichever keys the dead one had: all parts work again.
    for n in 1..40 {
        assign_eventually(&store, n).await;
    }
    assert_eq!(assign_eventually(&store, 0).await, place);
    for part in 0..16 {
        let id = lingua_core::JobId::new(part);
        let asked = async {
            while store.job(id).await.is_err() {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(RECOVERY, asked).await.expect("every shard replies");
    }
    assert_ne!(store.identity(), first, "known before the successor replies");
}

#[tokio::test]
async fn slots_that_move_while_they_are_used_lose_nothing() {
    let cluster = Cluster::start().await;
    let store = RedisStore::connect(short_timeouts(&cluster.url())).await.unwrap();
    assign_eventually(&store, 0).await;
    // A planned change of roles: MOVED and READONLY for a moment.
    for replica in &cluster.servers[3..] {
        replica.ask::<()>(&["CLUSTER", "FAILOVER"]).await.unwrap();
        replica.ask_until(&["ROLE"], |role| role.contains("master")).await;
    }
    for n in 1..10 {
        assign_eventually(&store, n).await;
    }
    assert_eq!(store.cells().await.unwrap().len(), 1);
}

#[tokio::test]
async fn users_and_passwords_are_checked_and_named_in_no_error() {
    let server = Server::start(&[]).await;
    let rights = ["ACL", "SETUSER", "lingua", "on", ">s3cret", "~*", "&*", "+@all"];
    server.ask::<()>(&rights).await.unwrap();
    let login = |password: &str| format!("redis://lingua:{password}@127.0.0.1:{}", server.port);
    let store = RedisStore::connect(short_timeouts(&login("s3cret"))).await.unwrap();
    assign_eventually(&store, 0).await;
    let refused = RedisStore::connect(short_timeouts(&login("wr0ng"))).await.unwrap_err();
    assert!(!refused.to_string().contains("wr0ng"), "{refused}");
    assert_eq!(refused.code(), "SCHEDULER_DEPENDENCY_DOWN");
}

#[tokio::test]
async fn prefixes_and_databases_keep_fleets_apart() {
    let server = Server::start(&[]).await;
    let one = short_timeouts(&server.url());
    let other = RedisOptions { url: format!("{}/3", server.url()).parse().unwrap(), ..one.clone() };
    let third = short_timeouts(&server.url());
    assert_ne!(one.key_prefix, third.key_prefix);
    for options in [one, other, third] {
        let store = RedisStore::connect(options).await.unwrap();
        assert_eq!(assign_eventually(&store, 0).await.slot.index(), 0);
        assert_eq!(assign_eventually(&store, 1).await.slot.index(), 1);
    }
}

#[tokio::test]
async fn an_encrypted_connection_needs_the_right_authority() {
    let authority = crate::servers::Authority::new();
    let server = authority.start_server().await;
    let url = format!("rediss://localhost:{}", server.port);
    let mut options = short_timeouts(&url);
    options.tls_ca = Some(authority.certificate());
    let store = RedisStore::connect(options.clone()).await.unwrap();
    assign_eventually(&store, 0).await;
    options.tls_ca = Some(crate::servers::Authority::new().certificate());
    let refused = RedisStore::connect(options).await.unwrap_err();
    assert_eq!(refused.code(), "SCHEDULER_DEPENDENCY_DOWN", "{refused}");
}

#[tokio::test]
async fn connecting_without_a_server_fails_at_once() {
    let port = crate::servers::free_port();
    let refused = RedisStore::connect(short_timeouts(&format!("redis://127.0.0.1:{port}"))).await;
    let refused = refused.unwrap_err();
    assert!(refused.is_safe_to_retry(), "{refused}");
    // A store that is opened without waiting works as soon as there is one.
    let store = RedisStore::open(short_timeouts(&format!("redis://127.0.0.1:{port}"))).unwrap();
    assert!(store.ping().await.is_err());
    let _server = Server::start_on(port, &[]).await;
    assign_eventually(&store, 0).await;
}

#[tokio::test]
async fn a_real_clock_orders_fences_and_ends_leases() {
    let server = Server::start(&[]).await;
    let store = RedisStore::connect(options(&server.url(), Rules::default(), None)).await.unwrap();
    let w = World { store, clock: ManualClock::default(), rules: Rules::default() };
    let place = w.join(0, "zh en", 1).await;
    let mut request = lingua_store::conformance::fixture::reserve(key(1));
    request.ack_lease_ms = 0;
    let first = match w.try_reserve(place.cell, request).await {
        ReserveOutcome::Granted { grant, .. } => grant,
        other => panic!("{other:?}"),
    };
    let next = async {
        loop {
            let request = lingua_store::conformance::fixture::reserve(key(2));
            if let ReserveOutcome::Granted { grant, .. } = w.try_reserve(place.cell, request).await
            {
                return grant;
            }
        }
    };
    let second = tokio::time::timeout(RECOVERY, next).await.expect("the lease ends");
    assert!(second.fence > first.fence);
    assert!(second.fence.0 < 1 << 53);
    // Deadlines are held against the server's clock, in ms.
    let now_ms = w.store.now_ms().await.unwrap();
    let view = w.store.view(place.cell).await.unwrap();
    assert!(now_ms <= view.now_ms);
}
