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
use crate::node::{COST_MS_MAX, NodeState, Resource};
use crate::slot_set::SlotSet;

/// Each job that a node already runs makes the next one this much slower, in hundredths.
pub const CONTENTION_PERCENT: u64 = 15;

/// Costs that differ by no more than this from the best node's count as its cost, in hundredths:
/// an estimate is no more exact than that.
pub const BAND_PERCENT: u64 = 30;

/// A free slot counts as much as this divided by the node's cost: see [`Capacity`].
pub const WEIGHT_UNIT: u32 = u32::MAX;

/// A node counts as flexible if it serves at least √2 times as many pairs as the least flexible
/// node that could do the job (see [`Profile::flexibility`](crate::Profile)).
pub const FLEXIBLE_FROM: u8 = 5;

/// While flexible nodes have no more free slots than this share of their number, in hundredths,
/// a job gets one only if no less flexible node is open.
pub const SPARED_PERCENT: u32 = 75;

/// While they have no more than this, their slots are kept for rarer pairs.
pub const KEPT_PERCENT: u32 = 20;

/// The share of its slots that a node uses is counted in units of 1 / this.
pub const SHARE_UNIT: u64 = 10_000_000;

/// Factor of the generator that draws samples.
pub const RANDOM_FACTOR: u64 = 48_271;

/// Numbers of that generator are below this.
pub const RANDOM_MODULUS: u64 = (1 << 31) - 1;

/// What a cell answers to a [`Query`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The node that gets the job; `None` if no node can take it now.
    pub slot: Option<Slot>,
    /// How many nodes can do the job, busy or not, those that have just gone included.
    pub capable: u16,
    /// How many slots the job could use now.
    pub free: u32,
    /// The same by weight, for the choice between cells.
    pub capacity: Capacity,
}

/// What a cell can do for jobs with certain needs, so that cells can be compared. A slot counts
/// by the speed of its node ([`slot_weight`]); sums stay below 2⁵³.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capacity {
    /// Free slots. Those of nodes that have just failed everything do not count.
    pub free: u64,
    /// All slots of the nodes that take jobs now.
    pub all: u64,
}

/// What a slot of a node with this cost counts in a [`Capacity`].
pub fn slot_weight(cost_ms: u32) -> u32 {
    WEIGHT_UNIT / cost_ms.clamp(1, COST_MS_MAX)
}

/// The nodes that the sieve leaves.
pub(super) struct Sieved {
    /// Able to do the job, and alive or gone for a moment.
    pub(super) capable: SlotSet,
    /// Those of them that take jobs now.
    pub(super) available: SlotSet,
}

/// The candidates and their scores.
pub(super) struct Ranking {
    /// Nodes whose free slots are kept for rarer pairs.
    pub(super) kept: SlotSet,
    /// Nodes that were scored.
    candidates: SlotSet,
    /// Their scores, in the order of their slots; less is better.
    scores: [u64; CELL_NODES_MAX],
    /// The lowest of the scores.
    lowest: u64,
    /// Costs near this one count as this one.
    pub(super) usual_cost_ms: u32,
    /// Free slots of all available nodes.
    free: u32,
    /// What all available nodes can do.
    capacity: Capacity,
    /// What is left of the random number.
    random: u32,
}

impl Ranking {
    /// Whether `take` could have picked this node, which has this score.
    pub(super) fn is_best(&self, slot: Slot, score: u64) -> bool {
        self.candidates.contains(slot) && score == self.lowest
    }

    /// Picks one of the best candidates at random.
    pub(super) fn take(&self) -> Option<Slot> {
        let scores = &self.scores[..self.candidates.len()];
        let count = scores.iter().filter(|score| **score == self.lowest).count();
        let best = self.candidates.iter().zip(scores).filter(|(_, score)| **score == self.lowest);
        best.map(|(slot, _)| slot).nth(scale(self.random, count))
    }
}

impl Roster {
    /// Chooses a node with a free slot, or says how far it got.
    pub fn choose(&self, query: &Query, now_ms: u64, random: u32) -> Choice {
        let sieved = self.sieve(query, now_ms, |_, _| {});
        let ranking = self.rank(query, sieved.available, random);
        let (free, capacity) = (ranking.free, ranking.capacity);
        Choice { slot: ranking.take(), capable: sieved.capable.len() as u16, free, capacity }
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
        // A node that has gone a moment ago still counts as capable: it may come back.
        let offline = self.in_state[NodeState::Offline as usize];
        stage(RejectReason::State(NodeState::Offline), !offline);
        let fresh = self.fresh(capable, now_ms);
        stage(RejectReason::Stale, fresh | !capable);
        capable &= fresh;

        let mut available = capable & !offline;
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
        among.iter().filter(|slot| now_ms <= self.fresh_until_ms[slot.index()]).collect()
    }

    /// Scores the available nodes that have a free slot, as the policy says.
    #[inline]
    pub(super) fn rank(&self, query: &Query, available: SlotSet, random: u32) -> Ranking {
        let base = self.base_flexibility(available);
        let open = available & self.free;
        let (spared, kept) = match query.policy {
            Policy::Balanced => self.spared_and_kept(available, base),
            _ => Default::default(),
        };
        let kept = if query.keep_last { kept & open } else { SlotSet::EMPTY };
        let (candidates, random) = match query.policy {
            Policy::Sample { k } => sample(open, k, random),
            Policy::Balanced => {
                let below_limit = or_all(open & !kept, !self.at_limit);
                (or_all(below_limit, !spared), random)
            }
            Policy::LeastLoaded | Policy::Random => (open, random),
        };
        let usual_cost_ms = match query.policy {
            Policy::Balanced => self.cost_of_best(candidates, base),
            _ => 0,
        };
        let mut scores = [0; CELL_NODES_MAX];
        let mut lowest = u64::MAX;
        for (slot, score) in candidates.iter().zip(&mut scores) {
            *score = self.score(query.policy, slot, base, usual_cost_ms);
            lowest = lowest.min(*score);
        }
        let (free, capacity) = self.capacity(available);
        Ranking { kept, candidates, scores, lowest, usual_cost_ms, free, capacity, random }
    }

    /// Free slots of these nodes, and what the nodes can do.
    fn capacity(&self, available: SlotSet) -> (u32, Capacity) {
        let (mut free, mut capacity) = (0, Capacity::default());
        for slot in available.iter() {
            let r = &self.records[slot.index()];
            let (here, weight) = (r.max.saturating_sub(r.used), u64::from(r.weight));
            free += u32::from(here);
            capacity.all += u64::from(r.max) * weight;
            if r.limit > 0 {
                capacity.free += u64::from(here) * weight;
            }
        }
        (free, capacity)
    }

    /// The cost of the node that would do the job soonest, the first of several.
    fn cost_of_best(&self, candidates: SlotSet, base: u8) -> u32 {
        let mut best = (u64::MAX, 0);
        for slot in candidates.iter() {
            let r = &self.records[slot.index()];
            let delay = delay(r.cost_ms, r.used, r.flexibility - base);
            if delay < best.0 {
                best = (delay, r.cost_ms);
            }
        }
        best.1
    }

    /// The least flexibility among these nodes.
    pub(super) fn base_flexibility(&self, available: SlotSet) -> u8 {
        let mut levels = self.by_flexibility.iter();
        levels.find(|(_, nodes)| !(*nodes & available).is_empty()).map_or(0, |&(level, _)| level)
    }

    /// Flexible nodes that are spared for rarer pairs, and those whose slots are kept for them. A
    /// node is among them if few slots are free on the nodes that are at least as flexible as it,
    /// or as one that is less flexible: a job that takes its slot takes one from all of these.
    fn spared_and_kept(&self, available: SlotSet, base: u8) -> (SlotSet, SlotSet) {
        let (mut spared, mut kept, mut as_flexible) = Default::default();
        let (mut nodes, mut slots, mut free) = (0, 0, 0);
        for &(level, at_level) in self.by_flexibility.iter().rev() {
            if level < base.saturating_add(FLEXIBLE_FROM) {
                break;
            }
            let at_level = at_level & available;
            as_flexible = as_flexible | at_level;
            for r in at_level.iter().map(|slot| &self.records[slot.index()]) {
                nodes += 1;
                slots += u32::from(r.max);
                free += u32::from(r.max.saturating_sub(r.used));
            }
            if is_scarce(free, nodes, SPARED_PERCENT) {
                spared = as_flexible;
            }
            // Nodes that have no more slots than would be kept could never serve a common pair.
            if is_scarce(free, nodes, KEPT_PERCENT) && !is_scarce(slots, nodes, KEPT_PERCENT) {
                kept = as_flexible;
            }
        }
        (spared, kept)
    }

    /// How bad it is to give the job to this node; less is better. A cost near the usual one counts
    /// as the usual one.
    #[inline]
    pub(super) fn score(&self, policy: Policy, slot: Slot, base: u8, usual_cost_ms: u32) -> u64 {
        let r = &self.records[slot.index()];
        match policy {
            Policy::Balanced => {
                let (cost, usual) = (u64::from(r.cost_ms), u64::from(usual_cost_ms));
                let band = 100 + BAND_PERCENT;
                let is_near = 100 * cost <= band * usual && 100 * usual <= band * cost;
                let cost_ms = if is_near { usual_cost_ms } else { r.cost_ms };
                delay(cost_ms, r.used, r.flexibility - base)
            }
            Policy::Sample { .. } => u64::from(r.used),
            Policy::LeastLoaded => u64::from(r.used) * SHARE_UNIT / u64::from(r.max),
            Policy::Random => 0,
        }
    }
}

/// How long a job takes on a node that already has `used` of them, in ten-thousandths of a
/// millisecond. One doubling of the pairs that a node serves, 10 on the scale of flexibility, makes
/// it 10 % dearer.
fn delay(cost_ms: u32, used: u16, extra_flexibility: u8) -> u64 {
    u64::from(cost_ms)
        * (100 + CONTENTION_PERCENT * u64::from(used))
        * (100 + u64::from(extra_flexibility))
}

/// Those of a set that are in another set, too, or all if there are none: a preference never
/// refuses a job.
fn or_all(set: SlotSet, preferred: SlotSet) -> SlotSet {
    match set & preferred {
        SlotSet::EMPTY => set,
        both => both,
    }
}

/// Whether so few slots, at least one, are at most this share of the number of nodes, rounded up.
fn is_scarce(slots: u32, nodes: u32, percent: u32) -> bool {
    100 * slots < percent * nodes + 100
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
    fn new(seed: u32) -> Self {
        Self(u64::from(seed) % (RANDOM_MODULUS - 1) + 1)
    }

    fn next(&mut self) -> u32 {
        self.0 = self.0 * RANDOM_FACTOR % RANDOM_MODULUS;
        // The generator gives 31 bits; `scale` expects 32.
        (self.0 << 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_exact_in_a_double() {
        let (cost, slots) = (crate::node::COST_MS_MAX, crate::node::SLOTS_MAX);
        assert!(delay(cost, slots, 255) < 1 << 53);
        let weight = u64::from(slot_weight(1));
        assert!(CELL_NODES_MAX as u64 * u64::from(slots) * weight < 1 << 53);
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
