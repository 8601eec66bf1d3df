//! The rules, checked from outside the engine.
//!
//! Start at [`Checker`]. This file checks the behaviour of nodes, clients and instances;
//! `store_checker.rs` checks the replies of the store, `session_checker.rs` sessions, `recovery.rs`
//! the end.

use std::collections::BTreeMap;
use std::fmt;

use lingua_core::job::JobState;
use lingua_core::{Epoch, Fence};
use lingua_engine::node::Assignment;

use super::trace::Subject;

/// The rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Checker {
    /// No node runs more jobs than it has slots.
    S1,
    /// Leases never exceed slots. After lost writes a node gets no job before it has reported, and
    /// it stops work without a lease within 5 s of its report.
    S2,
    /// Every accepted job ends once, in time, and its client sees that one end.
    S3,
    /// Stale attempts, epochs and fences change nothing.
    S4,
    /// After the faults nothing is leaked, and every job that can be done is done.
    S5,
    /// No slot is granted while the store is unreachable.
    S6,
    /// The pool table never goes backwards.
    S7,
    /// Skewed clocks change nothing.
    S8,
    /// In a session each segment gets one outcome, in the order spoken, made from its own input.
    S9,
    /// Accepted segments get an outcome in time, whatever crashes, and a session lives as long as
    /// promised.
    S10,
}

impl fmt::Display for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A broken rule.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The rule.
    pub checker: Checker,
    /// When it was broken, in milliseconds since the world began.
    pub at_ms: u64,
    /// What happened.
    pub text: String,
    pub(super) about: Subject,
}

/// The end of a job, as its client saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObservedEnd {
    pub(super) state: JobState,
    pub(super) attempt: u32,
    pub(super) result: Option<String>,
    pub(super) error: Option<String>,
}

/// What the world knows of a job from outside.
#[derive(Debug, Clone, Default)]
pub(super) struct JobFacts {
    pub(super) asked_ms: u64,
    pub(super) accepted_ms: Option<u64>,
    /// Whether an instance owned the job when it accepted it, rather than finding it in the store.
    pub(super) held: bool,
    /// The latest possible deadline.
    pub(super) deadline_ms: u64,
    pub(super) seen: Option<ObservedEnd>,
    pub(super) seen_ms: u64,
    /// The job was lost, which only a failover together with a crash may do.
    pub(super) excused: bool,
    /// A segment of a session; its client gets the result over the session.
    pub(super) is_segment: bool,
}

/// When jobs of a bind key were last sent, and to which nodes. Jobs that are sent together may be
/// observed in any order.
type Burst = (u64, Vec<(usize, Epoch)>);

/// Jobs within this time count as sent together.
const MOMENT_MS: u64 = 5;

/// Checks what nodes and instances do.
#[derive(Debug, Default)]
pub(super) struct Observer {
    /// The last fence of each node process.
    fences: BTreeMap<u32, Fence>,
    /// Where a run of an instance last sent jobs of a bind key.
    bound: BTreeMap<(usize, u32, String), Burst>,
    /// The pool table that a run of an instance last showed.
    tables: BTreeMap<(usize, u32), (u64, u64)>,
}

impl Observer {
    /// A node process starts a job.
    pub(super) fn began(
        &mut self,
        process: u32,
        fence: Fence,
        running: usize,
        slots: u16,
    ) -> Option<(Checker, String)> {
        let before = self.fences.insert(process, fence);
        if running > usize::from(slots) {
            return Some((Checker::S1, format!("runs {running} jobs in {slots} slots")));
        }
        let before = before.filter(|&before| before >= fence)?;
        Some((Checker::S4, format!("begins a job with fence {fence} after {before}")))
    }

    /// An instance sends a job to a node.
    pub(super) fn sent(
        &mut self,
        (instance, run): (usize, u32),
        (node, epoch): (usize, Epoch),
        assignment: &Assignment,
        now_ms: u64,
    ) -> Option<(Checker, String)> {
        let key = assignment.request.spec.bind_key.as_ref()?;
        let place = (node, epoch);
        let (last_ms, places) = self.bound.entry((instance, run, key.to_string())).or_default();
        let is_same_moment = now_ms <= *last_ms + MOMENT_MS;
        *last_ms = now_ms;
        if is_same_moment {
            places.push(place);
            return None;
        }
        let before = std::mem::replace(places, vec![place]);
        (!before.is_empty() && !before.contains(&place) && !assignment.moved).then(|| {
            let text = format!("a turn moved from {before:?} to {place:?} and nobody was told");
            (Checker::S4, text)
        })
    }

    /// An instance shows a pool table of this term and version.
    pub(super) fn shows(
        &mut self,
        who: (usize, u32),
        shown: (u64, u64),
    ) -> Option<(Checker, String)> {
        let before = self.tables.insert(who, shown).filter(|&before| before > shown)?;
        Some((Checker::S7, format!("i{} showed the table {shown:?} after {before:?}", who.0)))
    }
}
