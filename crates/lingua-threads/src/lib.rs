//! Runs the embedded store and the waiting queue under many schedules of their threads.
//!
//! Start at [`store`] and [`waiting`]: each function is one small race, run under schedules that
//! `shuttle` draws at random. The sources are those of `lingua-store` and `lingua-engine`, compiled
//! a second time with the locks of [`locks`], so that neither crate needs a feature for it.
//!
//! Invariant: the code is the one that ships; only its locks are replaced.

// A unit test build would include the unit tests of those sources, which run without a schedule.
#![cfg(not(test))]

// The sources use `parking_lot`; here that is this crate.
extern crate self as parking_lot;

pub mod locks;
pub mod store;
pub mod waiting;

pub use locks::{Mutex, MutexGuard, RwLock};

use lingua_engine::{request, tenants};
use lingua_store::{clock, contract, error};
use shuttle::scheduler::{PctScheduler, RandomScheduler};

#[path = "../../lingua-store/src"]
mod lingua_store_src {
    #[allow(dead_code, unexpected_cfgs, unused_imports, unreachable_pub, missing_docs)]
    #[allow(unfulfilled_lint_expectations, reason = "docs are not missed here")]
    pub(crate) mod embedded;
}
use lingua_store_src::embedded;

#[allow(dead_code)]
#[path = "../../lingua-engine/src/live_jobs.rs"]
mod live_jobs;
#[allow(dead_code)]
#[path = "../../lingua-engine/src/queue.rs"]
mod queue;

/// The seed of all schedules: a run can be repeated.
const SEED: u64 = 0x11_46_0A;

/// Changes of priority in a schedule of the second scheduler: enough for bugs of depth three.
const PCT_DEPTH: usize = 3;

/// Runs a race under `schedules` schedules: three quarters drawn evenly, one quarter by priorities
/// that change seldom, which finds bugs that need one thread to lag far behind.
fn race(schedules: usize, body: impl Fn() + Send + Sync + Copy + 'static) {
    let by_priority = schedules / 4;
    let evenly = RandomScheduler::new_from_seed(SEED, schedules - by_priority);
    let seen = shuttle::Runner::new(evenly, shuttle::Config::new()).run(body);
    let by_priority = PctScheduler::new_from_seed(SEED, PCT_DEPTH, by_priority);
    let seen = seen + shuttle::Runner::new(by_priority, shuttle::Config::new()).run(body);
    assert_eq!(seen, schedules, "every schedule was run");
}
