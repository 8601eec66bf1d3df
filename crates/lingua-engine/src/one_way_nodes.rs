//! The nodes that serve only one direction of a two-way session.
//!
//! The store selects nodes by one direction. If a node has to find out who speaks, it must serve
//! both directions, so the runner excludes the others. The answer is cached for [`FRESH_MS`]; a
//! node whose languages have changed since then refuses a job that it cannot do.
//!
//! Start at [`OneWayNodes::get`].

use hashbrown::HashMap;
use lingua_core::{CellId, LangPair, Needs, SlotSet};
use parking_lot::Mutex;

const FRESH_MS: u64 = 2_000;

/// Most cache entries; beyond that the cache is emptied.
const ENTRIES_MAX: usize = 1024;

/// The cell, and the direction and services that its nodes may lack.
type CacheKey = (CellId, LangPair, Needs);

/// Nodes that cannot serve a direction, by cell.
#[derive(Debug, Default)]
pub(crate) struct OneWayNodes(Mutex<HashMap<CacheKey, (SlotSet, u64)>>);

impl OneWayNodes {
    /// The slots of a cell's nodes that cannot serve this direction, unless the entry is too old.
    pub(crate) fn get(&self, key: &CacheKey, now_ms: u64) -> Option<SlotSet> {
        let cache = self.0.lock();
        let &(slots, seen_ms) = cache.get(key)?;
        (now_ms.saturating_sub(seen_ms) < FRESH_MS).then_some(slots)
    }

    pub(crate) fn put(&self, key: CacheKey, slots: SlotSet, now_ms: u64) {
        let mut cache = self.0.lock();
        if cache.len() >= ENTRIES_MAX {
            cache.clear();
        }
        cache.insert(key, (slots, now_ms));
    }
}
