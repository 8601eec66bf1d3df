//! Which node gets the job.
//!
//! Start at [`Roster::choose`]. First a sieve leaves the nodes that may be chosen, then the policy
//! scores those that have a free slot, then luck decides among the best. All four policies have this
//! one form: which candidates, what score, how far from the best is still as good.
//!
//! Scores are whole numbers below 2⁵³ and the random number is 32 bits wide, so that a Lua script
//! in a store computes the very same choice.
//!
//! Invariant: a node that is chosen passed every stage of the sieve and has a free slot; if nothing
//! is chosen, no node in the cell has a free slot for this job but those kept for rarer pairs.

use std::fmt;

use super::Roster;
use crate::capability::{Lack, Needs};
use crate::id::{CELL_NODES_MAX, Slot};
use crate::lang::LangPair;
use crate::node::{NodeState, Resource};
use crate::slot_set::SlotSet;

/// Each job that a node already runs makes the next one this much slower, in hundredths.
const CONTENTION_PERCENT: u64 = 15;

/// Nodes whose score is less than this much above the best are equally good, in hundredths. Less, not
/// at most: of two equal nodes the one with one job more is exactly [`CONTENTION_PERCENT`] worse.
const BAND_PERCENT: u64 = 15;

/// A node keeps its last slot for rarer pairs if it serves at least √2 times as many pairs as the
/// least flexible node that could do the job (see [`Profile::flexibility`](crate::Profile)).
const KEEP_LAST_FROM: u8 = 5;

/// How a node is chosen among those that could do the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// Least expected delay, a little dearer on more flexible nodes; random among those within 15 %
    /// of the best, so that a session does not settle on one node.
    #[default]
    Balanced,
    /// The best of `k` random nodes: least used, then freshest.
    Sample {
        /// How many to look at.
        k: u8,
    },
    /// Least used in proportion to its slots; random among equals.
    LeastLoaded,
    /// Any.
    Random,
}

impl Policy {
    /// How many nodes [`Policy::Sample`] looks at by default.
    pub const SAMPLE_K: u8 = 20;
}

/// What a job asks of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// Direction.
    pub pair: LangPair,
    /// Services.
    pub needs: Needs,
    /// Whether it may only go to nodes that accept public jobs.
    pub public: bool,
    /// Slots that it must not go to.
    pub exclude: SlotSet,
    /// How to choose.
    pub policy: Policy,
    /// Whether to leave the last slot of a node that can serve rarer pairs: right while the job can
    /// still wait for another one. Only [`Policy::Balanced`] heeds it.
    pub keep_last: bool,
}

impl Query {
    /// A public job from speech to text, any node, default policy, every free slot.
    pub fn new(pair: LangPair) -> Self {
        Self {
            pair,
            needs: Needs::SPEECH_TO_TEXT,
            public: true,
            exclude: SlotSet::EMPTY,
            policy: Policy::default(),
            keep_last: false,
        }
    }
}

/// Why a node does not get a job: the first reason found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// The slot is empty.
    NoNode,
    /// The job is public and the node takes private ones only.
    PrivateOnly,
    /// It cannot do the job.
    Lacks(Lack),
    /// Its last sign of life is too long ago.
    Stale,
    /// It is in a state in which it takes no jobs.
    State(NodeState),
    /// The job must not go there.
    Excluded,
    /// It has too little left of a resource.
    Overloaded(Resource),
    /// All its slots are taken.
    Full,
    /// Its last slot is kept for rarer pairs.
    LastSlotKept,
    /// The pinned node has registered anew since.
    Superseded,
}

impl Why {
    /// Whether the node could never do this job, however long one waits.
    pub fn is_incapable(self) -> bool {
        matches!(self, Self::NoNode | Self::PrivateOnly | Self::Lacks(_))
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNode => f.write_str("no such node"),
            Self::PrivateOnly => f.write_str("takes private jobs only"),
            Self::Lacks(lack) => lack.fmt(f),
            Self::Stale => f.write_str("no recent heartbeat"),
            Self::State(state) => state.fmt(f),
            Self::Excluded => f.write_str("excluded by the job"),
            Self::Overloaded(resource) => write!(f, "{resource} load at or above the threshold"),
            Self::Full => f.write_str("all slots taken"),
            Self::LastSlotKept => f.write_str("last slot kept for rarer pairs"),
            Self::Superseded => f.write_str("registered anew since it was pinned"),
        }
    }
}

/// What a cell answers to a [`Query`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The node that gets the job.
    pub slot: Option<Slot>,
    /// How many nodes are there and can do it, busy or not.
    pub capable: u16,
    /// How many free slots those have that may be used now.
    pub free: u32,
}

/// What the sieve leaves.
pub(super) struct Sieved {
    /// There and able.
    pub(super) capable: SlotSet,
    /// Of those, the ones that take jobs.
    pub(super) available: SlotSet,
}

/// What a policy makes of the nodes that are left.
pub(super) struct Ranking {
    /// Nodes whose last slot is kept.
    pub(super) kept: SlotSet,
    /// Nodes that were scored.
    candidates: SlotSet,
    /// A hundred times the score up to which a node is as good as the best.
    limit: u64,
    /// The one that luck chose.
    pub(super) chosen: Option<Slot>,
    /// Free slots of the nodes that are left.
    pub(super) free: u32,
}

impl Ranking {
    /// Whether luck could have chosen this node, which has this score.
    pub(super) fn is_best(&self, slot: Slot, score: u64) -> bool {
        self.candidates.contains(slot) && score * 100 <= self.limit
    }
}

impl Roster {
    /// Chooses a node with a free slot, or says how far it got.
    pub fn choose(&self, query: &Query, now_ms: u64, random: u32) -> Choice {
        let sieved = self.sieve(query, now_ms, |_, _| {});
        let ranking = self.rank(query, sieved.available, now_ms, random);
        let capable = sieved.capable.len() as u16;
        Choice { slot: ranking.chosen, capable, free: ranking.free }
    }

    /// Whether this very node may get the job now, and if not, why.
    pub fn admits(&self, slot: Slot, query: &Query, now_ms: u64) -> Result<(), Why> {
        let mut why = None;
        self.sieve(query, now_ms, |reason, passed| {
            if why.is_none() && !passed.contains(slot) {
                why = Some(reason);
            }
        });
        match why {
            Some(reason) => Err(reason),
            None if !self.free.contains(slot) => Err(Why::Full),
            None => Ok(()),
        }
    }

    /// Tells `stage` the nodes that pass each stage, and gives the nodes that pass all of them.
    #[inline]
    pub(super) fn sieve(
        &self,
        query: &Query,
        now_ms: u64,
        mut stage: impl FnMut(Why, SlotSet),
    ) -> Sieved {
        let mut capable = self.enrolled;
        stage(Why::NoNode, self.enrolled);
        self.index.stages(query, self.rules.semantic, |why, passed| {
            stage(why, passed);
            capable &= passed;
        });
        let offline = self.in_state[NodeState::Offline as usize];
        stage(Why::State(NodeState::Offline), !offline);
        capable &= !offline;
        let fresh = self.fresh(capable, now_ms);
        stage(Why::Stale, fresh | !capable);
        capable &= fresh;

        let mut available = capable;
        for state in [NodeState::Registering, NodeState::Degraded, NodeState::Draining] {
            let others = !self.in_state[state as usize];
            stage(Why::State(state), others);
            available &= others;
        }
        stage(Why::Excluded, !query.exclude);
        available &= !query.exclude;
        for (overloaded, resource) in self.overloaded.iter().zip(Resource::ALL) {
            stage(Why::Overloaded(resource), !*overloaded);
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

    /// Applies the policy to the nodes that have a free slot.
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
        // Side by side, so that the second look goes over plain numbers in a row.
        let mut scores = [0; CELL_NODES_MAX];
        let mut count = 0;
        let mut lowest = u64::MAX;
        for slot in candidates.iter() {
            let score = self.score(query.policy, slot, base, now_ms);
            scores[count] = score;
            count += 1;
            lowest = lowest.min(score);
        }
        let limit = match query.policy {
            Policy::Balanced => lowest.saturating_mul(100 + BAND_PERCENT) - 1,
            _ => lowest.saturating_mul(100),
        };
        let scores = &scores[..count];
        let equals = scores.iter().filter(|&score| score * 100 <= limit).count();
        let mut best = candidates.iter().zip(scores).filter(|&(_, score)| score * 100 <= limit);
        let chosen = best.nth(scale(random, equals)).map(|(slot, _)| slot);
        Ranking { kept, candidates, limit, chosen, free }
    }

    /// The least flexibility among these nodes.
    pub(super) fn base_flexibility(&self, available: SlotSet) -> u8 {
        let mut levels = self.by_flexibility.iter();
        levels.find(|(_, nodes)| !(*nodes & available).is_empty()).map_or(0, |&(level, _)| level)
    }

    /// Nodes that have one slot left and can do much that others cannot. A node with a single slot
    /// is not among them, or it would never serve a common pair.
    fn kept(&self, open: SlotSet, base: u8) -> SlotSet {
        let mut kept = SlotSet::EMPTY;
        for slot in open.iter() {
            let r = &self.records[slot.index()];
            let last = r.used + 1 >= r.max && r.max > 1;
            kept.set(slot, last && r.flexibility - base >= KEEP_LAST_FROM);
        }
        kept
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

/// `k` random members of the set, and a random number for what comes after.
fn sample(from: SlotSet, k: u8, random: u32) -> (SlotSet, u32) {
    let mut lots = Lots::new(random);
    let mut members: [Option<Slot>; CELL_NODES_MAX] = [None; CELL_NODES_MAX];
    let count = from.len();
    for (member, slot) in members.iter_mut().zip(from.iter()) {
        *member = Some(slot);
    }
    // Deal the first k cards of a shuffled pack.
    let k = usize::from(k).min(count);
    for i in 0..k {
        members.swap(i, i + scale(lots.draw(), count - i));
    }
    (members[..k].iter().flatten().copied().collect(), lots.draw())
}

/// Park and Miller's generator: enough to spread a sample, and exact in a script whose only numbers
/// are doubles.
struct Lots(u64);

impl Lots {
    const MODULUS: u64 = (1 << 31) - 1;

    fn new(seed: u32) -> Self {
        Self(u64::from(seed) % (Self::MODULUS - 1) + 1)
    }

    fn draw(&mut self) -> u32 {
        self.0 = self.0 * 48_271 % Self::MODULUS;
        // The generator gives 31 bits; `scale` expects 32.
        (self.0 << 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_scores_stay_exact_in_a_double() {
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
