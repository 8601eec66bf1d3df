//! A set of a cell's slots, as one 128-bit mask.
//!
//! A cell has at most 100 nodes, so that a few AND operations find those that can do a job.

use std::fmt;
use std::ops::{BitAnd, BitAndAssign, BitOr, Not};

use crate::id::{CELL_NODES_MAX, Slot};

const _: () = assert!(CELL_NODES_MAX <= 128, "a slot set is 128 bits wide");

/// A set of [`Slot`]s.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotSet(u128);

impl SlotSet {
    /// The set without any slot.
    pub const EMPTY: Self = Self(0);
    /// Every slot that a cell can have.
    pub const ALL: Self = Self((1 << CELL_NODES_MAX) - 1);

    /// The set with the bits of this mask; bits beyond the last slot are ignored.
    pub fn from_mask(mask: u128) -> Self {
        Self(mask) & Self::ALL
    }

    /// The set as a mask, bit i for slot i.
    pub fn mask(self) -> u128 {
        self.0
    }

    /// Whether the slot is in the set.
    pub fn contains(self, slot: Slot) -> bool {
        self.0 >> slot.index() & 1 == 1
    }

    /// Adds the slot.
    pub fn insert(&mut self, slot: Slot) {
        self.0 |= 1 << slot.index();
    }

    /// Removes the slot.
    pub fn remove(&mut self, slot: Slot) {
        self.0 &= !(1 << slot.index());
    }

    /// Adds or removes the slot.
    pub fn set(&mut self, slot: Slot, member: bool) {
        if member { self.insert(slot) } else { self.remove(slot) }
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of slots in the set.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The lowest slot in the set.
    pub fn first(self) -> Option<Slot> {
        Slot::new(self.0.trailing_zeros() as usize)
    }

    /// The slots, lowest first.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Slot> {
        // Two halves: 64-bit shifts are one instruction, 128-bit ones are four.
        let (mut low, mut high) = (self.0 as u64, (self.0 >> 64) as u64);
        std::iter::from_fn(move || {
            let (half, first) = if low != 0 { (&mut low, 0) } else { (&mut high, 64) };
            let slot = Slot::new(first + half.trailing_zeros() as usize)?;
            *half &= *half - 1;
            Some(slot)
        })
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Self {
        let mut set = Self::EMPTY;
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
    }
}

impl BitAnd for SlotSet {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for SlotSet {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAndAssign for SlotSet {
    fn bitand_assign(&mut self, other: Self) {
        self.0 &= other.0;
    }
}

impl Not for SlotSet {
    type Output = Self;
    fn not(self) -> Self {
        Self(!self.0) & Self::ALL
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Slot::index)).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_set_of_numbers(mask in any::<u128>(), other in any::<u128>()) {
            let (a, b) = (SlotSet::from_mask(mask), SlotSet::from_mask(other));
            let listed: Vec<usize> = a.iter().map(Slot::index).collect();
            let is_set = |i: &usize| mask >> i & 1 == 1;
            let expected: Vec<usize> = (0..CELL_NODES_MAX).filter(is_set).collect();
            prop_assert_eq!(&listed, &expected);
            prop_assert_eq!(a.len(), expected.len());
            prop_assert_eq!(a.first().map(Slot::index), expected.first().copied());
            prop_assert_eq!((a & b) | (a & !b), a);
            prop_assert_eq!(a.iter().collect::<SlotSet>(), a);
        }
    }
}
