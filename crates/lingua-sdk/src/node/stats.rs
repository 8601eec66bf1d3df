//! What a node has done so far, for tests, simulations and dashboards.
//!
//! Start at [`Stats`]: a handle that is cheap to clone and may be read from any task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts of one node.
#[derive(Debug, Clone, Default)]
pub struct Stats(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    running: AtomicU64,
    most_at_once: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    reconnects: AtomicU64,
    connected: AtomicBool,
}

impl Stats {
    /// Jobs that it works on now.
    pub fn running(&self) -> u64 {
        read(&self.0.running)
    }

    /// Most jobs that it ever worked on at the same time.
    pub fn most_at_once(&self) -> u64 {
        read(&self.0.most_at_once)
    }

    /// Jobs that it finished.
    pub fn done(&self) -> u64 {
        read(&self.0.done)
    }

    /// Jobs that it gave up on.
    pub fn failed(&self) -> u64 {
        read(&self.0.failed)
    }

    /// Jobs that it never started: no room, or an old order.
    pub fn refused(&self) -> u64 {
        read(&self.0.refused)
    }

    /// How often it registered again after it had lost its connection.
    pub fn reconnects(&self) -> u64 {
        read(&self.0.reconnects)
    }

    /// Whether it is registered right now.
    pub fn is_connected(&self) -> bool {
        self.0.connected.load(Ordering::Relaxed)
    }

    pub(super) fn set_connected(&self, connected: bool) {
        self.0.connected.store(connected, Ordering::Relaxed);
    }

    pub(super) fn set_running(&self, running: usize) {
        let running = running as u64;
        self.0.running.store(running, Ordering::Relaxed);
        self.0.most_at_once.fetch_max(running, Ordering::Relaxed);
    }

    pub(super) fn count_done(&self) {
        self.0.done.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_failed(&self) {
        self.0.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_refused(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_reconnect(&self) {
        self.0.reconnects.fetch_add(1, Ordering::Relaxed);
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
