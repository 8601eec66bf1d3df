//! Registrations, heartbeats and leases.

use lingua_core::roster::NodeVerdict;
use lingua_core::{
    Attempt, Capabilities, Health, Load, Nmt, NodeState, Policy, Profile, Query, RejectReason,
    ServiceSet, Tenant,
};

use crate::conformance::World;
use crate::conformance::fixture::{
    ACK_MS, FRESH_MS, RUN_MS, attempt, full_with, heartbeat, instance, key, langs, node, pair,
    profile, reserve,
};
use crate::contract::{
    CommitReply, HeartbeatReply, HeartbeatRequest, KeptLeases, LeasePhase, LeaseRecord,
    NodeCommand, NodeCommandReply, NodeSpeed, Pin, Place, RegisterReply, RegisterRequest,
    ReserveOutcome, ReserveRequest, Store,
};

/// A reservation without an ACK frees its slot: the count follows the leases.
pub async fn an_expired_reservation_frees_its_slot<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 1).await;
    w.take(place.cell, key(1)).await;
    w.clock.advance(ACK_MS);
    let full = w.try_reserve(place.cell, reserve(key(2))).await;
    assert_eq!(full_with(&full), Some((1, 0)), "the lease lasts to its last moment");
    w.clock.advance(1);
    let reply = w.store.reserve(place.cell, reserve(key(2))).await.expect("a reply");
    assert!(matches!(reply.outcome, ReserveOutcome::Granted { used: 1, max: 1, free: 0, .. }));
    let expired: Vec<_> = reply.expired.iter().map(|e| (e.key, e.phase)).collect();
    assert_eq!(expired, [(key(1), LeasePhase::Reserved)], "its owner can be told");
}

/// A repeated DONE does not end the lease of the next job in the slot.
pub async fn a_second_finish_frees_nothing_of_another_job<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 1).await;
    w.take(place.cell, key(1)).await;
    assert!(w.finish(place.cell, key(1)).await.is_some());
    w.take(place.cell, key(2)).await;
    assert_eq!(w.finish(place.cell, key(1)).await, None);
    assert_eq!(w.used(place.cell).await, [1]);
    let full = w.try_reserve(place.cell, reserve(key(3))).await;
    assert_eq!(full_with(&full), Some((1, 0)));
}

/// An ACK after the end of its lease is refused, so that no job runs uncounted.
pub async fn a_late_ack_finds_its_lease_gone<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 1).await;
    w.take(place.cell, key(1)).await;
    w.clock.advance(ACK_MS + 1);
    w.take(place.cell, key(2)).await;
    let late = w.store.commit(place.cell, key(1), RUN_MS).await.expect("a reply");
    assert_eq!(late, CommitReply::Gone);
    let unknown = w.heartbeat(place, vec![key(1), key(2)]).await;
    assert_eq!(unknown, [key(1)], "the node's own report names what has no lease");
    assert_eq!(w.used(place.cell).await, [1]);
}

/// Commit and finish of another attempt change nothing.
pub async fn other_attempts_change_nothing<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 2).await;
    w.take(place.cell, attempt(1, 2)).await;
    let before = w.store.view(place.cell).await.expect("a view");
    for other in [1, 3] {
        let stale = w.store.commit(place.cell, attempt(1, other), RUN_MS).await.expect("a reply");
        assert_eq!(stale, CommitReply::Stale);
        assert_eq!(w.finish(place.cell, attempt(1, other)).await, None);
    }
    let earlier = w.try_reserve(place.cell, reserve(attempt(1, 1))).await;
    assert_eq!(earlier, ReserveOutcome::Stale { held: Attempt(2) });
    assert_eq!(w.store.view(place.cell).await.expect("a view"), before);
}

/// Heartbeats of other nodes do not keep a silent node alive.
pub async fn a_node_without_heartbeats_is_not_selected<S: Store>(w: World<S>) {
    let silent = w.join(0, "zh en", 9).await;
    let lively = w.join(1, "zh en", 9).await;
    for n in 0..5 {
        w.clock.advance(FRESH_MS / 3);
        w.heartbeat(lively, vec![]).await;
        if n >= 3 {
            for job in 0..4 {
                let grant = w.take(lively.cell, key(n * 10 + job)).await;
                assert_eq!(grant.slot, lively.slot, "chose the silent one");
            }
        }
    }
    let lapsed = w.store.reap(silent.cell, 0).await.expect("a reply").lapsed;
    assert_eq!(
        lapsed.iter().map(|l| (l.place, l.state)).collect::<Vec<_>>(),
        [(silent, NodeState::Ready)]
    );
    w.heartbeat(silent, vec![]).await;
    assert!(w.store.reap(silent.cell, 0).await.expect("a reply").lapsed.is_empty());
}

/// A heartbeat goes to the feed only if it changes the node's state.
pub async fn a_heartbeat_changes_no_index_and_publishes_nothing<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 1).await;
    let head = w.store.feed_head().await.expect("a reply");
    for _ in 0..10 {
        w.clock.advance(5_000);
        w.heartbeat(place, vec![]).await;
    }
    w.register(0, place, profile("zh en", 1)).await.expect("the same again");
    assert_eq!(w.store.feed_head().await.expect("a reply"), head);
    let worse = HeartbeatRequest { health: Some(Health::Degraded), ..heartbeat(place, vec![]) };
    w.store.heartbeat(worse).await.expect("a reply");
    assert_eq!(w.store.feed_head().await.expect("a reply"), head + 1);
}

/// A node that removes a language gets no more jobs for it.
pub async fn removed_languages_are_gone_at_once<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 4).await;
    w.take(place.cell, key(1)).await;
    w.register(0, place, profile("en fr", 4)).await.expect("the same incarnation");
    let none = w.try_reserve(place.cell, reserve(key(2))).await;
    assert_eq!(none, ReserveOutcome::NoneCapable);
    assert_eq!(w.used(place.cell).await, [1], "what runs goes on");
    let french = ReserveRequest { query: Query::new(pair("fr:en")), ..reserve(key(3)) };
    assert!(matches!(w.try_reserve(place.cell, french).await, ReserveOutcome::Granted { .. }));
}

/// One call finds the only free slot among many full nodes.
pub async fn one_call_finds_the_only_free_slot<S: Store>(w: World<S>) {
    let mut places = vec![];
    for n in 0..30 {
        places.push(w.join(n, "zh en", 1).await);
    }
    let cell = places[0].cell;
    for n in 0..30 {
        w.take(cell, key(n)).await;
    }
    let freed = w.finish(cell, key(17)).await.expect("it was held").slot;
    for policy in [Policy::Balanced, Policy::Sample { k: 1 }, Policy::LeastLoaded, Policy::Random] {
        for random in [0, 1 << 30, u32::MAX] {
            let query = Query { policy, ..Query::new(pair("zh:en")) };
            let request = ReserveRequest { query, random, ..reserve(key(100)) };
            let ReserveOutcome::Granted { grant, .. } = w.try_reserve(cell, request).await else {
                panic!("{policy:?} missed the free slot")
            };
            assert_eq!(grant.slot, freed);
            w.finish(cell, key(100)).await.expect("it was held");
        }
    }
}

/// A pin to a node that died, re-registered or is full is not followed.
pub async fn a_pin_to_a_dead_or_full_node_is_not_followed<S: Store>(w: World<S>) {
    let bound = w.join(0, "zh en", 1).await;
    let other = w.join(1, "zh en", 4).await;
    let pinned = |n, place: Place, strict| {
        let pin = Some(Pin { slot: place.slot, epoch: place.epoch, strict });
        ReserveRequest { pin, ..reserve(key(n)) }
    };
    let cell = bound.cell;
    let slot_of = async |request| match w.try_reserve(cell, request).await {
        ReserveOutcome::Granted { grant, .. } => grant.slot,
        outcome => panic!("{outcome:?}"),
    };
    for random in [0, u32::MAX] {
        let request = ReserveRequest { random, ..pinned(1, bound, false) };
        assert_eq!(
            slot_of(request).await,
            bound.slot,
            "it is followed while it lives and has room"
        );
        w.finish(cell, key(1)).await.expect("it was held");
    }
    slot_of(pinned(2, bound, true)).await;
    assert_eq!(slot_of(pinned(3, bound, false)).await, other.slot);
    let strictly = w.try_reserve(cell, pinned(4, bound, true)).await;
    assert_eq!(strictly, ReserveOutcome::PinLost(RejectReason::Full));

    let again = w.assign(0, 2, 0).await;
    w.register(0, again, profile("zh en", 1)).await.expect("a new incarnation");
    let strictly = w.try_reserve(cell, pinned(5, bound, true)).await;
    assert_eq!(strictly, ReserveOutcome::PinLost(RejectReason::Superseded));
    w.store.set_state(again, NodeCommand::Offline).await.expect("a reply");
    assert_eq!(slot_of(pinned(6, again, false)).await, other.slot);
    let strictly = w.try_reserve(cell, pinned(7, again, true)).await;
    assert_eq!(strictly, ReserveOutcome::PinLost(RejectReason::State(NodeState::Offline)));
}

/// A repeated call takes no second slot.
pub async fn a_repeated_reserve_takes_one_slot<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 4).await;
    w.join(1, "zh en", 4).await;
    let grant = w.take(place.cell, key(1)).await;
    for random in [0, 1 << 31, u32::MAX] {
        let again = w.try_reserve(place.cell, ReserveRequest { random, ..reserve(key(1)) }).await;
        assert_eq!(again, ReserveOutcome::Duplicate(grant.clone()));
    }
    assert_eq!(w.used(place.cell).await.iter().sum::<u16>(), 1);
}

/// A node can get a job as soon as it has registered.
pub async fn a_new_node_gets_jobs_at_once<S: Store>(w: World<S>) {
    let place = w.join(0, "fr en", 1).await;
    let none = w.try_reserve(place.cell, reserve(key(1))).await;
    assert_eq!(none, ReserveOutcome::NoneCapable);
    let fresh = w.join(1, "zh en", 1).await;
    assert_eq!(w.take(fresh.cell, key(1)).await.node, node(1));
}

/// A job holds one slot in a cell: a later attempt ends the lease of the earlier one.
pub async fn a_later_attempt_replaces_the_earlier_one<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 4).await;
    let first = w.take(place.cell, attempt(1, 1)).await;
    let second = w.take(place.cell, attempt(1, 2)).await;
    assert!(second.fence > first.fence);
    assert_eq!(w.used(place.cell).await, [1]);
    assert_eq!(w.finish(place.cell, attempt(1, 1)).await, None);
    assert!(w.finish(place.cell, attempt(1, 2)).await.is_some());
}

/// After a second registration, messages of the first one are refused.
pub async fn a_later_epoch_ends_the_leases_of_the_earlier_one<S: Store>(w: World<S>) {
    let first = w.join(0, "zh en", 2).await;
    w.take(first.cell, key(1)).await;
    w.take(first.cell, key(2)).await;
    let second = w.assign(0, 2, 0).await;
    assert_eq!((second.cell, second.slot), (first.cell, first.slot));
    assert!(second.epoch > first.epoch);
    let lost = w.register(0, second, profile("zh en", 2)).await.expect("a new incarnation");
    assert_eq!(lost, [key(1), key(2)]);
    let again = w.register(0, second, profile("zh en", 2)).await.expect("the same incarnation");
    assert!(again.is_empty(), "they are lost once");

    let kept = w.take(second.cell, key(3)).await;
    assert_eq!(kept.epoch, second.epoch);
    assert_eq!(w.register(0, first, profile("fr", 9)).await, None);
    let stale = w.store.set_state(first, NodeCommand::Offline).await.expect("a reply");
    assert_eq!(
        stale,
        NodeCommandReply::Stale,
        "the old socket's clean-up must not end the new one"
    );
    let stale = w.store.heartbeat(heartbeat(first, vec![key(3)])).await.expect("a reply");
    assert_eq!(stale, HeartbeatReply::Reregister);
    assert_eq!(w.used(second.cell).await, [1]);
}

/// A registration moves the leases that it keeps to the new epoch and changes nothing else of
/// them. It keeps nothing of another node, of another attempt, or of a node that signed off.
pub async fn a_registration_keeps_the_leases_that_it_names<S: Store>(w: World<S>) {
    let mut place = w.join(0, "zh en", 4).await;
    let registered = |place, keep| RegisterRequest {
        place,
        node: node(0),
        profile: profile("zh en", 4),
        health: Health::Ready,
        speed: NodeSpeed::assumed(900),
        fresh_ms: FRESH_MS,
        version: None,
        via: instance(1),
        keep,
    };
    for n in 1..=3 {
        w.take(place.cell, key(n)).await;
        w.store.commit(place.cell, key(n), RUN_MS).await.expect("a reply");
    }
    let keeps = [
        (KeptLeases::All, vec![]),
        (KeptLeases::Only(vec![key(3), key(1), attempt(2, 2), key(9)]), vec![key(2)]),
        (KeptLeases::NONE, vec![key(1), key(3)]),
    ];
    for (incarnation, (keep, lost)) in (2..).zip(keeps) {
        let before = w.store.view(place.cell).await.expect("a view").leases;
        place = w.assign(0, incarnation, 0).await;
        let reply = w.store.register(registered(place, keep)).await.expect("a reply");
        assert!(matches!(&reply, RegisterReply::Registered { lost: l, .. } if *l == lost));
        let kept = before.into_iter().filter(|lease| !lost.contains(&lease.key));
        let moved: Vec<_> = kept.map(|l| LeaseRecord { epoch: place.epoch, ..l }).collect();
        let view = w.store.view(place.cell).await.expect("a view");
        assert_eq!(view.leases, moved);
        assert_eq!(usize::from(view.nodes[0].used), moved.len());
        let running: Vec<_> = moved.iter().map(|lease| lease.key).collect();
        assert_eq!(w.heartbeat(place, running).await, [], "they are leases of the new epoch");
    }
    w.take(place.cell, key(4)).await;
    w.store.set_state(place, NodeCommand::Offline).await.expect("a reply");
    let place = w.assign(0, 9, 0).await;
    let reply = w.store.register(registered(place, KeptLeases::All)).await.expect("a reply");
    assert!(matches!(reply, RegisterReply::Registered { lost, .. } if lost.is_empty()));
    assert_eq!(w.store.view(place.cell).await.expect("a view").leases, []);
}

/// A heartbeat of an unknown node creates nothing.
pub async fn a_heartbeat_of_an_unknown_node_is_refused<S: Store>(w: World<S>) {
    let place = w.assign(0, 1, 0).await;
    let reply = w.store.heartbeat(heartbeat(place, vec![])).await.expect("a reply");
    assert_eq!(reply, HeartbeatReply::Reregister);
    let reply = w.store.set_state(place, NodeCommand::Drain).await.expect("a reply");
    assert_eq!(reply, NodeCommandReply::Stale);
    assert!(w.store.view(place.cell).await.expect("a view").nodes.is_empty());
    assert_eq!(w.try_reserve(place.cell, reserve(key(1))).await, ReserveOutcome::NoneCapable);
}

/// A heartbeat does not change capabilities.
pub async fn a_heartbeat_without_capabilities_keeps_them<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 1).await;
    w.heartbeat(place, vec![]).await;
    let view = w.store.view(place.cell).await.expect("a view");
    assert_eq!(view.nodes[0].profile, profile("zh en", 1));
    w.take(place.cell, key(1)).await;
}

/// A heartbeat renews the leases of running jobs and lists those without one.
pub async fn running_leases_are_renewed_and_unknown_ones_listed<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 2).await;
    let other = w.join(1, "fr", 2).await;
    w.take(place.cell, key(1)).await;
    w.store.commit(place.cell, key(1), RUN_MS).await.expect("a reply");
    for _ in 0..5 {
        w.clock.advance(RUN_MS - 1);
        assert!(w.heartbeat(place, vec![key(1)]).await.is_empty());
        w.heartbeat(other, vec![]).await;
        assert!(w.store.reap(place.cell, 9).await.expect("a reply").expired.is_empty());
    }
    let strange = [key(9), attempt(1, 2)];
    assert_eq!(w.heartbeat(place, strange.to_vec()).await, strange);
    assert_eq!(w.heartbeat(other, vec![key(1)]).await, [key(1)], "it runs elsewhere");
    w.clock.advance(RUN_MS + 1);
    let expired = w.store.reap(place.cell, 9).await.expect("a reply").expired;
    assert_eq!(
        expired.iter().map(|e| (e.key, e.phase)).collect::<Vec<_>>(),
        [(key(1), LeasePhase::Committed)]
    );
}

/// Only a resume command ends a drain command.
pub async fn a_drain_order_outlives_a_reconnect<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 2).await;
    w.take(place.cell, key(1)).await;
    let set = w.store.set_state(place, NodeCommand::Drain).await.expect("a reply");
    assert_eq!(set, NodeCommandReply::Set { lost: vec![] }, "what runs goes on");
    let full = w.try_reserve(place.cell, reserve(key(2))).await;
    assert_eq!(full_with(&full), Some((1, 0)));
    let ready = HeartbeatRequest { health: Some(Health::Ready), ..heartbeat(place, vec![key(1)]) };
    let beaten = w.store.heartbeat(ready).await.expect("a reply");
    assert_eq!(beaten, HeartbeatReply::Accepted { drain: true, unknown: vec![] });

    let again = w.assign(0, 2, 0).await;
    w.register(0, again, profile("zh en", 2)).await.expect("a new incarnation");
    let full = w.try_reserve(place.cell, reserve(key(2))).await;
    assert_eq!(full_with(&full), Some((1, 0)));
    w.store.set_state(again, NodeCommand::Resume).await.expect("a reply");
    let own_wish = HeartbeatRequest { health: Some(Health::Draining), ..heartbeat(again, vec![]) };
    let beaten = w.store.heartbeat(own_wish).await.expect("a reply");
    assert_eq!(
        beaten,
        HeartbeatReply::Accepted { drain: false, unknown: vec![] },
        "nobody ordered it"
    );
    w.store
        .heartbeat(HeartbeatRequest { health: Some(Health::Ready), ..heartbeat(again, vec![]) })
        .await
        .expect("a reply");
    w.take(place.cell, key(2)).await;
}

/// Signing off reports the lost leases once; the node needs a new place to return.
pub async fn a_signed_off_node_loses_its_leases_once<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 2).await;
    w.take(place.cell, key(1)).await;
    let set = w.store.set_state(place, NodeCommand::Offline).await.expect("a reply");
    assert_eq!(set, NodeCommandReply::Set { lost: vec![key(1)] });
    let again = w.store.set_state(place, NodeCommand::Offline).await.expect("a reply");
    assert_eq!(again, NodeCommandReply::Set { lost: vec![] });
    let full = w.try_reserve(place.cell, reserve(key(2))).await;
    assert_eq!(full_with(&full), Some((1, 0)));
    let heartbeat = w.store.heartbeat(heartbeat(place, vec![])).await.expect("a reply");
    assert_eq!(heartbeat, HeartbeatReply::Reregister);
    assert_eq!(w.register(0, place, profile("zh en", 2)).await, None, "this incarnation has ended");
    let back = w.assign(0, 2, 0).await;
    w.register(0, back, profile("zh en", 2)).await.expect("a new incarnation");
    w.take(back.cell, key(2)).await;
}

/// A node with more jobs than slots gets no new ones.
pub async fn a_shrunken_node_admits_nothing_until_there_is_room<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 3).await;
    for n in 1..=3 {
        w.take(place.cell, key(n)).await;
    }
    w.register(0, place, profile("zh en", 1)).await.expect("the same incarnation");
    for n in 1..=3 {
        let full = w.try_reserve(place.cell, reserve(key(9))).await;
        assert_eq!(full_with(&full), Some((1, 0)));
        w.finish(place.cell, key(n)).await.expect("it was held");
    }
    w.take(place.cell, key(9)).await;
}

/// Expired leases hold no slots, however many there are.
pub async fn an_expired_lease_never_makes_a_cell_full<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 100).await;
    for n in 0..100 {
        w.take(place.cell, key(n)).await;
    }
    let small = w.join(1, "fr", 1).await;
    let french = |n| ReserveRequest { query: Query::new(pair("fr:fr")), ..reserve(key(n)) };
    assert!(matches!(w.try_reserve(small.cell, french(200)).await, ReserveOutcome::Granted { .. }));
    w.clock.advance(ACK_MS + 1);
    // The French lease is the youngest of 101 dead ones; it must not stand in the way.
    let reply = w.store.reserve(small.cell, french(201)).await.expect("a reply");
    assert!(matches!(reply.outcome, ReserveOutcome::Granted { .. }), "{:?}", reply.outcome);
    assert!(reply.expired.iter().any(|e| e.key == key(200)));
}

/// A node that has just signed off makes a cell full, so that jobs wait for it; after that no
/// node can do the job.
pub async fn a_node_that_has_just_gone_counts_as_capable<S: Store>(w: World<S>) {
    let place = w.join(0, "zh en", 1).await;
    w.store.set_state(place, NodeCommand::Offline).await.expect("a reply");
    let full = w.try_reserve(place.cell, reserve(key(1))).await;
    assert_eq!(full_with(&full), Some((1, 0)));
    w.clock.advance(w.rules.gone_ms);
    // A second command does not prolong it.
    w.store.set_state(place, NodeCommand::Offline).await.expect("a reply");
    assert_eq!(w.try_reserve(place.cell, reserve(key(1))).await, full);
    w.clock.advance(1);
    let none = w.try_reserve(place.cell, reserve(key(1))).await;
    assert_eq!(none, ReserveOutcome::NoneCapable);
    // Another node does not change that.
    let other = w.join(1, "fr", 1).await;
    assert_eq!(w.try_reserve(other.cell, reserve(key(1))).await, ReserveOutcome::NoneCapable);
}

/// Public jobs do not get private nodes, private ones not those of other tenants, and no job gets
/// an overloaded node.
pub async fn private_and_overloaded_nodes_are_not_selected<S: Store>(w: World<S>) {
    let set = || langs("zh en");
    let caps = Capabilities::new(set(), set(), set(), Nmt::AnyToAny, ServiceSet::ALL);
    let private = Profile::new(caps.expect("languages"), 4, false).expect("slots");
    let place = w.assign(0, 1, 0).await;
    w.register(0, place, private.into()).await.expect("a fresh place");
    let public = w.try_reserve(place.cell, reserve(key(1))).await;
    assert_eq!(public, ReserveOutcome::NoneCapable);
    let query = Query { public: false, ..Query::new(pair("zh:en")) };
    let request = ReserveRequest { query, ..reserve(key(1)) };
    let alice = Query { tenant: Tenant::new("alice").expect("a name"), ..query };
    let foreign = ReserveRequest { query: alice, ..reserve(key(3)) };
    assert_eq!(w.try_reserve(place.cell, foreign.clone()).await, ReserveOutcome::NoneCapable);
    let pin = Some(Pin { slot: place.slot, epoch: place.epoch, strict: true });
    let pinned = w.try_reserve(place.cell, ReserveRequest { pin, ..foreign }).await;
    assert_eq!(pinned, ReserveOutcome::PinLost(RejectReason::OtherTenant));
    assert!(matches!(
        w.try_reserve(place.cell, request.clone()).await,
        ReserveOutcome::Granted { .. }
    ));

    for (cpu, gpu, memory) in [(0.9, 0.0, 0.0), (0.0, 0.95, 0.0), (0.0, 0.0, 1.0)] {
        let load = Load::new(cpu, gpu, memory).expect("a load");
        let busy = HeartbeatRequest { load: Some(load), ..heartbeat(place, vec![]) };
        w.store.heartbeat(busy).await.expect("a reply");
        // A heartbeat without a load changes none.
        w.heartbeat(place, vec![]).await;
        let full =
            w.try_reserve(place.cell, ReserveRequest { key: key(2), ..request.clone() }).await;
        assert_eq!(full_with(&full), Some((1, 0)), "{load:?}");
    }
    let idle = HeartbeatRequest { load: Some(Load::default()), ..heartbeat(place, vec![]) };
    w.store.heartbeat(idle).await.expect("a reply");
    let calm = w.try_reserve(place.cell, ReserveRequest { key: key(2), ..request }).await;
    assert!(matches!(calm, ReserveOutcome::Granted { .. }));
}

/// An explanation names the node that a reservation gets.
pub async fn an_explanation_from_a_view_agrees_with_the_store<S: Store>(w: World<S>) {
    let mut cell = None;
    for (n, (words, slots)) in
        [("zh en", 1), ("zh en fr", 2), ("zh en", 4), ("fr", 1)].into_iter().enumerate()
    {
        cell = Some(w.join(n, words, slots).await.cell);
    }
    let cell = cell.expect("nodes joined");
    for n in 0..8 {
        let random = (n as u32).wrapping_mul(0x9E37_79B9);
        let query = Query { keep_last: n % 2 == 0, ..Query::new(pair("zh:en")) };
        let view = w.store.view(cell).await.expect("a view");
        let told = view.roster(w.rules).explain(&query, view.now_ms, random);
        let done = w.try_reserve(cell, ReserveRequest { query, random, ..reserve(key(n)) }).await;
        let chosen = told.verdicts.iter().find(|(_, v)| matches!(v, NodeVerdict::Chosen { .. }));
        match done {
            ReserveOutcome::Granted { grant, .. } => {
                assert_eq!(chosen.map(|c| c.0), Some(grant.slot))
            }
            ReserveOutcome::Full { capable, free, .. } => {
                assert_eq!(chosen, None);
                assert_eq!((told.choice.capable, told.choice.free), (capable, free));
            }
            other => panic!("{other:?}"),
        }
    }
}
