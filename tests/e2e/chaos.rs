//! A short chaos run; `cargo xtask chaos` has longer ones.

use lingua_chaos::{ChaosOptions, run};

use crate::scheduler::binary;

/// Requirements: SLOT-02.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_rule_holds_while_processes_are_killed_and_paused() {
    let program = binary().into();
    let options =
        ChaosOptions { program, seed: 3, jobs: 300, nodes: 12, rate: 25.0, fault_every_ms: 500 };
    let report = run(&options).await.expect("everything starts");
    assert!(report.violations.is_empty(), "{report}");
    assert_eq!(report.accepted, 300, "{report}");
    assert!(report.done > 150 && report.faults > 5, "{report}");
}
