//! Which nodes can only do one direction of a conversation of two.
//!
//! A store chooses by one direction. Where a node has to find out who speaks, it must be able to do both; those that
//! cannot are left out. What is remembered is at most [`FRESH_MS`] old; a node that changed its languages since refuses
//! what it cannot do.
//!
//! Start at [`OneWay::get`].

use hashbrown::HashMap;
use lingua_core::{CellId, LangPair, Needs, SlotSet};
use parking_lot::Mutex;

/// How long what was seen is believed.
const FRESH_MS: u64 = 2_000;

/// Most that is remembered.
const KNOWN_MAX: usize = 1024;

type Question = (CellId, LangPair, Needs);

/// Nodes that cannot do a direction, by cell.
#[derive(Debug, Default)]
pub(crate) struct OneWay(Mutex<HashMap<Question, (SlotSet, u64)>>);

impl OneWay {
    /// The nodes of a cell that lack something for this direction, if that was seen lately.
    pub(crate) fn get(&self, question: &Question, now_ms: u64) -> Option<SlotSet> {
        let known = self.0.lock();
        let &(slots, seen_ms) = known.get(question)?;
        (now_ms.saturating_sub(seen_ms) < FRESH_MS).then_some(slots)
    }

    pub(crate) fn put(&self, question: Question, slots: SlotSet, now_ms: u64) {
        let mut known = self.0.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(question, (slots, now_ms));
    }
}
