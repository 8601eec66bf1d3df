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
pub const PLANTS: [Plant; 28] = [
    node(NodeBug::NoAdmission, &[Checker::S1], 100),
    node(NodeBug::NoFence, &[Checker::S4], 100),
    code(Bug::CountedForEver, &[Checker::S2], 100),
    code(Bug::FinishIgnoresAttempt, &[Checker::S4], 100),
    code(Bug::WordIgnoresAttempt, &[Checker::S4], 100),
    code(Bug::CellAdopts, &[Checker::S4], 100),
    code(Bug::BeatIgnoresEpoch, &[Checker::S4], 100),
    code(Bug::LostWake, &[Checker::S5], 100),
    code(Bug::CreateTwice, &[Checker::S3], 100),
    code(Bug::LeaderWithoutTerm, &[Checker::S7], 100),
    code(Bug::TableGoesBack, &[Checker::S7], 100),
    code(Bug::BindingWithoutEpoch, &[Checker::S4], 100),
    code(Bug::FailOpen, &[Checker::S6], 100),
    code(Bug::NobodyLooks, &[Checker::S3, Checker::S5], 100),
    code(Bug::AgeByTwoClocks, &[Checker::S8], 100),
    code(Bug::TrustAfterRollback, &[Checker::S2], 100),
    code(Bug::ConfirmedForEver, &[Checker::S5], 100),
    code(Bug::LostEndStaysLost, &[Checker::S3], 100),
    code(Bug::HeldForEver, &[Checker::S5], 2000),
    code(Bug::NeverReleased, &[Checker::S5], 100),
    code(Bug::LeaselessGoOn, &[Checker::S2], 100),
    session(Bug::ToldAsItEnds, &[Checker::S9], 100),
    session(Bug::ToldAgain, &[Checker::S9], 100),
    session(Bug::MissingUnsaid, &[Checker::S10], 300),
    session(Bug::PartAfterWhole, &[Checker::S9], 100),
    session(Bug::SoundTwice, &[Checker::S9], 1000),
    session(Bug::NoSecret, &[Checker::S9], 100),
    session(Bug::NeverForgotten, &[Checker::S5], 100),
];
