//! The faults of one run of an instance: death, pauses, a bad connection to the store.
//!
//! Start at [`InstanceFaults`]. Every timer and every store call of an instance waits here, so a
//! dead instance does nothing although its tasks are still in memory.

use std::sync::Arc;
use std::time::Duration;

use lingua_engine::{Timer, TokioTimer};
use lingua_store::Clock;
use parking_lot::Mutex;
use tokio::sync::{Notify, SetOnce};

/// The state of the connection to the store. Times are absolute, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StoreLink {
    /// Unreachable from the first time to the second.
    pub(super) cut_ms: (u64, u64),
    /// Slow until the first time, by up to the second for each direction of a call.
    pub(super) slow_ms: (u64, u64),
    /// Until this time, this many of a thousand replies are lost.
    pub(super) lossy_ms: (u64, u32),
    /// Until this time, this many of a thousand bus messages are lost, repeated or late.
    pub(super) bad_bus_ms: (u64, u32),
}

impl StoreLink {
    pub(super) fn is_cut(&self, now_ms: u64) -> bool {
        (self.cut_ms.0..self.cut_ms.1).contains(&now_ms)
    }
}

/// The faults of one run of an instance.
#[derive(Debug)]
pub(super) struct InstanceFaults {
    clock: TokioTimer,
    link: Mutex<StoreLink>,
    paused_until_ms: Mutex<u64>,
    dead: SetOnce<()>,
    healed: Notify,
}

impl InstanceFaults {
    pub(super) fn new(clock: TokioTimer) -> Arc<Self> {
        let (link, paused_until_ms) = (Mutex::default(), Mutex::default());
        Arc::new(Self { clock, link, paused_until_ms, dead: SetOnce::new(), healed: Notify::new() })
    }

    pub(super) fn kill(&self) {
        // A second kill changes nothing.
        self.dead.set(()).ok();
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.initialized()
    }

    /// Waits until the run is dead.
    pub(super) async fn until_dead(&self) {
        self.dead.wait().await;
    }

    pub(super) fn pause_until(&self, ms: u64) {
        let mut until_ms = self.paused_until_ms.lock();
        *until_ms = ms.max(*until_ms);
    }

    pub(super) fn is_paused(&self) -> bool {
        *self.paused_until_ms.lock() > self.clock.now_ms()
    }

    pub(super) fn store_link(&self) -> StoreLink {
        *self.link.lock()
    }

    pub(super) fn change_store_link(&self, change: impl FnOnce(&mut StoreLink)) {
        change(&mut self.link.lock());
    }

    /// Ends all faults except death.
    pub(super) fn heal(&self) {
        *self.paused_until_ms.lock() = 0;
        *self.link.lock() = StoreLink::default();
        self.healed.notify_waiters();
    }

    /// Waits while the instance is paused; whether it is still alive.
    pub(super) async fn wait_while_paused(&self) -> bool {
        loop {
            if self.is_dead() {
                return false;
            }
            let left_ms = self.paused_until_ms.lock().saturating_sub(self.clock.now_ms());
            if left_ms == 0 {
                return true;
            }
            tokio::select! {
                biased;
                () = self.healed.notified() => {}
                () = tokio::time::sleep(Duration::from_millis(left_ms)) => {}
            }
        }
    }

    /// The same for the instance's own tasks: in a dead instance it never returns.
    pub(super) async fn wait_while_paused_or_dead(&self) {
        if !self.wait_while_paused().await {
            std::future::pending::<()>().await;
        }
    }
}

/// The clock of an instance: skewed by a constant, and paused with the instance.
#[derive(Debug, Clone)]
pub(super) struct SkewedTimer {
    pub(super) skew_ms: i64,
    pub(super) faults: Arc<InstanceFaults>,
}

impl Clock for SkewedTimer {
    fn now_ms(&self) -> u64 {
        self.faults.clock.now_ms().saturating_add_signed(self.skew_ms)
    }
}

impl Timer for SkewedTimer {
    async fn sleep(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        self.faults.wait_while_paused_or_dead().await;
    }
}
