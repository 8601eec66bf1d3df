//! Which node the jobs of one bind key go to.
//!
//! Start at [`Bindings::get`]. Invariant: at most `capacity` bindings are kept, and the oldest is
//! dropped first. A binding names an incarnation, so that a node that came back is not mistaken
//! for the one that has the context.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use lingua_core::job::Grant;
use lingua_core::planted::{self, Bug};
use lingua_store::contract::Place;
use parking_lot::Mutex;

#[derive(Debug)]
pub(crate) struct Bindings {
    capacity: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    places: HashMap<Arc<str>, Place>,
    order: VecDeque<Arc<str>>,
}

impl Bindings {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, inner: Mutex::default() }
    }

    /// Where the jobs of this key went last.
    pub(crate) fn get(&self, key: &str) -> Option<Place> {
        self.inner.lock().places.get(key).copied()
    }

    /// Whether the jobs of this key leave the node that has their context.
    pub(crate) fn moves(&self, key: &str, grant: &Grant) -> bool {
        let place = place_of(grant);
        self.get(key).is_some_and(|before| match planted::is(Bug::BindingIgnoresEpoch) {
            false => before != place,
            true => (before.cell, before.slot) != (place.cell, place.slot),
        })
    }

    /// Restores the former place after a job of this key could not be sent.
    pub(crate) fn undo(&self, key: &str, grant: &Grant, before: Option<Place>) {
        let mut inner = self.inner.lock();
        if let (Some(place), Some(before)) = (inner.places.get_mut(key), before)
            && *place == place_of(grant)
        {
            *place = before;
        }
    }

    /// Binds the key to the place of this grant.
    pub(crate) fn remember(&self, key: &Arc<str>, grant: &Grant) {
        let place = place_of(grant);
        let mut inner = self.inner.lock();
        let before = inner.places.insert(Arc::clone(key), place);
        if before.is_none() {
            inner.order.push_back(Arc::clone(key));
            if inner.order.len() > self.capacity
                && let Some(oldest) = inner.order.pop_front()
            {
                inner.places.remove(&oldest);
            }
        }
    }
}

fn place_of(grant: &Grant) -> Place {
    Place { cell: grant.cell, slot: grant.slot, epoch: grant.epoch }
}

#[cfg(test)]
mod tests {
    use lingua_core::{CellId, Epoch, Fence, InstanceId, NodeId, Slot};

    use super::*;

    fn grant(epoch: u64) -> Grant {
        Grant {
            node: NodeId::new("n").unwrap(),
            cell: CellId::new(0).unwrap(),
            slot: Slot::new(0).unwrap(),
            epoch: Epoch(epoch),
            fence: Fence(1),
            via: InstanceId::new("one").unwrap(),
        }
    }

    #[test]
    fn a_binding_notices_a_move_and_the_oldest_is_dropped() {
        let bindings = Bindings::new(2);
        let keys: Vec<Arc<str>> = ["a", "b", "c"].map(Arc::from).to_vec();
        assert!(!bindings.moves(&keys[0], &grant(1)));
        bindings.remember(&keys[0], &grant(1));
        assert!(!bindings.moves(&keys[0], &grant(1)));
        assert!(bindings.moves(&keys[0], &grant(2)), "another incarnation is a move");
        bindings.remember(&keys[0], &grant(2));
        bindings.remember(&keys[1], &grant(1));
        bindings.remember(&keys[2], &grant(1));
        assert_eq!(bindings.get("a"), None);
        let before = bindings.get("b");
        bindings.remember(&keys[1], &grant(3));
        bindings.undo("b", &grant(3), before);
        assert!(bindings.moves(&keys[1], &grant(3)), "it did not get there");
        assert!(!bindings.moves(&keys[1], &grant(1)));
        assert!(bindings.get("b").is_some() && bindings.get("c").is_some());
    }
}
