//! Which node the segments of a turn go to.
//!
//! Invariant: at most `capacity` bindings are kept, the oldest is forgotten first; a binding names an
//! incarnation, so that a node that came back is not mistaken for the one that has the context.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use lingua_core::job::Grant;
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

    /// Where this key's jobs went last.
    pub(crate) fn get(&self, key: &str) -> Option<Place> {
        self.inner.lock().places.get(key).copied()
    }

    /// Remembers where a job of this key goes; says whether that is a move.
    pub(crate) fn remember(&self, key: &Arc<str>, grant: &Grant) -> bool {
        let place = Place { cell: grant.cell, slot: grant.slot, epoch: grant.epoch };
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
        before.is_some_and(|before| before != place)
    }
}

#[cfg(test)]
mod tests {
    use lingua_core::{CellId, Epoch, Fence, NodeId, Slot};

    use super::*;

    fn grant(epoch: u64) -> Grant {
        Grant {
            node: NodeId::new("n").unwrap(),
            cell: CellId::new(0).unwrap(),
            slot: Slot::new(0).unwrap(),
            epoch: Epoch(epoch),
            fence: Fence(1),
        }
    }

    #[test]
    fn it_remembers_notices_a_move_and_forgets_the_oldest() {
        let bindings = Bindings::new(2);
        let keys: Vec<Arc<str>> = ["a", "b", "c"].map(Arc::from).to_vec();
        assert!(!bindings.remember(&keys[0], &grant(1)));
        assert!(!bindings.remember(&keys[0], &grant(1)));
        assert!(bindings.remember(&keys[0], &grant(2)), "another incarnation is a move");
        bindings.remember(&keys[1], &grant(1));
        bindings.remember(&keys[2], &grant(1));
        assert_eq!(bindings.get("a"), None);
        assert!(bindings.get("b").is_some() && bindings.get("c").is_some());
    }
}
