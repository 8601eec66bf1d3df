//! The rules, checked from outside the engine.
//!
//! Start at [`Checker`]. This file checks the behaviour of nodes, clients and instances;
//! `store_checker.rs` checks the replies of the store, `session_checker.rs` sessions, `recovery.rs`
//! the end.

use std::collections::BTreeMap;
use std::fmt;

use lingua_core::job::JobState;
use lingua_core::{Fence, NodeId, Tenant};
use lingua_engine::node::Assignment;
use lingua_store::contract::BindRequest;

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
    /// Nodes and jobs belong to somebody: a node gets no job that it does not take, and its id
    /// answers to its own token only.
    S11,
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

/// How an instance last bound a key.
#[derive(Debug)]
struct LastBinding {
    node: NodeId,
    /// The key was bound to another node before.
    moves: bool,
    /// Another job of the key had been bound and not yet sent, so that one cannot say which is
    /// which.
    is_crowded: bool,
    /// When the key was bound for jobs that have not been sent yet.
    unsent_ms: Vec<u64>,
}

/// A job is sent within this time after its key was bound, or not at all: its ack lease.
const SENT_WITHIN_MS: u64 = 5_000;

/// Checks what nodes and instances do.
#[derive(Debug, Default)]
pub(super) struct Observer {
    /// The last fence of each node process.
    fences: BTreeMap<u32, Fence>,
    /// How each instance last bound each key.
    bound: BTreeMap<(usize, Tenant, String), LastBinding>,
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

    /// The store has bound a key as this instance asked.
    pub(super) fn binds(&mut self, instance: usize, request: &BindRequest, now_ms: u64) {
        let key = (instance, request.tenant, request.key.to_string());
        let mut unsent_ms = self.bound.remove(&key).map_or_else(Vec::new, |last| last.unsent_ms);
        unsent_ms.retain(|bound_ms| now_ms <= bound_ms + SENT_WITHIN_MS);
        unsent_ms.push(now_ms);
        let node = request.to.node.clone();
        let moves = request.replaces.as_ref().is_some_and(|before| *before != node);
        let is_crowded = unsent_ms.len() > 1;
        self.bound.insert(key, LastBinding { node, moves, is_crowded, unsent_ms });
    }

    /// An instance sends one of its own jobs to a node: if the job's key was bound to another node,
    /// it must say so.
    pub(super) fn sent(
        &mut self,
        instance: usize,
        node: &NodeId,
        assignment: &Assignment,
    ) -> Option<(Checker, String)> {
        let spec = &assignment.request.spec;
        let key = spec.bind_key.as_ref()?;
        let last = self.bound.get_mut(&(instance, spec.tenant, key.to_string()))?;
        if !last.unsent_ms.is_empty() {
            last.unsent_ms.remove(0);
        }
        let is_wrong = last.node == *node && last.moves && !last.is_crowded && !assignment.moved;
        is_wrong.then(|| (Checker::S4, format!("a turn moved to {node} and nobody was told")))
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
