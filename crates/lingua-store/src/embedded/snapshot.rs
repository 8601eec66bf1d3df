//! What only simulations need: going back to an earlier state, as a failover of a shared store does
//! when it loses writes, and small cells.
//!
//! Start at [`Embedded::roll_back`]. The clock does not go back, so the numbers that follow it
//! (epochs, fences, terms) continue above the lost ones. For simulations only. A store with a
//! journal cannot be rolled back: its file would keep the lost writes.

use std::sync::atomic::Ordering;

use lingua_core::CELL_NODES_MAX;

use super::bindings::BindingTable;
use super::cell::Cell;
use super::directory::Directory;
use super::feed::Feed;
use super::instances::Instances;
use super::jobs::Jobs;
use super::keys::KeyTable;
use super::leader::Leadership;
use super::sessions::SessionTable;
use super::usage::UsageTable;
use super::{Clock, Embedded};

/// The store as it was at one moment.
#[derive(Debug, Clone)]
pub struct StoreSnapshot {
    cells: Vec<Cell>,
    directory: Directory,
    jobs: Jobs,
    keys: KeyTable,
    leadership: Leadership,
    instances: Instances,
    sessions: SessionTable,
    bindings: BindingTable,
    usage: UsageTable,
    feed: Feed,
}

/// Which writes a failover lost. Each part of a cluster fails over on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostWrites {
    /// All writes since the snapshot are lost.
    Everything,
    /// Writes to cells: nodes and leases.
    Cells,
    /// Writes to job records and idempotency keys.
    Jobs,
    /// Writes to places, leadership, instances, sessions, bindings, usage and the feed.
    Cluster,
}

impl<C: Clock> Embedded<C> {
    /// The same store with at most this many nodes in a cell, so that few nodes fill several.
    #[must_use]
    pub fn with_cells_of(self, nodes_max: usize) -> Self {
        self.inner.directory.lock().cell_nodes_max = Some(nodes_max.min(CELL_NODES_MAX));
        self
    }

    /// The store as it is now.
    pub fn snapshot(&self) -> StoreSnapshot {
        let inner = &self.inner;
        inner.may_forget.store(true, Ordering::Relaxed);
        StoreSnapshot {
            cells: inner.cells.iter().map(|cell| cell.0.lock().clone()).collect(),
            directory: inner.directory.lock().clone(),
            jobs: inner.jobs.lock().clone(),
            keys: inner.keys.lock().clone(),
            leadership: inner.leadership.lock().clone(),
            instances: inner.instances.lock().clone(),
            sessions: inner.sessions.lock().clone(),
            bindings: inner.bindings.lock().clone(),
            usage: inner.usage.lock().clone(),
            feed: inner.feed.lock().clone(),
        }
    }

    /// Drops the writes since the snapshot, and changes the store's identity.
    pub fn roll_back(&self, to: &StoreSnapshot, lost: LostWrites) {
        let inner = &self.inner;
        debug_assert!(inner.journal.is_none(), "the journal would keep the lost writes");
        if matches!(lost, LostWrites::Everything | LostWrites::Cells) {
            for (cell, before) in inner.cells.iter().zip(&to.cells) {
                *cell.0.lock() = before.clone();
            }
        }
        if matches!(lost, LostWrites::Everything | LostWrites::Jobs) {
            *inner.jobs.lock() = to.jobs.clone();
            *inner.keys.lock() = to.keys.clone();
        }
        if matches!(lost, LostWrites::Everything | LostWrites::Cluster) {
            *inner.directory.lock() = to.directory.clone();
            *inner.leadership.lock() = to.leadership.clone();
            *inner.instances.lock() = to.instances.clone();
            *inner.sessions.lock() = to.sessions.clone();
            *inner.bindings.lock() = to.bindings.clone();
            *inner.usage.lock() = to.usage.clone();
            *inner.feed.lock() = to.feed.clone();
        }
        inner.identity.fetch_add(1, Ordering::SeqCst);
        inner.message_sent.notify_waiters();
        inner.change_pushed.notify_waiters();
    }
}
