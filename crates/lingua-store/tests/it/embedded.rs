//! The embedded store passes the conformance suite.

use lingua_core::Rules;
use lingua_store::{Embedded, Limits, ManualClock};

async fn embedded(rules: Rules, clock: ManualClock) -> Embedded<ManualClock> {
    Embedded::new(rules, Limits::default(), clock)
}

lingua_store::conformance_suite!(embedded);
