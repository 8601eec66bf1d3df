//! Deliberate bugs that show whether the simulation's checkers find them.
//!
//! Start at [`is`]: each rule that a checker guards asks it whether to break that rule. Only a
//! build with `RUSTFLAGS="--cfg planted_bugs"` has the bugs, and only the tests of `lingua-sim` are
//! built so; the server and the program refuse to compile with it. In every other build [`is`] is a
//! constant `false` and the question compiles away.
//!
//! Invariants: a thread has at most one bug, and none until `plant` is called. No bug stands in
//! code that checks tokens, secrets or owners.

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A slot whose lease expired stays counted.
    ExpiredSlotStaysCounted,
    /// A finish of any attempt ends the lease of the current one.
    FinishIgnoresAttempt,
    /// A node's report about any attempt counts for the current one.
    ReportIgnoresAttempt,
    /// A cell grants a lease for whatever a node says that it runs.
    CellAdopts,
    /// A heartbeat of an earlier epoch renews leases.
    HeartbeatIgnoresEpoch,
    /// A freed slot wakes no waiting job.
    LostWake,
    /// Creating a job a second time starts it anew.
    CreateRestartsJob,
    /// An instance that once led may publish.
    LeaderWithoutTerm,
    /// An older pool table replaces a newer one.
    OldTableReplacesNew,
    /// A job that leaves the node of its bind key does not say so.
    MoveNotTold,
    /// A step that could not be written to the store is acted upon.
    ActWithoutStore,
    /// Open jobs without a runner are left alone.
    NoReconcile,
    /// The age of a job that was taken over is computed from two clocks.
    AgeFromTwoClocks,
    /// After the store lost writes, nodes get jobs before they have reported.
    NoFailoverGuard,
    /// A confirmed lease never expires.
    CommittedNeverExpires,
    /// An end that the store has lost is not written again.
    LostEndNotRestored,
    /// A lost end is not written over the record of another owner.
    EndOnlyOverOwnRecord,
    /// A lost end is not written over a later attempt.
    EndNotOverLaterAttempt,
    /// A node's heartbeats hold the slot of a job that has ended.
    EndedJobKeepsSlot,
    /// A slot is not released when its job has ended.
    SlotNeverReleased,
    /// A node may go on with a job that it has no lease for.
    RunWithoutLease,
    /// Segments are delivered as they end, not as they were spoken.
    DeliverAsItEnds,
    /// A client that reconnects gets its last result again.
    DeliverTwice,
    /// Segments whose job died with its instance are not reported as missing.
    MissingNotReported,
    /// A piece of audio that arrived twice is sent to the node twice.
    AudioTwice,
    /// A session that has ended is never removed.
    SessionNeverRemoved,
    /// Instances are not told that a node which was silent is back.
    SilentReturnNotAnnounced,
    /// The regular look takes private jobs of different tenants for rivals.
    PrivateJobsCompete,
    /// An end that the store never had is written over that of another instance.
    UnwrittenEndKept,
}

#[cfg(planted_bugs)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug in this thread, or removes it.
#[cfg(planted_bugs)]
pub fn plant(bug: Option<Bug>) {
    PLANTED.with(|planted| planted.set(bug));
}

/// Whether this bug is planted in this thread.
#[cfg(planted_bugs)]
pub fn is(bug: Bug) -> bool {
    PLANTED.with(|planted| planted.get() == Some(bug))
}

/// Whether this bug is planted in this thread: never in this build.
#[cfg(not(planted_bugs))]
#[inline(always)]
pub const fn is(_: Bug) -> bool {
    false
}
