//! The embedded store passes the conformance suite.

use lingua_core::Rules;
use lingua_store::{Embedded, ManualClock, StoreLimits};

async fn embedded(rules: Rules, clock: ManualClock) -> Embedded<ManualClock> {
    Embedded::new(rules, StoreLimits::default(), clock)
}

lingua_store::conformance_suite!(embedded);
