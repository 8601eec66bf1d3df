//! Which nodes are not to be trusted with a job yet, because the store may have forgotten what they run.
//!
//! Start at [`EngineState::is_after_failover`]. When the store is another one than before (a failover), leases may be lost. A
//! node gets nothing until it has reported since then: its report names what it runs without a lease. Nodes whose last
//! report is too old to count are passed over anyway, so the doubt ends by itself.
//!
//! Invariant: whoever asks for a slot has compared the store's identity before.

use lingua_core::planted::{self, Bug};
use lingua_core::{CellId, SlotSet};
use lingua_store::Store;
use lingua_store::contract::StoreIdentity;
use parking_lot::Mutex;

use crate::clock::Timer;
use crate::state::EngineState;

/// How much longer than a report counts the doubt lasts.
const MARGIN_MS: u64 = 1_000;

#[derive(Debug)]
pub(crate) struct FailoverGuard {
    inner: Mutex<Inner>,
}

#[derive(Debug, Clone, Copy)]
struct Inner {
    known: StoreIdentity,
    /// By this instance's clock.
    until_ms: u64,
    /// Reports up to this time of the store's clock do not count.
    mark_ms: u64,
}

impl FailoverGuard {
    pub(crate) fn new(known: StoreIdentity) -> Self {
        Self { inner: Mutex::new(Inner { known, until_ms: 0, mark_ms: 0 }) }
    }
}

impl<S: Store, T: Timer> EngineState<S, T> {
    /// Whether some nodes may not be trusted: the store is another one, or was not long ago.
    pub(crate) fn is_after_failover(&self) -> bool {
        let known = *self.failover_guard.inner.lock();
        known.known != self.store.identity() || known.until_ms > 0 && self.now_ms() < known.until_ms
    }

    /// Notices whether the store is another one. Reports up to the given time do not count while in doubt.
    pub(crate) async fn compare_store(&self) -> lingua_store::Result<Option<u64>> {
        let identity = self.store.identity();
        let known = *self.failover_guard.inner.lock();
        if known.known == identity {
            return Ok((self.now_ms() < known.until_ms).then_some(known.mark_ms));
        }
        let mark_ms = self.store.now_ms().await?;
        tracing::warn!("the store is another one: nodes have to report before they get jobs");
        let until_ms = self.now_ms().saturating_add(self.options.times.stale_ms + MARGIN_MS);
        *self.failover_guard.inner.lock() = Inner { known: identity, until_ms, mark_ms };
        Ok(Some(mark_ms))
    }

    /// The slots of a cell whose nodes have not reported to this life of the store.
    pub(crate) async fn unreported_slots(&self, cell: CellId) -> lingua_store::Result<SlotSet> {
        let Some(mark_ms) = self.compare_store().await? else { return Ok(SlotSet::EMPTY) };
        if planted::is(Bug::NoFailoverGuard) {
            return Ok(SlotSet::EMPTY);
        }
        let view = self.store.view(cell).await?;
        let doubted = view.nodes.iter().filter(|node| node.heartbeat_ms <= mark_ms);
        Ok(doubted.map(|node| node.place.slot).collect())
    }
}
