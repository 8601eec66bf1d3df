//! Who gets a job: limits, speeds, and what a cell tells about itself.

use lingua_core::job::AttemptOutcome::{self, Failed, Succeeded, Unknown};
use lingua_core::roster::Capacity;
use lingua_core::{Query, Slot};

use crate::conformance::World;
use crate::conformance::fixture::{
    COST_MS, FRESH_MS, full_with, heartbeat, instance, key, node, pair, profile, reserve,
};
use crate::contract::{
    HeartbeatRequest, KeptLeases, NodeCommand, NodeRecord, NodeSpeed, Place, RegisterReply,
    RegisterRequest, ReserveOutcome, ReserveRequest, Store,
};

/// A slot of a node that takes a second for a job.
const WEIGHT: u64 = (u32::MAX / COST_MS) as u64;

async fn record<S: Store>(w: &World<S>, place: Place) -> NodeRecord {
    let view = w.store.view(place.cell).await.expect("a view");
    view.nodes.into_iter().find(|n| n.place == place).expect("the node is there")
}

/// Runs a job on this very node, to this end.
async fn run_on<S: Store>(w: &World<S>, place: Place, n: u128, outcome: AttemptOutcome) {
    let pin = crate::contract::Pin { slot: place.slot, epoch: place.epoch, strict: true };
    let request = ReserveRequest { pin: Some(pin), ..reserve(key(n)) };
    let granted = w.try_reserve(place.cell, request).await;
    assert!(matches!(granted, ReserveOutcome::Granted { .. }), "{granted:?}");
    w.store.finish(place.cell, key(n), outcome).await.expect("a reply").expect("it was held");
}

/// The slots that three jobs in a row get.
async fn next_three<S: Store>(w: &World<S>, place: Place, first: u128) -> Vec<Slot> {
    let mut slots = vec![];
    for n in first..first + 3 {
        slots.push(w.take(place.cell, key(n)).await.slot);
    }
    for n in first..first + 3 {
        w.finish(place.cell, key(n)).await.expect("it was held");
    }
    slots
}

/// A new node gets one job at a time while others have room, and everything when none has.
pub async fn a_new_node_starts_with_one_job<S: Store>(w: World<S>) {
    let known = w.join(0, "zh en", 4).await;
    for n in 0..3 {
        run_on(&w, known, n, Succeeded).await;
    }
    assert_eq!(record(&w, known).await.limit, 4);
    let new = w.join(1, "zh en", 4).await;
    assert_eq!(record(&w, new).await.limit, 1);
    let mut of_new = 0;
    for n in 10..15 {
        of_new += u16::from(w.take(new.cell, key(n)).await.slot == new.slot);
    }
    assert_eq!(of_new, 1);
    for n in 15..18 {
        assert_eq!(w.take(new.cell, key(n)).await.slot, new.slot, "a limit refuses nothing");
    }
    let full = w.try_reserve(new.cell, reserve(key(18))).await;
    assert_eq!(full_with(&full), Some((2, 0)));
}

/// A success doubles a limit, a failure halves it, a cancel changes nothing.
pub async fn a_limit_follows_what_the_attempts_said<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 6).await;
    let steps = [
        (Unknown, 1),
        (Succeeded, 2),
        (Succeeded, 4),
        (Unknown, 4),
        (Succeeded, 6),
        (Failed, 3),
        (Failed, 1),
        (Failed, 0),
        (Failed, 0),
        (Succeeded, 1),
    ];
    for (n, (outcome, limit)) in steps.into_iter().enumerate() {
        run_on(&w, place, n as u128, outcome).await;
        assert_eq!(record(&w, place).await.limit, limit, "after {n} and {outcome:?}");
    }
    w.register(0, place, profile("zh en", 4)).await.expect("fewer slots");
    assert_eq!(record(&w, place).await.limit, 1);
}

/// A node whose jobs all fail gets none while others have room, until its next heartbeat.
pub async fn a_failing_node_gets_another_chance_with_its_heartbeat<S: Store>(w: World<S>) {
    let failing = w.join(0, "zh en", 8).await;
    let other = w.join(1, "zh en", 8).await;
    for n in 0..3 {
        run_on(&w, other, n, Succeeded).await;
    }
    run_on(&w, failing, 3, Failed).await;
    assert_eq!(next_three(&w, failing, 10).await, [other.slot; 3]);
    w.heartbeat(failing, vec![]).await;
    let slots = next_three(&w, failing, 20).await;
    assert_eq!(slots.iter().filter(|slot| **slot == failing.slot).count(), 1, "{slots:?}");
}

/// A reservation tells what the cell has for such jobs, weighted by the speeds of the nodes.
pub async fn a_reply_tells_what_the_cell_can_do<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 2).await;
    let slow = w.join(1, "zh en", 2).await;
    w.join(2, "fr", 8).await;
    let speed = Some(NodeSpeed::assumed(4 * COST_MS));
    let slower = HeartbeatRequest { speed, ..heartbeat(slow, vec![]) };
    w.store.heartbeat(slower).await.expect("a reply");
    let slow_weight = u64::from(u32::MAX / (4 * COST_MS));
    let all = 2 * WEIGHT + 2 * slow_weight;
    let taken = w.try_reserve(place.cell, reserve(key(1))).await;
    let ReserveOutcome::Granted { grant, capacity, weight, .. } = taken else {
        panic!("{taken:?}")
    };
    assert_eq!((grant.slot, u64::from(weight)), (place.slot, WEIGHT));
    assert_eq!(capacity, Capacity { free: all - WEIGHT, all });
    for n in 2..5 {
        w.take(place.cell, key(n)).await;
    }
    let full = w.try_reserve(place.cell, reserve(key(5))).await;
    let ReserveOutcome::Full { capacity, .. } = full else { panic!("{full:?}") };
    assert_eq!(capacity, Capacity { free: 0, all });
    w.finish(place.cell, key(1)).await.expect("it was held");
    w.store.finish(place.cell, key(1), Failed).await.expect("a reply");
    run_on(&w, place, 6, Failed).await;
    let french = ReserveRequest { query: Query::new(pair("fr:fr")), ..reserve(key(7)) };
    assert!(matches!(w.try_reserve(place.cell, french).await, ReserveOutcome::Granted { .. }));
    let again = w.try_reserve(place.cell, reserve(key(8))).await;
    let ReserveOutcome::Granted { capacity, .. } = again else { panic!("{again:?}") };
    assert_eq!(capacity, Capacity { free: 0, all }, "slots of a node that fails do not count");
}

/// Nodes that serve rarer pairs keep one slot for five of them, wherever it is, from jobs that
/// leave such slots alone.
pub async fn flexible_nodes_keep_a_few_slots_together<S: Store>(w: World<S>) {
    let cell = w.join(0, "zh en", 2).await.cell;
    for n in 1..=6 {
        assert_eq!(w.join(n, "zh en ja fr", 1).await.cell, cell);
    }
    let keeping = Query { keep_last: true, ..Query::new(pair("zh:en")) };
    for n in 0..6 {
        let request = ReserveRequest { query: keeping, ..reserve(key(n)) };
        let granted = w.try_reserve(cell, request).await;
        assert!(matches!(granted, ReserveOutcome::Granted { .. }), "{n}: {granted:?}");
    }
    let kept = ReserveRequest { query: keeping, ..reserve(key(6)) };
    assert_eq!(full_with(&w.try_reserve(cell, kept).await), Some((7, 2)));
    w.take(cell, key(7)).await;
    let rare = ReserveRequest { query: Query::new(pair("ja:fr")), ..reserve(key(8)) };
    let granted = w.try_reserve(cell, rare).await;
    assert!(matches!(granted, ReserveOutcome::Granted { .. }), "{granted:?}");
}

/// An instance that knows nothing of a node gets what another has learned.
pub async fn what_was_learned_of_a_node_survives_its_reconnect<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 4).await;
    let learned = NodeSpeed { cost_ms: 80, learned_ms: 60, jobs: 200 };
    let told = HeartbeatRequest { speed: Some(learned), ..heartbeat(place, vec![]) };
    w.store.heartbeat(told).await.expect("a reply");
    w.heartbeat(place, vec![]).await;
    assert_eq!(record(&w, place).await.speed, learned, "absent: unchanged");
    w.store.set_state(place, NodeCommand::Offline).await.expect("a reply");

    let registers = async |place: Place, n: usize, speed: NodeSpeed| {
        let request = RegisterRequest {
            place,
            node: node(n),
            profile: profile("zh en", 4),
            health: lingua_core::Health::Ready,
            speed,
            fresh_ms: FRESH_MS,
            version: None,
            via: instance(2),
            keep: KeptLeases::NONE,
        };
        match w.store.register(request).await.expect("a reply") {
            RegisterReply::Registered { speed, .. } => speed,
            RegisterReply::Stale { current } => panic!("{current:?} is newer"),
        }
    };
    let again = w.assign(0, 2, 0).await;
    assert_eq!(registers(again, 0, NodeSpeed::assumed(1000)).await, learned);
    assert_eq!(record(&w, again).await.speed, learned);
    let better = NodeSpeed { cost_ms: 90, learned_ms: 90, jobs: 1 };
    assert_eq!(registers(again, 0, better).await, better, "what the instance knows is newer");
    w.store.release(&node(0), again.epoch).await.expect("a reply");
    let other = w.assign(1, 1, 0).await;
    assert_eq!((other.cell, other.slot), (again.cell, again.slot));
    let assumed = NodeSpeed::assumed(1000);
    assert_eq!(registers(other, 1, assumed).await, assumed, "another node starts anew");
}

/// Six jobs on two equal nodes of four slots go three and three, whatever chance says.
pub async fn equal_nodes_share_jobs_equally<S: Store>(w: World<S>) {
    let places = [w.join(0, "zh en", 4).await, w.join(1, "zh en", 4).await];
    for n in 0..6 {
        run_on(&w, places[n % 2], n as u128, Succeeded).await;
    }
    let costs = [900, 1150];
    for (place, cost_ms) in places.into_iter().zip(costs) {
        let speed = Some(NodeSpeed { cost_ms, learned_ms: cost_ms, jobs: 3 });
        let told = HeartbeatRequest { speed, ..heartbeat(place, vec![]) };
        w.store.heartbeat(told).await.expect("a reply");
    }
    for round in 0..20u32 {
        for n in 0..6u32 {
            let random = (6 * round + n).wrapping_mul(0x9E37_79B9);
            let request = ReserveRequest { random, ..reserve(key(100 + u128::from(n))) };
            let granted = w.try_reserve(places[0].cell, request).await;
            assert!(matches!(granted, ReserveOutcome::Granted { .. }), "{granted:?}");
        }
        assert_eq!(w.used(places[0].cell).await, [3, 3]);
        for n in 100..106 {
            w.finish(places[0].cell, key(n)).await.expect("it was held");
        }
    }
}
