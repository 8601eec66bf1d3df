//! Which cells are asked for a slot, and in which order.
//!
//! Start at [`Routes::order`]. An instance remembers what each cell last answered for a pair. That
//! may be out of date, which costs a call but never correctness: every cell that could have a slot
//! is asked before a job learns that there is none.

use hashbrown::HashMap;
use lingua_core::{CellId, LangPair};
use parking_lot::Mutex;

/// Most pairs that are remembered.
const PAIRS_MAX: usize = 4096;

/// What a cell last answered for a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastReply {
    /// It has no node that can serve the pair.
    Incapable,
    /// It has so many free slots for the pair.
    Free(u32),
}

#[derive(Debug, Default)]
pub(crate) struct Routes(Mutex<KnownCells>);

#[derive(Debug, Default)]
struct KnownCells {
    cells: Vec<CellId>,
    replies: HashMap<LangPair, HashMap<CellId, LastReply>>,
}

impl Routes {
    /// A node of this cell has changed: forgets what the cell answered before.
    pub(crate) fn changed(&self, cell: CellId) {
        let mut known = self.0.lock();
        if let Err(at) = known.cells.binary_search(&cell) {
            known.cells.insert(at, cell);
        }
        for replies in known.replies.values_mut() {
            replies.remove(&cell);
        }
    }

    /// Forgets everything; the fleet has these cells now.
    pub(crate) fn reset(&self, cells: Vec<CellId>) {
        *self.0.lock() = KnownCells { cells, replies: HashMap::new() };
    }

    /// The cell has so many slots left for the pair.
    pub(crate) fn free(&self, pair: LangPair, cell: CellId, free: u32) {
        self.note(pair, cell, LastReply::Free(free));
    }

    /// The cell has no node for the pair.
    pub(crate) fn incapable(&self, pair: LangPair, cell: CellId) {
        self.note(pair, cell, LastReply::Incapable);
    }

    /// A slot that was used for the pair came free: a cell last seen full is worth asking again.
    pub(crate) fn freed(&self, pair: LangPair, cell: CellId) {
        let mut known = self.0.lock();
        let reply = known.replies.get_mut(&pair).and_then(|cells| cells.get_mut(&cell));
        if let Some(LastReply::Free(free)) = reply {
            *free += 1;
        }
    }

    fn note(&self, pair: LangPair, cell: CellId, reply: LastReply) {
        let mut known = self.0.lock();
        if known.replies.len() >= PAIRS_MAX && !known.replies.contains_key(&pair) {
            known.replies.clear();
        }
        known.replies.entry(pair).or_default().insert(cell, reply);
    }

    /// The cells to ask: the better of two random ones first, then the others, most free first.
    /// With `everywhere`, also those that have no node for the pair.
    pub(crate) fn order(&self, pair: LangPair, random: u32, everywhere: bool) -> Vec<CellId> {
        let known = self.0.lock();
        let replies = known.replies.get(&pair);
        let reply = |cell: &CellId| replies.and_then(|cells| cells.get(cell)).copied();
        // A cell that has not answered yet may be all free.
        let free = |cell: &CellId| match reply(cell) {
            Some(LastReply::Free(free)) => free,
            Some(LastReply::Incapable) => 0,
            None => u32::MAX,
        };
        let is_asked = |cell: &&CellId| everywhere || reply(cell) != Some(LastReply::Incapable);
        let mut cells: Vec<CellId> = known.cells.iter().filter(is_asked).copied().collect();
        if cells.len() > 1 {
            let n = cells.len() as u64;
            let a = ((u64::from(random) * n) >> 32) as usize;
            let b = ((u64::from(random.wrapping_mul(0x9E37_79B9)) * (n - 1)) >> 32) as usize;
            let b = if b >= a { b + 1 } else { b };
            let better = if free(&cells[b]) > free(&cells[a]) { b } else { a };
            cells.swap(0, better);
            cells[1..].sort_by_key(|cell| std::cmp::Reverse(free(cell)));
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(n: usize) -> CellId {
        CellId::new(n).unwrap()
    }

    #[test]
    fn every_cell_that_could_have_a_slot_is_asked_once() {
        let routes = Routes::default();
        let pair = "zh:en".parse().unwrap();
        routes.reset((0..10).map(cell).collect());
        routes.incapable(pair, cell(3));
        for i in 0..100u32 {
            let mut order = routes.order(pair, i.wrapping_mul(0x9E37_79B9), false);
            order.sort();
            let expected: Vec<CellId> = (0..10).filter(|&n| n != 3).map(cell).collect();
            assert_eq!(order, expected);
        }
        assert_eq!(routes.order(pair, 0, true).len(), 10);
        routes.changed(cell(3));
        assert_eq!(routes.order(pair, 0, false).len(), 10, "its nodes have changed");
    }

    #[test]
    fn the_better_of_two_comes_first() {
        let routes = Routes::default();
        let pair = "zh:en".parse().unwrap();
        routes.reset(vec![cell(0), cell(1)]);
        routes.free(pair, cell(0), 0);
        routes.free(pair, cell(1), 5);
        for random in [0, 1 << 31, u32::MAX] {
            assert_eq!(routes.order(pair, random, false), [cell(1), cell(0)]);
        }
        (0..6).for_each(|_| routes.freed(pair, cell(0)));
        assert_eq!(routes.order(pair, 0, false), [cell(0), cell(1)]);
    }
}
