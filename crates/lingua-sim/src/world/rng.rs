//! Random numbers, one stream for each actor.
//!
//! Invariant: an additional actor does not change the numbers that the others draw.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The random numbers of one actor.
#[derive(Debug, Clone)]
pub(super) struct SimRng(ChaCha8Rng);

impl SimRng {
    /// The stream of this actor in this world.
    pub(super) fn new(seed: u64, who: &str) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        rng.set_stream(who.bytes().fold(0xcbf2_9ce4_8422_2325, fnv));
        Self(rng)
    }

    /// A stream for an actor that this one creates.
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

    /// True with this probability, in thousandths.
    pub(super) fn permille(&mut self, permille: u32) -> bool {
        self.0.random_range(0..1000) < permille
    }

    /// One element of a list that is not empty.
    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.0.random_range(0..of.len())]
    }
}
