//! Which node is in which cell.

use std::collections::BTreeMap;

use lingua_core::{CELL_NODES_MAX, CellId, TokenName};

use crate::conformance::World;
use crate::conformance::fixture::{key, node, profile, reserve};
use crate::contract::{
    AssignReply, AssignRequest, Incarnation, NodeClass, NodeCommand, ReserveOutcome, SPREAD_FROM,
    Store,
};

/// Empty cells do not hide the cells behind them.
pub async fn every_cell_is_found_across_gaps<S: Store>(w: World<S>) {
    let mut places = vec![];
    for n in 0..250 {
        places.push(w.assign(n, 1, 0).await);
    }
    let cells = w.store.cells().await.expect("a reply");
    assert!(cells.len() >= 3);
    for (n, place) in places.iter().enumerate().filter(|(_, place)| place.cell != cells[2]) {
        assert!(w.store.release(&node(n), place.epoch).await.expect("a reply"));
    }
    assert_eq!(w.store.cells().await.expect("a reply"), [cells[2]]);
}

/// 250 nodes of one pair fill three cells or more, and no cell has more than a hundred.
pub async fn a_cell_has_at_most_a_hundred_nodes<S: Store>(w: World<S>) {
    let mut filled: BTreeMap<CellId, usize> = BTreeMap::new();
    for n in 0..250 {
        *filled.entry(w.assign(n, 1, 0).await.cell).or_default() += 1;
    }
    assert!(filled.len() >= 3, "{filled:?}");
    assert_eq!(filled.values().sum::<usize>(), 250);
    assert!(filled.values().all(|&count| count <= CELL_NODES_MAX), "{filled:?}");
}

/// Cells are alike in size, whether the nodes are of one class or of many.
pub async fn cells_stay_alike_in_size<S: Store>(w: World<S>) {
    for classes in [1, 17, 101] {
        let mut filled: BTreeMap<CellId, usize> = BTreeMap::new();
        let mut places = vec![];
        for n in 0..101 {
            let class = 1000 * classes + n as u32 % classes;
            let (n, place) = (n, w.assign(n, 1, class).await);
            *filled.entry(place.cell).or_default() += 1;
            places.push((node(n), place.epoch));
        }
        let sizes: Vec<usize> = filled.values().copied().collect();
        assert_eq!(sizes.len(), 2, "{classes} classes: {filled:?}");
        assert!(sizes.iter().all(|&size| size >= 45), "{classes} classes: {filled:?}");
        for (node, epoch) in places {
            assert!(w.store.release(&node, epoch).await.expect("a reply"));
        }
    }
}

/// The loss of one cell must not take away a popular pair; a rare pair stays in one cell.
pub async fn a_popular_class_spans_two_cells_and_a_small_one_stays_together<S: Store>(w: World<S>) {
    let mut cells_of = BTreeMap::<u32, BTreeMap<CellId, usize>>::new();
    for n in 0..SPREAD_FROM + 10 {
        let popular = w.assign(n, 1, 1).await;
        *cells_of.entry(1).or_default().entry(popular.cell).or_default() += 1;
        if n % 4 == 0 {
            let rare = w.assign(1000 + n, 1, 2).await;
            *cells_of.entry(2).or_default().entry(rare.cell).or_default() += 1;
        }
        if n < SPREAD_FROM {
            assert_eq!(cells_of[&1].len(), 1, "a small class stays together");
        }
    }
    assert_eq!(cells_of[&1].len(), 2, "{cells_of:?}");
    assert_eq!(cells_of[&2].len(), 1, "{cells_of:?}");
}

/// A node keeps its place; each incarnation gets a higher epoch.
pub async fn a_place_is_kept_and_each_incarnation_gets_a_higher_epoch<S: Store>(w: World<S>) {
    let first = w.assign(0, 1, 0).await;
    assert_eq!(w.assign(0, 1, 0).await, first, "the same life, asked twice");
    let second = w.assign(0, 2, 0).await;
    assert_eq!((second.cell, second.slot), (first.cell, first.slot));
    assert!(second.epoch > first.epoch);
    let other = w.assign(1, 1, 0).await;
    assert!(other.epoch > second.epoch, "epochs rise over the fleet");
    assert_eq!(w.store.locate(&node(0)).await.expect("a reply"), Some(second));
    assert_eq!(w.store.locate(&node(9)).await.expect("a reply"), None);
}

/// Messages of the former node of a slot are refused.
pub async fn a_reused_slot_refuses_its_former_tenant<S: Store>(w: World<S>) {
    let former = w.join(0, "zh en", 1).await;
    w.take(former.cell, key(1)).await;
    w.store.release(&node(0), former.epoch).await.expect("a reply");
    w.store.set_state(former, NodeCommand::Retire).await.expect("a reply");
    assert!(w.store.view(former.cell).await.expect("a view").leases.is_empty());
    assert_eq!(w.register(0, former, profile("zh en", 1)).await, None, "retired is retired");

    let present = w.join(1, "fr", 1).await;
    assert_eq!((present.cell, present.slot), (former.cell, former.slot));
    assert!(present.epoch > former.epoch);
    assert_eq!(w.register(0, former, profile("zh en", 1)).await, None);
    let none = w.try_reserve(former.cell, reserve(key(2))).await;
    assert_eq!(none, ReserveOutcome::NoneCapable);
}

/// A late clean-up does not free the place of a newer incarnation.
pub async fn a_place_is_released_only_by_its_present_epoch<S: Store>(w: World<S>) {
    let first = w.assign(0, 1, 0).await;
    let second = w.assign(0, 2, 0).await;
    assert!(!w.store.release(&node(0), first.epoch).await.expect("a reply"));
    assert_eq!(w.store.locate(&node(0)).await.expect("a reply"), Some(second));
    assert!(w.store.release(&node(0), second.epoch).await.expect("a reply"));
    assert!(!w.store.release(&node(0), second.epoch).await.expect("a reply"));
    assert_eq!(w.store.locate(&node(0)).await.expect("a reply"), None);
}

/// A node id belongs to the token that registered it, until its place is free. A token has at most
/// as many nodes as it may. Without tokens nothing is refused.
pub async fn a_node_belongs_to_the_token_that_registered_it<S: Store>(w: World<S>) {
    let assign = async |n, incarnation, owner: &str, owned_max| {
        let owner = (!owner.is_empty()).then(|| TokenName::new(owner).expect("a name"));
        let request = AssignRequest::new(node(n), Incarnation(incarnation), NodeClass(0));
        let request = AssignRequest { owner, owned_max, ..request };
        w.store.assign(request).await.expect("a reply")
    };
    let first = assign(0, 1, "one", Some(1)).await.placed().expect("a place");
    assert_eq!(assign(0, 2, "two", None).await, AssignReply::Taken);
    assert_eq!(w.store.locate(&node(0)).await, Ok(Some(first)), "nothing was changed");
    assert_eq!(assign(1, 1, "one", Some(1)).await, AssignReply::TooMany);
    let again = assign(0, 3, "one", Some(1)).await.placed().expect("its own node");
    assert!(again.epoch > first.epoch);
    let later = assign(0, 4, "", None).await.placed().expect("nothing is refused without tokens");
    assert!(w.store.release(&node(0), later.epoch).await.expect("a reply"));
    let second = assign(0, 5, "two", None).await.placed().expect("a free place");
    assert!(second.epoch > later.epoch);
    assert!(assign(1, 2, "one", Some(1)).await.placed().is_some(), "its count went down");
}
