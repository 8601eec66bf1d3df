//! Keeps jobs away from nodes whose leases the store may have forgotten.
//!
//! Start at [`Engine::unreported_slots`]. After a failover of the store leases may be lost. A
//! node gets no job until it has sent a heartbeat since then: the heartbeat names what it runs
//! without a lease. Nodes whose last heartbeat is too old are not chosen anyway, so the guard ends
//! by itself.
//!
//! Invariant: the store's identity is compared before a slot is reserved.

use lingua_core::planted::{self, Bug};
use lingua_core::{CellId, SlotSet};
use lingua_store::Store;
use lingua_store::contract::StoreIdentity;
use parking_lot::Mutex;

use crate::{Engine, Timer};

/// How much longer than a heartbeat counts the guard lasts.
const MARGIN_MS: u64 = 1_000;

#[derive(Debug)]
pub(crate) struct FailoverGuard(Mutex<LastFailover>);

#[derive(Debug, Clone, Copy)]
struct LastFailover {
    /// The store since then.
    identity: StoreIdentity,
    /// The end of the guard, by this instance's clock.
    until_ms: u64,
    /// Heartbeats up to this time of the store's clock do not count.
    mark_ms: u64,
}

impl FailoverGuard {
    pub(crate) fn new(identity: StoreIdentity) -> Self {
        Self(Mutex::new(LastFailover { identity, until_ms: 0, mark_ms: 0 }))
    }
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// Whether the store failed over so recently that some nodes may not get jobs.
    pub(crate) fn is_after_failover(&self) -> bool {
        let last = *self.failover_guard.0.lock();
        last.identity != self.store.identity() || self.now_ms() < last.until_ms
    }

    /// Notices a failover. While the guard lasts, returns the time up to which heartbeats do not
    /// count.
    pub(crate) async fn compare_store(&self) -> lingua_store::Result<Option<u64>> {
        let identity = self.store.identity();
        let last = *self.failover_guard.0.lock();
        if last.identity == identity {
            return Ok((self.now_ms() < last.until_ms).then_some(last.mark_ms));
        }
        let mark_ms = self.store.now_ms().await?;
        tracing::warn!("the store failed over: nodes get no jobs until their next heartbeat");
        let until_ms = self.now_ms().saturating_add(self.options.times.stale_ms + MARGIN_MS);
        *self.failover_guard.0.lock() = LastFailover { identity, until_ms, mark_ms };
        Ok(Some(mark_ms))
    }

    /// The slots of a cell whose nodes have not sent a heartbeat since the failover.
    pub(crate) async fn unreported_slots(&self, cell: CellId) -> lingua_store::Result<SlotSet> {
        let Some(mark_ms) = self.compare_store().await? else { return Ok(SlotSet::EMPTY) };
        if planted::is(Bug::NoFailoverGuard) {
            return Ok(SlotSet::EMPTY);
        }
        let view = self.store.view(cell).await?;
        let unreported = view.nodes.iter().filter(|node| node.heartbeat_ms <= mark_ms);
        Ok(unreported.map(|node| node.place.slot).collect())
    }
}
