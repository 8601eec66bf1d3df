//! Which cell is asked for a slot.
//!
//! Start at [`Routes::draw`]. An instance remembers what each cell last told about its capacity for
//! such jobs, and draws a cell with a probability proportional to its free capacity. What a cell
//! told drifts back to its usual share as it ages. It may be out of date, which costs a call but
//! never correctness: every cell that could have a slot is asked before a job learns that there is
//! none.

use hashbrown::HashMap;
use lingua_core::roster::Capacity;
use lingua_core::{CELLS_MAX, CellId, LangPair, Needs, Tenant};
use parking_lot::Mutex;

/// Most replies of cells that are remembered.
const REPLIES_MAX: usize = 1 << 18;

/// Jobs that the same nodes can do, so that one reply speaks for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RouteKey {
    /// The direction of the translation.
    pub pair: LangPair,
    /// The services that the job needs.
    pub needs: Needs,
    /// The tenant whose nodes alone may get it; absent for public jobs.
    pub private_to: Option<Tenant>,
}

/// What a cell last told.
#[derive(Debug, Clone, Copy)]
enum LastReply {
    /// Nothing yet, or its nodes have changed since.
    None,
    /// It has no node for such jobs.
    Incapable,
    /// Its capacity, and when it told it.
    Capacity(Capacity, u64),
}

/// The cells that a search has asked already.
#[derive(Debug, Clone)]
pub struct AskedCells([u64; CELLS_MAX.div_ceil(64)]);

impl Default for AskedCells {
    fn default() -> Self {
        Self([0; CELLS_MAX.div_ceil(64)])
    }
}

impl AskedCells {
    fn contains(&self, cell: CellId) -> bool {
        self.0[cell.index() / 64] >> (cell.index() % 64) & 1 == 1
    }

    fn insert(&mut self, cell: CellId) {
        self.0[cell.index() / 64] |= 1 << (cell.index() % 64);
    }
}

/// The last replies of the cells, by which a search chooses.
#[derive(Debug, Default)]
pub struct Routes(Mutex<KnownCells>);

#[derive(Debug, Default)]
struct KnownCells {
    cells: Vec<CellId>,
    /// By cell.
    replies: HashMap<RouteKey, Vec<LastReply>>,
    /// How often each cell has changed, by cell.
    changes: Vec<u64>,
    resets: u64,
}

impl KnownCells {
    fn version(&self, cell: CellId) -> CellVersion {
        CellVersion(self.resets, self.changes.get(cell.index()).copied().unwrap_or(0))
    }

    fn note(&mut self, key: RouteKey, cell: CellId, reply: LastReply) {
        let room_for = self.cells.last().map_or(0, |last| last.index()).max(cell.index()) + 1;
        if (self.replies.len() + 1) * room_for > REPLIES_MAX && !self.replies.contains_key(&key) {
            self.replies.clear();
        }
        let replies = self.replies.entry(key).or_default();
        if replies.len() < room_for {
            replies.resize(room_for, LastReply::None);
        }
        replies[cell.index()] = reply;
    }
}

/// What was known of a cell when it was asked. A reply that was on its way while the cell changed
/// may tell of the time before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellVersion(u64, u64);

impl Routes {
    /// A node of this cell has changed: forgets what the cell told before.
    pub fn changed(&self, cell: CellId) {
        let mut known = self.0.lock();
        if let Err(at) = known.cells.binary_search(&cell) {
            known.cells.insert(at, cell);
        }
        if known.changes.len() <= cell.index() {
            known.changes.resize(cell.index() + 1, 0);
        }
        known.changes[cell.index()] += 1;
        for replies in known.replies.values_mut() {
            if let Some(reply) = replies.get_mut(cell.index()) {
                *reply = LastReply::None;
            }
        }
    }

    /// Forgets everything; the fleet has these cells now.
    pub fn reset(&self, cells: Vec<CellId>) {
        let mut known = self.0.lock();
        let resets = known.resets + 1;
        *known = KnownCells { cells, resets, ..KnownCells::default() };
    }

    /// The store has these cells; whether any of them was not known.
    pub fn learn(&self, cells: &[CellId]) -> bool {
        let mut known = self.0.lock();
        let count = known.cells.len();
        known.cells.extend(cells);
        known.cells.sort_unstable();
        known.cells.dedup();
        known.cells.len() > count
    }

    /// Call this before a cell is asked.
    pub fn version(&self, cell: CellId) -> CellVersion {
        self.0.lock().version(cell)
    }

    /// The cell, which was asked at this version, has no node for such jobs. If it has changed
    /// since, a node may have come that the reply does not know.
    pub fn incapable_at(&self, key: RouteKey, cell: CellId, asked: CellVersion) {
        let mut known = self.0.lock();
        if known.version(cell) == asked {
            known.note(key, cell, LastReply::Incapable);
        }
    }

    /// The cell gave a slot and has this capacity left.
    pub fn granted(&self, key: RouteKey, cell: CellId, left: Capacity, now_ms: u64) {
        self.note(key, cell, LastReply::Capacity(left, now_ms));
    }

    /// The cell has no slot for such a job, whatever else it has.
    pub fn full(&self, key: RouteKey, cell: CellId, capacity: Capacity, now_ms: u64) {
        self.note(key, cell, LastReply::Capacity(Capacity { free: 0, ..capacity }, now_ms));
    }

    /// The cell has no node for such jobs.
    pub fn incapable(&self, key: RouteKey, cell: CellId) {
        self.note(key, cell, LastReply::Incapable);
    }

    /// A job of this instance gave back its slot, which counted so much.
    pub fn freed(&self, key: RouteKey, cell: CellId, weight: u32) {
        let mut known = self.0.lock();
        let reply = known.replies.get_mut(&key).and_then(|replies| replies.get_mut(cell.index()));
        if let Some(LastReply::Capacity(capacity, _)) = reply {
            capacity.free = capacity.all.min(capacity.free + u64::from(weight));
        }
    }

    fn note(&self, key: RouteKey, cell: CellId, reply: LastReply) {
        self.0.lock().note(key, cell, reply);
    }

    /// A cell that was not asked yet, drawn by free capacity; marks it as asked. With `everywhere`
    /// also cells that had no node for such jobs. A reply counts half after `typical_ms`, the time
    /// that a job takes.
    pub fn draw(
        &self,
        key: RouteKey,
        asked: &mut AskedCells,
        everywhere: bool,
        random: u32,
        now_ms: u64,
        typical_ms: u32,
    ) -> Option<CellId> {
        let known = self.0.lock();
        let replies = known.replies.get(&key).map_or(&[][..], Vec::as_slice);
        let reply = |cell: CellId| replies.get(cell.index()).copied().unwrap_or(LastReply::None);
        let usual = UsualCapacity::new(known.cells.iter().map(|&cell| reply(cell)));
        let is_open = |cell: &CellId| {
            !asked.contains(*cell) && (everywhere || !matches!(reply(*cell), LastReply::Incapable))
        };
        let open = || known.cells.iter().copied().filter(is_open);
        let half_life_ms = f64::from(typical_ms.max(1));
        let free = |cell| usual.free_now(reply(cell), now_ms, half_life_ms);
        let lot = f64::from(random) / 4_294_967_296.0;
        // If everything is full, the cells with the oldest replies may have changed.
        let drawn = pick(open(), free, lot)
            .or_else(|| pick(open(), |cell| usual.all(reply(cell)), lot))
            .or_else(|| pick(open(), |_| 1.0, lot));
        drawn.inspect(|&cell| asked.insert(cell))
    }
}

/// What the average cell has, for cells that have not told.
struct UsualCapacity {
    /// The free share of all capacity.
    free_share: f64,
    all: f64,
}

impl UsualCapacity {
    fn new(replies: impl Iterator<Item = LastReply>) -> Self {
        let (mut free, mut all, mut count) = (0, 0, 0);
        for reply in replies {
            if let LastReply::Capacity(capacity, _) = reply {
                free += capacity.free;
                all += capacity.all;
                count += 1;
            }
        }
        match all {
            0 => Self { free_share: 1.0, all: 1.0 },
            _ => Self { free_share: free as f64 / all as f64, all: all as f64 / f64::from(count) },
        }
    }

    fn all(&self, reply: LastReply) -> f64 {
        match reply {
            LastReply::None => self.all,
            LastReply::Incapable => 0.0,
            LastReply::Capacity(capacity, _) => capacity.all as f64,
        }
    }

    /// What is probably free by now.
    fn free_now(&self, reply: LastReply, now_ms: u64, half_life_ms: f64) -> f64 {
        let usual = self.all(reply) * self.free_share;
        let LastReply::Capacity(Capacity { free, .. }, at_ms) = reply else { return usual };
        let (free, age_ms) = (free as f64, now_ms.saturating_sub(at_ms) as f64);
        free + (usual - free) * age_ms / (age_ms + half_life_ms)
    }
}

/// One of the cells, with a probability proportional to its weight; none if all weigh nothing.
fn pick(
    cells: impl Iterator<Item = CellId> + Clone,
    weight: impl Fn(CellId) -> f64,
    lot: f64,
) -> Option<CellId> {
    let total: f64 = cells.clone().map(&weight).sum();
    let mut left = lot * total;
    let mut last = None;
    for cell in cells {
        let weight = weight(cell);
        if weight > 0.0 {
            last = Some(cell);
            if left < weight {
                break;
            }
            left -= weight;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPICAL_MS: u32 = 1000;
    const DRAWS: u32 = 10_000;

    fn cell(n: usize) -> CellId {
        CellId::new(n).unwrap()
    }

    fn key() -> RouteKey {
        let (pair, needs) = ("zh:en".parse().unwrap(), Needs::SPEECH_TO_TEXT);
        RouteKey { pair, needs, private_to: None }
    }

    fn routes(cells: usize) -> Routes {
        let routes = Routes::default();
        routes.reset((0..cells).map(cell).collect());
        routes
    }

    /// The share of each cell among first draws at this time.
    fn shares(routes: &Routes, cells: usize, now_ms: u64) -> Vec<f64> {
        let mut counts = vec![0; cells];
        for i in 0..DRAWS {
            let random = i.wrapping_mul(0x9E37_79B9);
            let mut asked = AskedCells::default();
            let drawn = routes.draw(key(), &mut asked, false, random, now_ms, TYPICAL_MS);
            counts[drawn.unwrap().index()] += 1;
        }
        counts.into_iter().map(|n| f64::from(n) / f64::from(DRAWS)).collect()
    }

    fn assert_shares(found: Vec<f64>, expected: &[f64]) {
        let is_near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.01);
        assert!(is_near, "{found:?} instead of {expected:?}");
    }

    #[test]
    fn every_cell_that_could_have_a_slot_is_asked_once() {
        let routes = routes(10);
        routes.incapable(key(), cell(3));
        let ask_all = |everywhere, first: u32| {
            let mut asked = AskedCells::default();
            let mut cells = vec![];
            let mut random = first;
            while let Some(cell) = routes.draw(key(), &mut asked, everywhere, random, 0, TYPICAL_MS)
            {
                routes.full(key(), cell, Capacity { free: 0, all: 100 }, 0);
                cells.push(cell);
                random = random.wrapping_mul(0x9E37_79B9).wrapping_add(77);
            }
            cells.sort();
            cells
        };
        for i in 0..100u32 {
            let expected: Vec<CellId> = (0..10).filter(|&n| n != 3).map(cell).collect();
            assert_eq!(ask_all(false, i.wrapping_mul(0x9E37_79B9)), expected);
        }
        assert_eq!(ask_all(true, 0).len(), 10);
        routes.incapable(key(), cell(3));
        routes.changed(cell(3));
        assert_eq!(ask_all(false, 0).len(), 10, "its nodes have changed");
    }

    #[test]
    fn cells_that_the_store_has_are_learned_and_nothing_else_changes() {
        let routes = routes(2);
        routes.incapable(key(), cell(0));
        assert!(!routes.learn(&[cell(0), cell(1)]));
        assert!(routes.learn(&[cell(1), cell(3)]));
        assert_shares(shares(&routes, 4, 0), &[0.0, 0.5, 0.0, 0.5]);
    }

    #[test]
    fn a_late_reply_does_not_hide_a_cell_that_has_changed() {
        let routes = routes(2);
        let asked = routes.version(cell(1));
        routes.changed(cell(1));
        routes.incapable_at(key(), cell(1), asked);
        assert_shares(shares(&routes, 2, 0), &[0.5, 0.5]);
        let asked = routes.version(cell(1));
        routes.reset((0..2).map(cell).collect());
        routes.incapable_at(key(), cell(1), asked);
        assert_shares(shares(&routes, 2, 0), &[0.5, 0.5]);
        routes.incapable_at(key(), cell(1), routes.version(cell(1)));
        assert_shares(shares(&routes, 2, 0), &[1.0, 0.0]);
    }

    #[test]
    fn cells_are_drawn_by_their_free_capacity() {
        let routes = routes(3);
        for (n, free) in [60, 30, 10].into_iter().enumerate() {
            routes.granted(key(), cell(n), Capacity { free, all: 100 }, 0);
        }
        assert_shares(shares(&routes, 3, 0), &[0.6, 0.3, 0.1]);
        routes.freed(key(), cell(2), 50);
        assert_shares(shares(&routes, 3, 0), &[0.4, 0.2, 0.4]);
        routes.freed(key(), cell(2), 5000);
        assert_shares(shares(&routes, 3, 0), &[60.0 / 190.0, 30.0 / 190.0, 100.0 / 190.0]);
    }

    #[test]
    fn what_a_cell_told_drifts_to_its_usual_share() {
        let routes = routes(2);
        routes.full(key(), cell(0), Capacity { free: 0, all: 100 }, 0);
        routes.granted(key(), cell(1), Capacity { free: 100, all: 100 }, 0);
        assert_shares(shares(&routes, 2, 0), &[0.0, 1.0]);
        assert_shares(shares(&routes, 2, u64::from(TYPICAL_MS)), &[0.25, 0.75]);
        assert_shares(shares(&routes, 2, 1_000_000), &[0.5, 0.5]);
    }

    #[test]
    fn a_cell_that_has_not_told_counts_as_an_average_one() {
        let routes = routes(3);
        assert_shares(shares(&routes, 3, 0), &[1.0 / 3.0; 3]);
        routes.granted(key(), cell(0), Capacity { free: 30, all: 90 }, 0);
        routes.granted(key(), cell(1), Capacity { free: 10, all: 30 }, 0);
        assert_shares(shares(&routes, 3, 0), &[0.5, 1.0 / 6.0, 1.0 / 3.0]);
    }

    #[test]
    fn what_cells_tell_about_other_needs_does_not_count() {
        let routes = routes(2);
        let speech = RouteKey { needs: Needs::SPEECH_TO_SPEECH, ..key() };
        routes.incapable(speech, cell(0));
        assert_shares(shares(&routes, 2, 0), &[0.5, 0.5]);
    }
}
