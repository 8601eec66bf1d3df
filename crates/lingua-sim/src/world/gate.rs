//! What holds an instance up: death, pauses, and its way to the store.
//!
//! Start at [`Gate`]. All time that an instance sees and every call that it makes go through its gate, so
//! that a dead instance does nothing any more although its tasks are still in memory.

use std::sync::Arc;
use std::time::Duration;

use lingua_engine::{Timer, TokioTimer};
use lingua_store::Clock;
use parking_lot::Mutex;
use tokio::sync::{Notify, SetOnce};

/// How the way to the store is at the moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Way {
    /// Unreachable from and until then.
    pub(super) cut_ms: (u64, u64),
    /// Slow until then, by up to so much for each call.
    pub(super) slow_ms: (u64, u64),
    /// Until then, so many of a thousand answers get lost.
    pub(super) lossy_ms: (u64, u32),
    /// Until then, so many of a thousand messages to other instances get lost, come twice, or come late.
    pub(super) bad_bus_ms: (u64, u32),
}

impl Way {
    pub(super) fn is_cut(&self, now_ms: u64) -> bool {
        (self.cut_ms.0..self.cut_ms.1).contains(&now_ms)
    }
}

/// One life of an instance, as the world holds it up. Times are of the world.
#[derive(Debug)]
pub(super) struct Gate {
    clock: TokioTimer,
    way: Mutex<Way>,
    paused_until_ms: Mutex<u64>,
    dead: SetOnce<()>,
    healed: Notify,
}

impl Gate {
    pub(super) fn new(clock: TokioTimer) -> Arc<Self> {
        let (way, paused_until_ms) = (Mutex::default(), Mutex::default());
        Arc::new(Self { clock, way, paused_until_ms, dead: SetOnce::new(), healed: Notify::new() })
    }

    pub(super) fn kill(&self) {
        // Nobody dies twice.
        self.dead.set(()).ok();
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.initialized()
    }

    /// Waits for the end of this life.
    pub(super) async fn died(&self) {
        self.dead.wait().await;
    }

    pub(super) fn pause_until(&self, ms: u64) {
        let mut until_ms = self.paused_until_ms.lock();
        *until_ms = ms.max(*until_ms);
    }

    pub(super) fn is_paused(&self) -> bool {
        *self.paused_until_ms.lock() > self.clock.now_ms()
    }

    pub(super) fn way(&self) -> Way {
        *self.way.lock()
    }

    pub(super) fn change_way(&self, change: impl FnOnce(&mut Way)) {
        change(&mut self.way.lock());
    }

    /// Ends everything that holds it up, except death.
    pub(super) fn heal(&self) {
        *self.paused_until_ms.lock() = 0;
        *self.way.lock() = Way::default();
        self.healed.notify_waiters();
    }

    /// Waits out a pause; says whether the instance still lives.
    pub(super) async fn pass(&self) -> bool {
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

    /// As [`pass`](Self::pass), for the instance's own tasks: the dead never get through.
    pub(super) async fn pass_or_stay(&self) {
        if !self.pass().await {
            std::future::pending::<()>().await;
        }
    }
}

/// The clock of an instance: off by a constant, and held up with it.
#[derive(Debug, Clone)]
pub(super) struct SkewedTimer {
    pub(super) skew_ms: i64,
    pub(super) gate: Arc<Gate>,
}

impl Clock for SkewedTimer {
    fn now_ms(&self) -> u64 {
        self.gate.clock.now_ms().saturating_add_signed(self.skew_ms)
    }
}

impl Timer for SkewedTimer {
    async fn sleep(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        self.gate.pass_or_stay().await;
    }
}
