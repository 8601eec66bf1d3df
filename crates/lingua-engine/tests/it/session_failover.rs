//! Sessions whose record the store loses or lets expire.

use std::time::Duration;

use lingua_core::Tenant;
use lingua_engine::session::{CloseReason, SessionOptions, SessionOutput};
use lingua_store::Store as _;
use lingua_store::embedded::LostWrites;
use tokio::time::sleep;

use crate::sessions::{Client, TestSessions, delivery, sessions, speak_turn, start};
use crate::world::{Habit, Node, World};

/// Speaks a turn and gets its outcome, with this number. Right after a failover it may be missing:
/// nodes have to report first.
async fn exchange(client: &Client, seq: u64) {
    speak_turn(client, 3).await;
    assert_eq!(delivery(client).await.seq, seq);
}

/// Another instance over the same store, with a node.
async fn second_instance(world: &World) -> (World, Node, TestSessions) {
    let other = World::over(world.store.clone(), world.timer.clone(), "instance-2", |options| {
        options.seed = 8;
    });
    let node = Node::join_patient(&other, "n2", 4, Habit::Works { ms: 50 }).await;
    let sessions = sessions(&other, |_| {});
    (other, node, sessions)
}

#[tokio::test(start_paused = true)]
async fn a_session_continues_after_the_store_lost_its_record_and_writes_it_again() {
    let world = World::new();
    let _node = Node::join_patient(&world, "n1", 4, Habit::Works { ms: 50 }).await;
    let sessions = sessions(&world, |_| {});
    let before = world.store.snapshot();
    let client = start(&sessions, "s").await;
    exchange(&client, 1).await;
    world.store.roll_back(&before, LostWrites::Cluster);
    assert_eq!(world.store.session("s").await.unwrap(), None, "the record is lost");
    exchange(&client, 2).await;
    assert!(world.store.session("s").await.unwrap().is_some(), "it is written again");
    let (_other, _node, elsewhere) = second_instance(&world).await;
    let client = elsewhere.resume("s", (&[7; 32], Tenant::default()), 2).await.expect("resumed");
    exchange(&client, 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_failover_does_not_return_a_session_to_its_previous_owner() {
    let world = World::new();
    let _node = Node::join_patient(&world, "n1", 4, Habit::Works { ms: 50 }).await;
    let sessions = sessions(&world, |_| {});
    let first = start(&sessions, "s").await;
    exchange(&first, 1).await;
    let (_other, _node, elsewhere) = second_instance(&world).await;
    let before = world.store.snapshot();
    let client = elsewhere.resume("s", (&[7; 32], Tenant::default()), 1).await.expect("taken over");
    exchange(&client, 2).await;
    world.store.roll_back(&before, LostWrites::Cluster);
    exchange(&client, 3).await;
    speak_turn(&first, 3).await;
    let reason = loop {
        match first.next().await {
            SessionOutput::Closed(reason) => break reason,
            _ => sleep(Duration::from_millis(10)).await,
        }
    };
    assert_eq!(reason, CloseReason::Superseded, "the previous owner learns of it");
    exchange(&client, 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_previous_owner_does_not_revive_a_session_that_has_ended_elsewhere() {
    let world = World::new();
    let _node = Node::join_patient(&world, "n1", 4, Habit::Works { ms: 50 }).await;
    let sessions = sessions(&world, |_| {});
    let first = start(&sessions, "s").await;
    exchange(&first, 1).await;
    let (_other, _node, elsewhere) = second_instance(&world).await;
    let client = elsewhere.resume("s", (&[7; 32], Tenant::default()), 1).await.expect("taken over");
    exchange(&client, 2).await;
    client.end().expect("the session ends");
    while !matches!(client.next().await, SessionOutput::Closed(CloseReason::Ended)) {}
    sleep(Duration::from_millis(10)).await;
    assert_eq!(world.store.session("s").await.unwrap(), None, "it has ended");
    // The previous owner has heard nothing of all this.
    let resumed = sessions.resume("s", (&[7; 32], Tenant::default()), 2).await;
    assert_eq!(resumed.err().map(|error| error.code()), Some("SESSION_NOT_FOUND"));
    assert_eq!(world.store.session("s").await.unwrap(), None, "and stays so");
}

#[tokio::test(start_paused = true)]
async fn a_record_does_not_expire_while_its_client_listens_in_silence() {
    let world = World::new();
    let change = |options: &mut SessionOptions| {
        (options.idle_ms, options.resume_ms) = (60_000, 6_000);
    };
    let sessions = sessions(&world, change);
    let client = start(&sessions, "s").await;
    for _ in 0..600 {
        client.audio(vec![0; 1600].into(), None).expect("accepted");
        sleep(Duration::from_millis(500)).await;
    }
    assert!(world.store.session("s").await.unwrap().is_some(), "a client is connected");
    drop(client);
    sleep(Duration::from_millis(7_000)).await;
    assert_eq!(world.store.session("s").await.unwrap(), None, "no client resumed it");
    assert_eq!((sessions.len(), sessions.tokens()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn numbers_continue_after_what_the_client_has_seen_whatever_the_store_knows() {
    let world = World::new();
    let _node = Node::join_patient(&world, "n1", 4, Habit::Works { ms: 50 }).await;
    let sessions = sessions(&world, |_| {});
    let client = start(&sessions, "s").await;
    let before = world.store.snapshot();
    for seq in 1..=3 {
        exchange(&client, seq).await;
    }
    world.store.roll_back(&before, LostWrites::Cluster);
    let (_other, _node, elsewhere) = second_instance(&world).await;
    let client = elsewhere.resume("s", (&[7; 32], Tenant::default()), 3).await.expect("taken over");
    speak_turn(&client, 3).await;
    let delivery = delivery(&client).await;
    assert_eq!(delivery.seq, 4);
    assert!(delivery.id.turn > 3, "{} was another turn", delivery.id);
}
