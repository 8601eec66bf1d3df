//! Small runs of the simulations: what must hold, holds.
//!
//! Start at [`goals_hold`] for the quality of choices, at `faults.rs` for faults.
//! Runs are short, so that they take seconds; the binary checks the same goals with many more jobs.

mod faults;
#[cfg(planted_bugs)]
mod planted;

use lingua_core::Policy;
use lingua_sim::quality::baseline::Baseline;
use lingua_sim::quality::scenario::{Costs, DispatchRule};
use lingua_sim::quality::{
    GoalVerdict, QualityOptions, QualityOutcome, Scenario, check_goals, sections, theory, world,
};

const JOBS: u32 = 50_000;

/// Chance alone makes shorter runs miss the narrower goals with one seed in three.
const GOAL_JOBS: u32 = 120_000;

fn run(scenario: Scenario) -> QualityOutcome {
    world::run(&scenario.with_jobs(JOBS).seeded(7))
}

#[test]
fn goals_hold() {
    let verdicts = check_goals(QualityOptions { jobs: GOAL_JOBS, seed: 7 });
    let missed: Vec<&GoalVerdict> = verdicts.iter().filter(|verdict| !verdict.passed).collect();
    assert!(missed.is_empty(), "{missed:#?}");
    let names: Vec<&str> = verdicts.iter().map(|verdict| &*verdict.what).collect();
    for kind in ["queue, one pair", "cells of 100", "new node", "weights 2 : 1"] {
        assert!(names.iter().any(|name| name.starts_with(kind)), "{kind}: {names:#?}");
    }
}

#[test]
fn simulation_agrees_with_erlang() {
    let run = |scenario: Scenario| world::run(&scenario.with_jobs(400_000).seeded(7));
    let rejected = run(sections::theory_loss()).rejected_share();
    assert!((rejected / theory::erlang_b(100, 90.0) - 1.0).abs() < 0.1, "{rejected}");
    let wait_s = run(sections::theory_queue()).wait_mean_s;
    assert!((wait_s / theory::erlang_c_wait_s(100, 90.0) - 1.0).abs() < 0.25, "{wait_s}");
}

#[test]
fn same_seed_gives_the_same_numbers() {
    let learned = Scenario { costs: Costs::Learned, ..sections::overlapping() };
    let cells = Scenario { nodes: 250, ..learned };
    for scenario in [Scenario::default(), learned, cells, sections::single_lower_bound()] {
        let scenario = scenario.at(95).with_jobs(10_000);
        assert_eq!(world::run(&scenario), world::run(&scenario));
        assert_ne!(world::run(&scenario), world::run(&scenario.seeded(2)));
    }
}

#[test]
fn learned_costs_are_as_good_as_known_ones() {
    for base in [Scenario::default().at(95), sections::overlapping().at(95)] {
        let (known, learned) = (run(base), run(Scenario { costs: Costs::Learned, ..base }));
        assert_eq!(learned.rejected, [0; 3]);
        assert!(learned.response_p99_s <= 1.03 * known.response_p99_s, "{known:?} {learned:?}");
        assert!(learned.wait_p99_s <= 0.25, "{learned:?}");
    }
}

#[test]
fn balanced_beats_the_other_policies() {
    let with =
        |policy| run(Scenario { dispatch: DispatchRule::core(policy), ..Scenario::default() });
    let balanced = with(Policy::Balanced);
    for policy in [Policy::LeastLoaded, Policy::Random, Policy::Sample { k: Policy::SAMPLE_K }] {
        let other = with(policy);
        assert!(balanced.response_p99_s < 0.95 * other.response_p99_s, "{policy:?} {other:?}");
    }
}

#[test]
fn serial_sampling_needs_many_tries_and_refuses_rare_pairs() {
    let sample = DispatchRule::Baseline(Baseline::SerialSample);
    let outcome = run(Scenario { dispatch: sample, ..sections::overlapping_loss_kept().at(95) });
    assert!(outcome.tries_mean > 4.0 && outcome.rejected_share_of(2) > 0.1, "{outcome:?}");
}

#[test]
fn two_level_random_gives_the_last_node_of_101_half_of_the_traffic() {
    let two_level = DispatchRule::Baseline(Baseline::TwoLevelRandom);
    let outcome = run(Scenario { dispatch: two_level, ..sections::hundred_and_one().at(30) });
    assert!(outcome.rejected_share() > 0.45, "{outcome:?}");
    assert_eq!(run(sections::hundred_and_one().at(30)).rejected, [0; 3]);
}

#[test]
fn a_job_is_placed_in_another_cell_when_the_first_is_full() {
    let dispatch = DispatchRule::Core { policy: Policy::Balanced, instances: 4 };
    let outcome = run(Scenario { nodes: 300, dispatch, ..sections::single_loss() }.at(95));
    // As one pool of 300 would: three pools on their own would each reject half a percent.
    assert!(outcome.rejected_share() < 0.001, "{outcome:?}");
    assert!(outcome.tries_mean < 1.1, "{outcome:?}");
}
