//! Bugs on purpose, to find out whether the simulation finds them.
//!
//! Each place where a rule is kept that a checker of the simulation guards asks [`is`] whether to break
//! it. Without the feature `planted`, which only the simulation switches on, the answer is a constant
//! `false` and the question compiles away; with it, each thread has at most one bug, and none until
//! [`plant`] is called.

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A slot whose lease expired stays counted.
    CountedForEver,
    /// A finish of any attempt ends the lease of the present one.
    FinishIgnoresAttempt,
    /// A node's word about any attempt counts for the present one.
    WordIgnoresAttempt,
    /// A cell gives a lease to whatever a node says it runs.
    CellAdopts,
    /// A heartbeat of a former incarnation renews leases.
    BeatIgnoresEpoch,
    /// A freed slot wakes nobody.
    LostWake,
    /// A job that is written down again starts anew.
    CreateTwice,
    /// Whoever once led may publish.
    LeaderWithoutTerm,
    /// A pool table replaces a later one.
    TableGoesBack,
    /// A binding does not notice that its node is another incarnation.
    BindingWithoutEpoch,
    /// A job that could not be written is acted upon.
    FailOpen,
    /// Open jobs that nobody runs are left alone.
    NobodyLooks,
    /// The age of a job that was taken over is told by two clocks.
    AgeByTwoClocks,
    /// After the store lost writes, nodes are trusted before they have reported.
    TrustAfterRollback,
    /// A lease that was confirmed never expires.
    ConfirmedForEver,
    /// An end that the store has lost is not written again.
    LostEndStaysLost,
    /// A node's heartbeats hold the slot of a job that has ended.
    HeldForEver,
    /// A slot is not given back when its job has ended.
    NeverReleased,
    /// A node may work on what it has no lease for.
    LeaselessGoOn,
    /// What came of segments is told as they end, not as they were spoken.
    ToldAsItEnds,
    /// A client that comes back is told its last result again.
    ToldAgain,
    /// Segments whose job went with its instance are not said to be missing.
    MissingUnsaid,
    /// A part of a text is shown after the whole.
    PartAfterWhole,
    /// A piece of sound that came twice is told twice.
    SoundTwice,
    /// Anybody may come into a session.
    NoSecret,
    /// A session that is over is not forgotten.
    NeverForgotten,
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug in this thread, or pulls it out again.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.with(|planted| planted.set(bug));
}

/// Whether this bug is planted here.
#[cfg(feature = "planted")]
pub fn is(bug: Bug) -> bool {
    PLANTED.with(|planted| planted.get() == Some(bug))
}

/// Whether this bug is planted here.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is(_: Bug) -> bool {
    false
}
