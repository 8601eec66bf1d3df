//! Planted bugs, which the checkers must find.
//!
//! Start at [`PLANTED_BUGS`]. Three bugs are in the simulated world. The others are in the code
//! under test ([`lingua_core::planted`]), which contains them only with `--cfg planted_bugs`.

use lingua_core::planted::Bug;

use super::checker::{Checker, Violation};
use super::plan::WorldKind;

/// A bug of the simulated world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeBug {
    /// The node accepts jobs beyond its slots.
    NoAdmission,
    /// The node accepts jobs with an old fence.
    NoFence,
    /// Somebody else has the node's token.
    StolenToken,
}

/// A planted bug, by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// In the code under test.
    Code(Bug),
    /// In the simulated world.
    Node(NodeBug),
}

/// A planted bug and the checkers that must find it.
#[derive(Debug, Clone, Copy)]
pub struct PlantedBugCase {
    /// The bug.
    pub bug: PlantedBug,
    /// The kind of world that shows it.
    pub kind: WorldKind,
    /// The first seed that is tried.
    pub from: u64,
    /// One of these checkers must be the first to fail.
    pub found_by: &'static [Checker],
    /// The bug must show within this many seeds.
    pub within: u64,
}

impl PlantedBugCase {
    /// The first seed that breaks a rule with the bug and none without it.
    pub fn find(&self, seeds: u64) -> Option<(u64, Violation)> {
        (self.from..self.from + seeds).find_map(|seed| {
            let found = super::run(seed, self.kind, Some(self.bug)).violation?;
            let is_cause = super::run(seed, self.kind, None).violation.is_none();
            is_cause.then_some((seed, found))
        })
    }
}

const fn case(
    bug: PlantedBug,
    kind: WorldKind,
    found_by: &'static [Checker],
    within: u64,
) -> PlantedBugCase {
    PlantedBugCase { bug, kind, from: 1, found_by, within }
}

const fn code(bug: Bug, found_by: &'static [Checker], within: u64) -> PlantedBugCase {
    case(PlantedBug::Code(bug), WorldKind::Clients, found_by, within)
}

const fn node(bug: NodeBug, found_by: &'static [Checker], within: u64) -> PlantedBugCase {
    case(PlantedBug::Node(bug), WorldKind::Clients, found_by, within)
}

const fn session(bug: Bug, found_by: &'static [Checker], within: u64) -> PlantedBugCase {
    case(PlantedBug::Code(bug), WorldKind::Speakers, found_by, within)
}

const fn failover(bug: Bug, found_by: &'static [Checker], within: u64) -> PlantedBugCase {
    case(PlantedBug::Code(bug), WorldKind::Failovers, found_by, within)
}

const fn fleet(bug: PlantedBug, found_by: &'static [Checker], within: u64) -> PlantedBugCase {
    case(bug, WorldKind::Fleets, found_by, within)
}

/// All of them.
pub const PLANTED_BUGS: [PlantedBugCase; 32] = [
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
    code(Bug::MoveNotTold, &[Checker::S4], 100),
    code(Bug::ActWithoutStore, &[Checker::S6], 100),
    code(Bug::NoReconcile, &[Checker::S3, Checker::S5], 100),
    code(Bug::AgeFromTwoClocks, &[Checker::S8], 100),
    code(Bug::NoFailoverGuard, &[Checker::S2], 100),
    code(Bug::CommittedNeverExpires, &[Checker::S5], 100),
    code(Bug::LostEndNotRestored, &[Checker::S3], 100),
    failover(Bug::EndOnlyOverOwnRecord, &[Checker::S3], 1000),
    failover(Bug::EndNotOverLaterAttempt, &[Checker::S5], 1000),
    code(Bug::EndedJobKeepsSlot, &[Checker::S5], 2000),
    code(Bug::SlotNeverReleased, &[Checker::S5], 100),
    code(Bug::RunWithoutLease, &[Checker::S2], 100),
    session(Bug::DeliverAsItEnds, &[Checker::S9], 100),
    session(Bug::DeliverTwice, &[Checker::S9], 100),
    session(Bug::MissingNotReported, &[Checker::S10], 300),
    session(Bug::AudioTwice, &[Checker::S9], 1000),
    session(Bug::SessionNeverRemoved, &[Checker::S5], 100),
    fleet(PlantedBug::Node(NodeBug::StolenToken), &[Checker::S11], 100),
    fleet(PlantedBug::Code(Bug::SilentReturnNotAnnounced), &[Checker::S5], 1000),
    fleet(PlantedBug::Code(Bug::PrivateJobsCompete), &[Checker::S5], 1000),
    PlantedBugCase { from: 101_380, ..code(Bug::UnwrittenEndKept, &[Checker::S3], 1) },
];
