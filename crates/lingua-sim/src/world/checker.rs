//! What must never happen, judged from outside the engine.
//!
//! Start at [`Checker`]. The store's answers are judged in `oracle.rs`, sessions in `session_checker.rs`, the quiet end in
//! `quiet.rs`; here is what nodes, clients and instances are seen to do.

use std::collections::BTreeMap;
use std::fmt;

use lingua_core::job::JobState;
use lingua_core::{Epoch, Fence};
use lingua_engine::node::Assignment;

use super::trace::About;

/// A rule of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Checker {
    /// No node runs more than its slots.
    S1,
    /// Leases never exceed slots; after lost writes nothing is granted before a node has reported, and what it has no
    /// lease for is taken from it within 5 s of its report.
    S2,
    /// Every accepted job ends once, in time, and its client sees one end.
    S3,
    /// Stale attempts, epochs and fences change nothing.
    S4,
    /// After faults stop nothing is leaked, and all that can be done gets done.
    S5,
    /// Nothing is granted while the store is unreachable.
    S6,
    /// The pool table never goes backwards.
    S7,
    /// Wrong clocks change no outcome.
    S8,
    /// In a session each segment comes back once, in the order spoken, as what was made of what was said there.
    S9,
    /// What a session has accepted comes back in time, whoever dies, and the session is there until it may be gone.
    S10,
}

impl fmt::Display for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A rule that was broken.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Which rule.
    pub checker: Checker,
    /// When, in milliseconds since the world began.
    pub at_ms: u64,
    /// What happened.
    pub text: String,
    pub(super) about: About,
}

/// An end that a client has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) state: JobState,
    pub(super) attempt: u32,
    pub(super) result: Option<String>,
    pub(super) error: Option<String>,
}

/// What is known of a job from outside.
#[derive(Debug, Clone, Default)]
pub(super) struct JobFacts {
    pub(super) asked_ms: u64,
    pub(super) accepted_ms: Option<u64>,
    /// Whether an instance said that it has the job, and not only that the job is there.
    pub(super) held: bool,
    /// The latest time at which its deadline can be.
    pub(super) deadline_ms: u64,
    pub(super) seen: Option<Seen>,
    pub(super) seen_ms: u64,
    /// Lost for good, as only a failover together with a crash may.
    pub(super) excused: bool,
    /// A segment of a session: its client is told otherwise.
    pub(super) is_segment: bool,
}

/// Where segments of a turn were sent, and when last. What was sent in one moment is seen in any order.
type Burst = (u64, Vec<(usize, Epoch)>);

/// How long a moment is.
const MOMENT_MS: u64 = 5;

/// What nodes and instances were seen to do.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The highest fence that each process has begun to work with.
    fences: BTreeMap<u32, Fence>,
    /// Where an instance's life last sent segments of a turn.
    bound: BTreeMap<(usize, u32, String), Burst>,
    /// The pool table that an instance's life last showed.
    tables: BTreeMap<(usize, u32), (u64, u64)>,
}

impl Watch {
    /// A process begins to work.
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
        (instance, life): (usize, u32),
        (node, epoch): (usize, Epoch),
        assignment: &Assignment,
        now_ms: u64,
    ) -> Option<(Checker, String)> {
        let key = assignment.request.spec.bind_key.as_ref()?;
        let place = (node, epoch);
        let (last_ms, places) = self.bound.entry((instance, life, key.to_string())).or_default();
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
