//! How cells, nodes and leases are shown.

use lingua_core::Rules;
use lingua_store::conformance::World;
use lingua_store::conformance::fixture::{key, node};
use lingua_store::{Embedded, ManualClock, StoreLimits};

use super::*;

async fn world() -> World<Embedded<ManualClock>> {
    let factory = |rules, clock| async move { Embedded::new(rules, StoreLimits::default(), clock) };
    World::new(factory, Rules::default()).await
}

#[tokio::test]
async fn a_cell_shows_its_nodes_and_leases() {
    let w = world().await;
    let place = w.join(0, "zh en", 4).await;
    w.take(place.cell, key(7)).await;
    w.clock.advance(1_500);
    let shown = show_cell(&w.store.view(place.cell).await.unwrap(), false);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("NODE    SLOT  STATE  USED"), "{shown}");
    assert!(lines[1].starts_with("node-0     0  ready   1/4"), "{shown}");
    assert!(lines[1].contains("1.5 s ago") && lines[1].ends_with("en zh"), "{shown}");
    assert!(lines[4].starts_with("job-00000000000000000000000000000007"), "{shown}");
    assert!(lines[4].contains("reserved  in 3.5 s"), "{shown}");
}

#[tokio::test]
async fn a_node_is_shown_with_its_own_leases_only() {
    let w = world().await;
    let place = w.join(0, "zh en", 1).await;
    w.take(place.cell, key(7)).await;
    w.join(1, "zh en", 1).await;
    w.take(place.cell, key(8)).await;
    let shown = show_node(&w.store, &node(0), false).await.unwrap();
    assert!(shown.contains("used:            1 of 1"), "{shown}");
    assert!(shown.contains("recognises:      en zh"), "{shown}");
    assert_eq!(shown.matches("job-").count(), 1, "{shown}");
    let error = show_node(&w.store, &node(9), false).await.unwrap_err();
    assert!(error.to_string().contains("no node node-9"), "{error}");
}

#[tokio::test]
async fn an_expired_lease_is_marked() {
    let w = world().await;
    let place = w.join(0, "zh en", 1).await;
    w.take(place.cell, key(7)).await;
    w.clock.advance(60_000);
    let shown = show_cell(&w.store.view(place.cell).await.unwrap(), false);
    assert!(shown.contains("stale") && shown.contains("not removed yet"), "{shown}");
}

#[tokio::test]
async fn the_overview_counts_by_cell() {
    let w = world().await;
    let place = w.join(0, "zh en", 4).await;
    w.take(place.cell, key(7)).await;
    let shown = overview(&w.store, false).await.unwrap();
    let row = shown.lines().nth(1).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(words, ["c0", "1", "1", "1", "4", "1"], "{shown}");
    assert!(shown.contains("No instance is known."), "{shown}");
}
