//! When the next job of each node ends.
//!
//! Start at [`NextEnds::pop_until`].
//!
//! Invariant: a node is given out at most once for each time that it was set.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// The times at which nodes finish their next jobs.
#[derive(Debug)]
pub(super) struct NextEnds {
    due: BinaryHeap<Due>,
    /// Which entry of `due` is the node's present one.
    versions: Vec<u32>,
}

impl NextEnds {
    /// No node has a job.
    pub(super) fn new(nodes: usize) -> Self {
        Self { due: BinaryHeap::new(), versions: vec![0; nodes] }
    }

    /// Notes when the node's next job ends; what was noted before no longer counts.
    pub(super) fn set(&mut self, node: usize, at_s: Option<f64>) {
        self.versions[node] = self.versions[node].wrapping_add(1);
        if let Some(at_s) = at_s {
            self.due.push(Due { at_s, node, version: self.versions[node] });
        }
    }

    /// The node whose job ends first, and when, if that is not after this time.
    pub(super) fn pop_until(&mut self, until_s: f64) -> Option<(usize, f64)> {
        while let Some(&due) = self.due.peek().filter(|due| due.at_s <= until_s) {
            self.due.pop();
            if self.versions[due.node] == due.version {
                return Some((due.node, due.at_s));
            }
        }
        None
    }
}

/// A node whose next job ends then.
#[derive(Debug, Clone, Copy)]
struct Due {
    at_s: f64,
    node: usize,
    version: u32,
}

impl Ord for Due {
    /// The earliest is the greatest, since the heap gives out the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at_s.total_cmp(&self.at_s).then(other.node.cmp(&self.node))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_end_comes_first_and_a_replaced_one_never() {
        let mut ends = NextEnds::new(4);
        for (node, at_s) in [(1, 0.5), (0, 2.0), (2, 1.0), (1, 1.0), (3, 3.0)] {
            ends.set(node, Some(at_s));
        }
        ends.set(3, None);
        let order: Vec<_> = std::iter::from_fn(|| ends.pop_until(2.0)).collect();
        assert_eq!(order, [(1, 1.0), (2, 1.0), (0, 2.0)]);
    }
}
