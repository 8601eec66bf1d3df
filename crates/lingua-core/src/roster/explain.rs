//! Why each node would or would not get a job.
//!
//! It runs the sieve and the ranking of `select.rs` and writes down what they found, so that an
//! explanation cannot disagree with the choice.

use super::select::{Choice, Query, Why};
use super::{Roster, SlotSet};
use crate::id::Slot;

/// What selection thinks of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It gets the job.
    Chosen {
        /// Less is better; what it counts depends on the policy.
        score: u64,
    },
    /// It would be as good as the chosen one; luck decided.
    AsGood {
        /// Less is better; what it counts depends on the policy.
        score: u64,
    },
    /// It could do the job, but another one is better.
    Eligible {
        /// Less is better; what it counts depends on the policy.
        score: u64,
    },
    /// It cannot get the job: the first reason found.
    Refused(Why),
}

/// A choice and what led to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What [`Roster::choose`] answers.
    pub choice: Choice,
    /// One verdict for each node, by slot.
    pub verdicts: Vec<(Slot, Verdict)>,
}

impl Roster {
    /// Says what [`choose`](Self::choose) would do with the same arguments, and why.
    pub fn explain(&self, query: &Query, now_ms: u64, random: u32) -> Explanation {
        let mut stages: Vec<(Why, SlotSet)> = Vec::new();
        let sieved = self.sieve(query, now_ms, |why, passed| stages.push((why, passed)));
        let ranking = self.rank(query, sieved.available, now_ms, random);
        stages.push((Why::Full, self.free));
        stages.push((Why::LastSlotKept, !ranking.kept));

        let base = self.base_flexibility(sieved.available);
        let verdict = |slot: Slot| {
            if let Some(&(why, _)) = stages.iter().find(|(_, passed)| !passed.contains(slot)) {
                return Verdict::Refused(why);
            }
            let score = self.score(query.policy, slot, base, now_ms);
            match () {
                () if ranking.chosen == Some(slot) => Verdict::Chosen { score },
                () if ranking.is_best(slot, score) => Verdict::AsGood { score },
                () => Verdict::Eligible { score },
            }
        };
        Explanation {
            choice: self.choose(query, now_ms, random),
            verdicts: self.enrolled.iter().map(|slot| (slot, verdict(slot))).collect(),
        }
    }
}
