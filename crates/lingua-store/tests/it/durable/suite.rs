//! The durable store passes the conformance suite.

use lingua_core::Rules;
use lingua_store::{Embedded, ManualClock, StoreLimits};

use super::quick_dir;

/// The directory is removed at once: the store goes on with its open file, and nothing is left
/// behind.
async fn durable(rules: Rules, clock: ManualClock) -> Embedded<ManualClock> {
    let dir = quick_dir();
    Embedded::open(rules, StoreLimits::default(), clock, dir.path()).expect("a store")
}

lingua_store::conformance_suite!(durable);
