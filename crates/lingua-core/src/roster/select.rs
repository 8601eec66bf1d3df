//! Chooses the node that gets a job.
//!
//! Start at [`Roster::choose`]. It has three steps:
//! 1. `sieve` leaves the nodes that may get the job now;
//! 2. `rank` scores those of them that have a free slot, as the policy says;
//! 3. `take` picks one of the best at random.
//!
//! Scores are whole numbers below 2⁵³ and the random number is 32 bits wide, so that a Lua script
//! in a store computes the very same choice.
//!
//! Invariant: the chosen node passed every stage of the sieve and has a free slot. If none is
//! chosen, no node of the cell has a free slot for this job but those kept for rarer pairs.

use super::Roster;
use super::policy::Policy;
use super::query::{Query, RejectReason};
use crate::id::{CELL_NODES_MAX, Slot};
use crate::node::{NodeState, Resource};
use crate::slot_set::SlotSet;

/// Each job that a node already runs makes the next one this much slower, in hundredths.
pub const CONTENTION_PERCENT: u64 = 15;

/// Nodes whose score is less than this much above the best are equally good, in hundredths. Less,
/// not at most: of two equal nodes the one with one more job is exactly [`CONTENTION_PERCENT`]
/// worse.
pub const BAND_PERCENT: u64 = 15;

/// A node keeps its last slot for rarer pairs if it serves at least √2 times as many pairs as the
/// least flexible node that could do the job (see [`Profile::flexibility`](crate::Profile)).
pub const KEEP_LAST_FROM: u8 = 5;

/// What a cell answers to a [`Query`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The node that gets the job; `None` if no node can take it now.
    pub slot: Option<Slot>,
    /// How many live nodes can do the job, busy or not.
    pub capable: u16,
    /// How many slots the job could use now.
    pub free: u32,
}

/// The nodes that the sieve leaves.
pub(super) struct Sieved {
    /// Alive and able to do the job.
    pub(super) capable: SlotSet,
    /// Those of them that take jobs now.
    pub(super) available: SlotSet,
}

/// The candidates and their scores.
pub(super) struct Ranking {
    /// Nodes whose last slot is kept for rarer pairs.
    pub(super) kept: SlotSet,
    /// Nodes that were scored.
    candidates: SlotSet,
    /// Their scores, in the order of their slots; less is better.
    scores: [u64; CELL_NODES_MAX],
    /// A hundred times the score up to which a node is as good as the best.
    limit: u64,
    /// Free slots of all available nodes.
    free: u32,
    /// What is left of the random number.
    random: u32,
}

impl Ranking {
    /// Whether `take` could have picked this node, which has this score.
    pub(super) fn is_best(&self, slot: Slot, score: u64) -> bool {
        self.candidates.contains(slot) && score * 100 <= self.limit
    }

    /// Picks one of the best candidates at random.
    pub(super) fn take(&self) -> Option<Slot> {
        let is_best = |score: &&u64| **score * 100 <= self.limit;
        let scores = &self.scores[..self.candidates.len()];
        let count = scores.iter().filter(is_best).count();
        let mut best = self.candidates.iter().zip(scores).filter(|(_, score)| is_best(score));
        best.nth(scale(self.random, count)).map(|(slot, _)| slot)
    }
}

impl Roster {
    /// Chooses a node with a free slot, or says how far it got.
    pub fn choose(&self, query: &Query, now_ms: u64, random: u32) -> Choice {
        let sieved = self.sieve(query, now_ms, |_, _| {});
        let ranking = self.rank(query, sieved.available, now_ms, random);
        let slot = ranking.take();
        Choice { slot, capable: sieved.capable.len() as u16, free: ranking.free }
    }

    /// Whether this very node may get the job now, and if not, why.
    pub fn admits(&self, slot: Slot, query: &Query, now_ms: u64) -> Result<(), RejectReason> {
        let mut rejected = None;
        self.sieve(query, now_ms, |reason, passed| {
            if rejected.is_none() && !passed.contains(slot) {
                rejected = Some(reason);
            }
        });
        match rejected {
            Some(reason) => Err(reason),
            None if !self.free.contains(slot) => Err(RejectReason::Full),
            None => Ok(()),
        }
    }

    /// Finds the nodes that pass all stages. Calls `stage` with the nodes that pass each one.
    #[inline]
    pub(super) fn sieve(
        &self,
        query: &Query,
        now_ms: u64,
        mut stage: impl FnMut(RejectReason, SlotSet),
    ) -> Sieved {
        let mut capable = self.enrolled;
        stage(RejectReason::NoNode, self.enrolled);
        self.index.stages(query, self.rules.semantic, |reason, passed| {
            stage(reason, passed);
            capable &= passed;
        });
        let offline = self.in_state[NodeState::Offline as usize];
        stage(RejectReason::State(NodeState::Offline), !offline);
        capable &= !offline;
        let fresh = self.fresh(capable, now_ms);
        stage(RejectReason::Stale, fresh | !capable);
        capable &= fresh;

        let mut available = capable;
        for state in [NodeState::Registering, NodeState::Degraded, NodeState::Draining] {
            let others = !self.in_state[state as usize];
            stage(RejectReason::State(state), others);
            available &= others;
        }
        stage(RejectReason::Excluded, !query.exclude);
        available &= !query.exclude;
        for (overloaded, resource) in self.overloaded.iter().zip(Resource::ALL) {
            stage(RejectReason::Overloaded(resource), !*overloaded);
            available &= !*overloaded;
        }
        Sieved { capable, available }
    }

    fn fresh(&self, among: SlotSet, now_ms: u64) -> SlotSet {
        if now_ms <= self.all_fresh_until_ms {
            return among;
        }
        among.iter().filter(|slot| now_ms <= self.details[slot.index()].fresh_until_ms).collect()
    }

    /// Scores the available nodes that have a free slot, as the policy says.
    #[inline]
    pub(super) fn rank(
        &self,
        query: &Query,
        available: SlotSet,
        now_ms: u64,
        random: u32,
    ) -> Ranking {
        let base = self.base_flexibility(available);
        let open = available & self.free;
        let kept = match query.policy {
            Policy::Balanced if query.keep_last => self.kept(open, base),
            _ => SlotSet::EMPTY,
        };
        let (candidates, random) = match query.policy {
            Policy::Sample { k } => sample(open, k, random),
            _ => (open & !kept, random),
        };
        let mut free = 0;
        for slot in open.iter() {
            let record = &self.records[slot.index()];
            free += u32::from(record.max) - u32::from(record.used);
        }
        let mut scores = [0; CELL_NODES_MAX];
        let mut lowest = u64::MAX;
        for (slot, score) in candidates.iter().zip(&mut scores) {
            *score = self.score(query.policy, slot, base, now_ms);
            lowest = lowest.min(*score);
        }
        let limit = match query.policy {
            Policy::Balanced => lowest.saturating_mul(100 + BAND_PERCENT) - 1,
            _ => lowest.saturating_mul(100),
        };
        Ranking { kept, candidates, scores, limit, free, random }
    }

    /// The least flexibility among these nodes.
    pub(super) fn base_flexibility(&self, available: SlotSet) -> u8 {
        let mut levels = self.by_flexibility.iter();
        levels.find(|(_, nodes)| !(*nodes & available).is_empty()).map_or(0, |&(level, _)| level)
    }

    /// Nodes that have one slot left and can do much that others cannot. A node with a single slot
    /// is not among them, or it would never serve a common pair.
    fn kept(&self, open: SlotSet, base: u8) -> SlotSet {
        let is_kept = |slot: &Slot| {
            let r = &self.records[slot.index()];
            r.used + 1 >= r.max && r.max > 1 && r.flexibility - base >= KEEP_LAST_FROM
        };
        open.iter().filter(is_kept).collect()
    }

    /// How bad it is to give the job to this node; less is better.
    #[inline]
    pub(super) fn score(&self, policy: Policy, slot: Slot, base: u8, now_ms: u64) -> u64 {
        let r = &self.records[slot.index()];
        let used = u64::from(r.used);
        match policy {
            // Milliseconds until the job would be done there, times 10,000. One doubling of the
            // pairs that a node serves, 10 on the scale of flexibility, makes it 10 % dearer.
            Policy::Balanced => r.delay * (100 + u64::from(r.flexibility - base)),
            Policy::Sample { .. } => {
                const FRESHNESS_BITS: u32 = 35;
                let latest = (1 << FRESHNESS_BITS) - 1;
                let fresh_until_ms = self.details[slot.index()].fresh_until_ms;
                let remaining = fresh_until_ms.saturating_sub(now_ms).min(latest);
                (used << FRESHNESS_BITS) + (latest - remaining)
            }
            Policy::LeastLoaded => used * 10_000_000 / u64::from(r.max),
            Policy::Random => 0,
        }
    }
}

/// How long a job takes on a node that already has `used` of them, in hundredths of a millisecond.
pub(super) fn delay(cost_ms: u32, used: u16) -> u64 {
    u64::from(cost_ms) * (100 + CONTENTION_PERCENT * u64::from(used))
}

/// A number below `n`, all equally likely up to a bias of n / 2³².
fn scale(random: u32, n: usize) -> usize {
    ((u64::from(random) * n as u64) >> 32) as usize
}

/// `k` random members of the set, and a random number for the next step.
fn sample(from: SlotSet, k: u8, random: u32) -> (SlotSet, u32) {
    let mut numbers = ParkMiller::new(random);
    let mut members: Vec<Slot> = from.iter().collect();
    // Shuffles the first k places only.
    let k = usize::from(k).min(members.len());
    for i in 0..k {
        let left = members.len() - i;
        members.swap(i, i + scale(numbers.next(), left));
    }
    (members[..k].iter().copied().collect(), numbers.next())
}

/// Park and Miller's generator: enough to spread a sample, and exact in a script whose only numbers
/// are doubles.
struct ParkMiller(u64);

impl ParkMiller {
    const MODULUS: u64 = (1 << 31) - 1;

    fn new(seed: u32) -> Self {
        Self(u64::from(seed) % (Self::MODULUS - 1) + 1)
    }

    fn next(&mut self) -> u32 {
        self.0 = self.0 * 48_271 % Self::MODULUS;
        // The generator gives 31 bits; `scale` expects 32.
        (self.0 << 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_stay_exact_in_a_double() {
        let highest = (u64::from(crate::node::SLOTS_MAX) << 35) + ((1 << 35) - 1);
        assert!(highest * 100 < 1 << 53);
        let dearest = delay(crate::node::COST_MS_MAX, crate::node::SLOTS_MAX) * (100 + 255);
        assert!(dearest * (100 + BAND_PERCENT) < 1 << 53);
    }

    #[test]
    fn a_sample_has_k_members_or_all_of_a_smaller_set() {
        let all = SlotSet::ALL;
        for random in [0, 1, 77, u32::MAX] {
            assert_eq!(sample(all, 20, random).0.len(), 20);
            let few: SlotSet = all.iter().take(7).collect();
            assert_eq!(sample(few, 20, random).0, few);
            assert_eq!(sample(SlotSet::EMPTY, 20, random).0, SlotSet::EMPTY);
        }
    }

    #[test]
    fn scaling_reaches_every_number_and_none_beyond() {
        for n in [1usize, 2, 3, 100] {
            assert_eq!(scale(0, n), 0);
            assert_eq!(scale(u32::MAX, n), n - 1);
        }
    }
}
