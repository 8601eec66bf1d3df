//! Planted bugs, which the checkers must find.
//!
//! Start at [`PLANTED_BUGS`]. Two bugs are in the simulated node. The others are in the code under
//! test ([`lingua_core::planted`]), which contains them only with `--cfg planted_bugs`.

use lingua_core::planted::Bug;

use super::checker::Checker;
use super::plan::WorldKind;

/// A bug of the simulated node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeBug {
    /// The node accepts jobs beyond its slots.
    NoAdmission,
    /// The node accepts jobs with an old fence.
    NoFence,
}

/// A planted bug, by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// In the code under test.
    Code(Bug),
    /// In the simulated node.
    Node(NodeBug),
}

/// A planted bug and the checkers that must find it.
#[derive(Debug, Clone, Copy)]
pub struct PlantedBugCase {
    /// The bug.
    pub bug: PlantedBug,
    /// The kind of world that shows it.
    pub kind: WorldKind,
    /// One of these checkers must be the first to fail.
    pub found_by: &'static [Checker],
    /// The bug must show within this many seeds.
    pub within: u64,
}

const fn code(bug: Bug, found_by: &'static [Checker], within: u64) -> PlantedBugCase {
    PlantedBugCase { bug: PlantedBug::Code(bug), kind: WorldKind::Clients, found_by, within }
}

const fn node(bug: NodeBug, found_by: &'static [Checker], within: u64) -> PlantedBugCase {
    PlantedBugCase { bug: PlantedBug::Node(bug), kind: WorldKind::Clients, found_by, within }
}

const fn session(bug: Bug, found_by: &'static [Checker], within: u64) -> PlantedBugCase {
    PlantedBugCase { bug: PlantedBug::Code(bug), kind: WorldKind::Speakers, found_by, within }
}

/// All of them.
pub const PLANTED_BUGS: [PlantedBugCase; 27] = [
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
