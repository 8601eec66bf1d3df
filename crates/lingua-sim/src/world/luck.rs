//! Chance, split by name.
//!
//! Invariant: each actor has a stream of its own, so that one actor more or less does not shift what the
//! others draw.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A stream of random numbers that belongs to one actor.
#[derive(Debug, Clone)]
pub(super) struct Luck(ChaCha8Rng);

impl Luck {
    /// The stream of this actor in the world of this seed.
    pub(super) fn new(seed: u64, who: &str) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        rng.set_stream(who.bytes().fold(0xcbf2_9ce4_8422_2325, fnv));
        Self(rng)
    }

    /// A stream for somebody who is made by this one.
    pub(super) fn fork(&mut self) -> Self {
        Self(ChaCha8Rng::seed_from_u64(self.number()))
    }

    /// Any number.
    pub(super) fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.random_range(low..=high)
    }

    /// True so many times out of a thousand.
    pub(super) fn permille(&mut self, permille: u32) -> bool {
        self.0.random_range(0..1000) < permille
    }

    /// One of these, which must not be empty.
    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.0.random_range(0..of.len())]
    }
}
