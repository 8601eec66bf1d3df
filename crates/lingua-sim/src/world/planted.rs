//! Bugs that are planted to see whether the checkers find them.
//!
//! Start at [`PLANTS`]. Most are in the code under test, at the place of the rule that they break
//! ([`lingua_core::planted`]); two are in the simulated node.

use lingua_core::planted::Bug;

use super::checker::Checker;
use super::plan::Cast;

/// A bug of the simulated node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeBug {
    /// It takes jobs beyond its slots.
    NoAdmission,
    /// It takes jobs with an old fence.
    NoFence,
}

/// Where a bug is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// In the code under test.
    Code(Bug),
    /// In the simulated node.
    Node(NodeBug),
}

/// A planted bug, and what is expected of the checkers.
#[derive(Debug, Clone, Copy)]
pub struct Plant {
    /// The bug.
    pub bug: Where,
    /// In whose worlds.
    pub cast: Cast,
    /// The checkers of which one must be the first to find it.
    pub found_by: &'static [Checker],
    /// Within so many seeds, counted from 1.
    pub within: u64,
}

const fn code(bug: Bug, found_by: &'static [Checker], within: u64) -> Plant {
    Plant { bug: Where::Code(bug), cast: Cast::Clients, found_by, within }
}

const fn node(bug: NodeBug, found_by: &'static [Checker], within: u64) -> Plant {
    Plant { bug: Where::Node(bug), cast: Cast::Clients, found_by, within }
}

const fn session(bug: Bug, found_by: &'static [Checker], within: u64) -> Plant {
    Plant { bug: Where::Code(bug), cast: Cast::Speakers, found_by, within }
}

/// All of them.
pub const PLANTS: [Plant; 27] = [
    node(NodeBug::NoAdmission, &[Checker::S1], 100),
    node(NodeBug::NoFence, &[Checker::S4], 100),
    code(Bug::ExpiredSlotStaysCounted, &[Checker::S2], 100),
    code(Bug::FinishIgnoresAttempt, &[Checker::S4], 100),
    code(Bug::ReportIgnoresAttempt, &[Checker::S4], 100),
    code(Bug::CellAdopts, &[Checker::S4], 100),
    code(Bug::HeartbeatIgnoresEpoch, &[Checker::S4], 100),
    code(Bug::LostWake, &[Checker::S5], 100),
    code(Bug::CreateRestartsJob, &[Checker::S3], 100),
    code(Bug::LeaderWithoutTerm, &[Checker::S7], 100),
    code(Bug::OldTableReplacesNew, &[Checker::S7], 100),
    code(Bug::BindingIgnoresEpoch, &[Checker::S4], 100),
    code(Bug::ActWithoutStore, &[Checker::S6], 100),
    code(Bug::NoReconcile, &[Checker::S3, Checker::S5], 100),
    code(Bug::AgeFromTwoClocks, &[Checker::S8], 100),
    code(Bug::NoFailoverGuard, &[Checker::S2], 100),
    code(Bug::CommittedNeverExpires, &[Checker::S5], 100),
    code(Bug::LostEndNotRestored, &[Checker::S3], 100),
    code(Bug::EndedJobKeepsSlot, &[Checker::S5], 2000),
    code(Bug::SlotNeverReleased, &[Checker::S5], 100),
    code(Bug::RunWithoutLease, &[Checker::S2], 100),
    session(Bug::DeliverAsItEnds, &[Checker::S9], 100),
    session(Bug::DeliverTwice, &[Checker::S9], 100),
    session(Bug::MissingNotReported, &[Checker::S10], 300),
    session(Bug::PartialAfterResult, &[Checker::S9], 100),
    session(Bug::AudioTwice, &[Checker::S9], 1000),
    session(Bug::SessionNeverRemoved, &[Checker::S5], 100),
];
