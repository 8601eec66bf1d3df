//! Going back to an earlier state, as a failover of a shared store does to its last writes.
//!
//! Start at [`Embedded::roll_back`]. The clock does not go back, so the numbers that follow it (epochs,
//! fences, terms) go on above those that were lost. For simulations only; a store with a journal must
//! not be rolled back, because the journal would not know.

use std::sync::atomic::Ordering;

use super::cell::Cell;
use super::directory::Directory;
use super::feed::Feed;
use super::instances::Instances;
use super::jobs::Jobs;
use super::leader::Leadership;
use super::sessions::Sessions;
use super::{Clock, Embedded};

/// The store as it was at one moment.
#[derive(Debug, Clone)]
pub struct StoreSnapshot {
    cells: Vec<Cell>,
    directory: Directory,
    jobs: Jobs,
    leadership: Leadership,
    instances: Instances,
    sessions: Sessions,
    feed: Feed,
}

/// Which writes a failover lost. The parts of a cluster fail over each on their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostWrites {
    /// All.
    Everything,
    /// Only those to cells: nodes and leases.
    Cells,
    /// Only those to job records.
    Jobs,
    /// Only those to places, leadership, instances and the feed.
    Cluster,
}

impl<C: Clock> Embedded<C> {
    /// The store as it is now.
    pub fn snapshot(&self) -> StoreSnapshot {
        let inner = &self.inner;
        inner.may_forget.store(true, Ordering::Relaxed);
        StoreSnapshot {
            cells: inner.cells.iter().map(|cell| cell.0.lock().clone()).collect(),
            directory: inner.directory.lock().clone(),
            jobs: inner.jobs.lock().clone(),
            leadership: inner.leadership.lock().clone(),
            instances: inner.instances.lock().clone(),
            sessions: inner.sessions.lock().clone(),
            feed: inner.feed.lock().clone(),
        }
    }

    /// Forgets what was written since; from then on this is another life of the store.
    pub fn roll_back(&self, to: &StoreSnapshot, lost: LostWrites) {
        let inner = &self.inner;
        debug_assert!(inner.journal.is_none(), "the journal would not know");
        if matches!(lost, LostWrites::Everything | LostWrites::Cells) {
            for (cell, before) in inner.cells.iter().zip(&to.cells) {
                *cell.0.lock() = before.clone();
            }
        }
        if matches!(lost, LostWrites::Everything | LostWrites::Jobs) {
            *inner.jobs.lock() = to.jobs.clone();
        }
        if matches!(lost, LostWrites::Everything | LostWrites::Cluster) {
            *inner.directory.lock() = to.directory.clone();
            *inner.leadership.lock() = to.leadership.clone();
            *inner.instances.lock() = to.instances.clone();
            *inner.sessions.lock() = to.sessions.clone();
            *inner.feed.lock() = to.feed.clone();
        }
        inner.identity.fetch_add(1, Ordering::SeqCst);
        inner.mail.notify_waiters();
        inner.news.notify_waiters();
    }
}
