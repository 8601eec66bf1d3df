//! Counters of a node, for tests, simulations and dashboards.
//!
//! Start at [`Stats`]: a handle that is cheap to clone and may be read from any task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Counters of one node.
#[derive(Debug, Clone, Default)]
pub struct Stats(Arc<Counters>);

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        struct Counters {
            $($name: AtomicU64,)*
            connected: AtomicBool,
        }

        impl Stats {
            $($(#[$doc])* pub fn $name(&self) -> u64 {
                self.0.$name.load(Relaxed)
            })*
        }
    };
}

counters! {
    /// Jobs that run now.
    running,
    /// Most jobs that ever ran at the same time.
    most_at_once,
    /// Jobs that succeeded.
    done,
    /// Jobs that failed.
    failed,
    /// Jobs that were never started: no free slot, or an old fence.
    refused,
    /// How often the node registered again after it had lost its connection.
    reconnects,
}

impl Stats {
    /// Whether the node is registered right now.
    pub fn is_connected(&self) -> bool {
        self.0.connected.load(Relaxed)
    }

    pub(super) fn set_connected(&self, connected: bool) {
        self.0.connected.store(connected, Relaxed);
    }

    pub(super) fn set_running(&self, running: usize) {
        self.0.running.store(running as u64, Relaxed);
        self.0.most_at_once.fetch_max(running as u64, Relaxed);
    }

    pub(super) fn count_ended(&self, is_success: bool) {
        let counter = if is_success { &self.0.done } else { &self.0.failed };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn count_refused(&self) {
        self.0.refused.fetch_add(1, Relaxed);
    }

    pub(super) fn count_reconnect(&self) {
        self.0.reconnects.fetch_add(1, Relaxed);
    }
}
