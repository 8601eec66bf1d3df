//! Explains why each node would or would not get a job.
//!
//! It runs the steps of `select.rs` and writes down what they found, so that an explanation cannot
//! disagree with the choice.

use super::query::{Query, RejectReason};
use super::select::Choice;
use super::{Roster, SlotSet};
use crate::id::Slot;

/// What selection thinks of one node. A lower score is better; its unit depends on the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum NodeVerdict {
    /// It gets the job.
    Chosen { score: u64 },
    /// It is as good as the chosen node; the random number decided.
    AsGood { score: u64 },
    /// It could do the job, but another node is better.
    Eligible { score: u64 },
    /// It cannot get the job: the first reason found.
    Refused(RejectReason),
}

/// A choice and what led to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What [`Roster::choose`] answers.
    pub choice: Choice,
    /// One verdict for each node, by slot.
    pub verdicts: Vec<(Slot, NodeVerdict)>,
}

impl Roster {
    /// Says what [`choose`](Self::choose) would do with the same arguments, and why.
    pub fn explain(&self, query: &Query, now_ms: u64, random: u32) -> Explanation {
        let mut stages: Vec<(RejectReason, SlotSet)> = Vec::new();
        let sieved = self.sieve(query, now_ms, |reason, passed| stages.push((reason, passed)));
        let ranking = self.rank(query, sieved.available, random);
        stages.push((RejectReason::Full, self.free));
        stages.push((RejectReason::KeptForRarerPairs, !ranking.kept));

        let base = self.base_flexibility(sieved.available);
        let choice = self.choose(query, now_ms, random);
        let verdict = |slot: Slot| {
            if let Some(&(reason, _)) = stages.iter().find(|(_, passed)| !passed.contains(slot)) {
                return NodeVerdict::Refused(reason);
            }
            let score = self.score(query.policy, slot, base, ranking.usual_cost_ms);
            if choice.slot == Some(slot) {
                NodeVerdict::Chosen { score }
            } else if ranking.is_best(slot, score) {
                NodeVerdict::AsGood { score }
            } else {
                NodeVerdict::Eligible { score }
            }
        };
        let verdicts = self.enrolled.iter().map(|slot| (slot, verdict(slot))).collect();
        Explanation { choice, verdicts }
    }
}
