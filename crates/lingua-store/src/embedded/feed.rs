//! The change feed in memory: a ring of the last changes.
//!
//! Invariant: a reader that has fallen behind the ring gets a gap; it never misses a change
//! silently.

use std::collections::VecDeque;

use crate::contract::{Change, Changes};

#[derive(Debug, Clone)]
pub(super) struct Feed {
    ring: VecDeque<Change>,
    capacity: usize,
    /// The number of the newest change; the first one is 1.
    head: u64,
}

impl Feed {
    pub(super) fn new(capacity: usize) -> Self {
        Self { ring: VecDeque::with_capacity(capacity.min(1024)), capacity, head: 0 }
    }

    pub(super) fn push(&mut self, change: Change) {
        if self.ring.len() == self.capacity {
            self.ring.pop_front();
        }
        self.ring.push_back(change);
        self.head += 1;
    }

    pub(super) fn head(&self) -> u64 {
        self.head
    }

    /// The changes after `after`; `None` if there are none yet.
    pub(super) fn after(&self, after: u64, limit: usize) -> Option<Changes> {
        let oldest = self.head - self.ring.len() as u64 + 1;
        if after > self.head || after + 1 < oldest {
            // The reader is behind the ring, or its number is from before a restart.
            return Some(Changes { changes: vec![], next: self.head, gap: true });
        }
        let skip = (after + 1 - oldest) as usize;
        let changes: Vec<Change> = self.ring.iter().skip(skip).take(limit).cloned().collect();
        let next = after + changes.len() as u64;
        (!changes.is_empty()).then_some(Changes { changes, next, gap: false })
    }
}
