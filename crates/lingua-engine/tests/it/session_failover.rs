//! Sessions, when the store forgets what it knew of them or lets it run out.

use std::time::Duration;

use lingua_engine::session::{Over, SessionOptions, ToClient};
use lingua_store::Store as _;
use lingua_store::embedded::LostWrites;
use tokio::time::sleep;

use crate::sessions::{Client, Hub, begin, outcome, sessions, speak};
use crate::world::{Habit, Node, World};

/// Says something and hears what came of it, under this number. After a failover that may be nothing: nodes have to report first.
async fn is_answered(client: &Client, seq: u64) {
    speak(client, 3).await;
    assert_eq!(outcome(client).await.seq, seq);
}

/// Another instance over the same store, with a node.
async fn another(world: &World) -> (World, Node, Hub) {
    let other = World::over(world.store.clone(), world.timer.clone(), "instance-2", |options| {
        options.seed = 8;
    });
    let node = Node::join_patient(&other, "n2", 4, Habit::Works { ms: 50 }).await;
    let hub = sessions(&other, |_| {});
    (other, node, hub)
}

#[tokio::test(start_paused = true)]
async fn a_session_that_the_store_forgot_goes_on_and_is_written_again() {
    let world = World::new();
    let _node = Node::join_patient(&world, "n1", 4, Habit::Works { ms: 50 }).await;
    let hub = sessions(&world, |_| {});
    let before = world.store.snapshot();
    let client = begin(&hub, "s").await;
    is_answered(&client, 1).await;
    world.store.roll_back(&before, LostWrites::Cluster);
    assert_eq!(world.store.session("s").await.unwrap(), None, "it is forgotten");
    is_answered(&client, 2).await;
    assert!(world.store.session("s").await.unwrap().is_some(), "it is written again");
    let (_other, _node, elsewhere) = another(&world).await;
    let client = elsewhere.resume("s", &[7; 32], 2).await.expect("it is there");
    is_answered(&client, 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_failover_does_not_give_a_session_back_to_who_had_it_before() {
    let world = World::new();
    let _node = Node::join_patient(&world, "n1", 4, Habit::Works { ms: 50 }).await;
    let hub = sessions(&world, |_| {});
    let first = begin(&hub, "s").await;
    is_answered(&first, 1).await;
    let (_other, _node, elsewhere) = another(&world).await;
    let before = world.store.snapshot();
    let client = elsewhere.resume("s", &[7; 32], 1).await.expect("it is taken over");
    is_answered(&client, 2).await;
    world.store.roll_back(&before, LostWrites::Cluster);
    is_answered(&client, 3).await;
    speak(&first, 3).await;
    let told = loop {
        match first.next().await {
            ToClient::Over(over) => break over,
            _ => sleep(Duration::from_millis(10)).await,
        }
    };
    assert_eq!(told, Over::Superseded, "who had it before learns of it");
    is_answered(&client, 4).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_known_of_a_session_does_not_run_out_while_somebody_listens_in_silence() {
    let world = World::new();
    let change = |options: &mut SessionOptions| {
        (options.idle_ms, options.resume_ms) = (60_000, 6_000);
    };
    let hub = sessions(&world, change);
    let client = begin(&hub, "s").await;
    for _ in 0..600 {
        client.audio(&[0; 1600], None).expect("heard");
        sleep(Duration::from_millis(500)).await;
    }
    assert!(world.store.session("s").await.unwrap().is_some(), "somebody is there");
    drop(client);
    sleep(Duration::from_millis(7_000)).await;
    assert_eq!(world.store.session("s").await.unwrap(), None, "nobody came back");
    assert_eq!((hub.len(), hub.holders()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn numbers_go_on_after_what_the_client_has_seen_whatever_the_store_knows() {
    let world = World::new();
    let _node = Node::join_patient(&world, "n1", 4, Habit::Works { ms: 50 }).await;
    let hub = sessions(&world, |_| {});
    let client = begin(&hub, "s").await;
    let before = world.store.snapshot();
    for seq in 1..=3 {
        is_answered(&client, seq).await;
    }
    world.store.roll_back(&before, LostWrites::Cluster);
    let (_other, _node, elsewhere) = another(&world).await;
    let client = elsewhere.resume("s", &[7; 32], 3).await.expect("it is taken over");
    speak(&client, 3).await;
    let delivered = outcome(&client).await;
    assert_eq!(delivered.seq, 4);
    assert!(delivered.id.turn > 3, "{} was another turn", delivered.id);
}
