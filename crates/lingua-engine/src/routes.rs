//! Which cells to ask for a slot, and in which order.
//!
//! An instance remembers what each cell last answered for a pair. What it remembers may be old: that
//! costs a call, never correctness, because every cell that could have a slot is asked before a job is
//! told that there is none.

use hashbrown::HashMap;
use lingua_core::{CellId, LangPair};
use parking_lot::Mutex;

/// Most pairs that are remembered.
const PAIRS_MAX: usize = 4096;

/// What a cell last said about a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// No node of its can serve it.
    Incapable,
    /// This many slots are free.
    Free(u32),
}

#[derive(Debug, Default)]
pub(crate) struct Routes {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    cells: Vec<CellId>,
    said: HashMap<LangPair, HashMap<CellId, Said>>,
}

impl Routes {
    /// A node of this cell has changed: what the cell said before does not count.
    pub(crate) fn changed(&self, cell: CellId) {
        let mut inner = self.inner.lock();
        if let Err(at) = inner.cells.binary_search(&cell) {
            inner.cells.insert(at, cell);
        }
        for said in inner.said.values_mut() {
            said.remove(&cell);
        }
    }

    /// Everything may have changed; the fleet has these cells now.
    pub(crate) fn forget(&self, cells: Vec<CellId>) {
        *self.inner.lock() = Inner { cells, said: HashMap::new() };
    }

    /// The cell has this many slots left for the pair.
    pub(crate) fn free(&self, pair: LangPair, cell: CellId, free: u32) {
        self.note(pair, cell, Said::Free(free));
    }

    /// The cell has nobody for the pair.
    pub(crate) fn incapable(&self, pair: LangPair, cell: CellId) {
        self.note(pair, cell, Said::Incapable);
    }

    /// A slot that was used for the pair came free: a cell last seen full is worth asking again.
    pub(crate) fn freed(&self, pair: LangPair, cell: CellId) {
        let mut inner = self.inner.lock();
        let said = inner.said.get_mut(&pair).and_then(|cells| cells.get_mut(&cell));
        if let Some(Said::Free(free)) = said {
            *free += 1;
        }
    }

    fn note(&self, pair: LangPair, cell: CellId, what: Said) {
        let mut inner = self.inner.lock();
        if inner.said.len() >= PAIRS_MAX && !inner.said.contains_key(&pair) {
            inner.said.clear();
        }
        inner.said.entry(pair).or_default().insert(cell, what);
    }

    /// The cells to ask: the better of two random ones first, then the others, most free first.
    /// With `everywhere`, also those that said they have nobody.
    pub(crate) fn order(&self, pair: LangPair, random: u32, everywhere: bool) -> Vec<CellId> {
        let inner = self.inner.lock();
        let said = inner.said.get(&pair);
        let of = |cell: &CellId| said.and_then(|cells| cells.get(cell)).copied();
        // A cell that has not said anything yet may be all free.
        let free = |cell: &CellId| match of(cell) {
            Some(Said::Free(free)) => free,
            Some(Said::Incapable) => 0,
            None => u32::MAX,
        };
        let may_have = |cell: &&CellId| everywhere || of(cell) != Some(Said::Incapable);
        let mut cells: Vec<CellId> = inner.cells.iter().filter(may_have).copied().collect();
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
        routes.forget((0..10).map(cell).collect());
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
        routes.forget(vec![cell(0), cell(1)]);
        routes.free(pair, cell(0), 0);
        routes.free(pair, cell(1), 5);
        for random in [0, 1 << 31, u32::MAX] {
            assert_eq!(routes.order(pair, random, false), [cell(1), cell(0)]);
        }
        (0..6).for_each(|_| routes.freed(pair, cell(0)));
        assert_eq!(routes.order(pair, 0, false), [cell(0), cell(1)]);
    }
}
