//! The suite that every store is put through.
//!
//! Start at [`conformance_suite!`](crate::conformance_suite): it makes one test of each rule in
//! `rules/` and runs the random histories of `history/`, whose every reply is held against the
//! [`Model`], the contract in its plainest form.
//!
//! | file | what |
//! |---|---|
//! | `model.rs`, `model/` | the reference model: lists, loops and no cleverness |
//! | `history.rs`, `history/` | random histories, checked step by step |
//! | `rules.rs`, `rules/` | one function for each rule, named after it |
//! | `fixture.rs` | short ways to write nodes and requests |
//!
//! Invariant: nothing here knows which store it tests.

use std::future::Future;

use lingua_core::Rules;

use crate::clock::ManualClock;
use crate::contract::Store;

pub mod fixture;
pub mod history;
pub mod model;
pub mod rules;

pub use model::Model;

/// When the clock of a test world starts.
pub const START_MS: u64 = 1_800_000_000_000;

/// A fresh, empty store and the hand that moves its clock.
#[derive(Debug)]
pub struct World<S> {
    /// The store under test.
    pub store: S,
    /// Its clock.
    pub clock: ManualClock,
    /// The rules it was made with.
    pub rules: Rules,
}

impl<S: Store> World<S> {
    /// Makes a world with a store from `factory`.
    pub async fn new<F, Fut>(factory: F, rules: Rules) -> Self
    where
        F: FnOnce(Rules, ManualClock) -> Fut,
        Fut: Future<Output = S>,
    {
        let clock = ManualClock::at(START_MS);
        let store = factory(rules, clock.clone()).await;
        Self { store, clock, rules }
    }
}

/// Puts a store through the whole suite: one test for each rule, and the random histories.
///
/// `$factory` is a function `(Rules, ManualClock) -> impl Future<Output = impl Store>` that gives a
/// fresh, empty store each time. `LINGUA_HISTORIES`, `LINGUA_STEPS` and `LINGUA_SEED` make the
/// histories more, longer, or repeat a single one.
///
/// `conformance_suite!($factory, in_one_test, $histories)` is the same in a single test with this many
/// histories: for stores that take long to set up.
#[macro_export]
macro_rules! conformance_suite {
    ($factory:expr) => {
        $crate::conformance_rules!(each $factory);
        $crate::conformance_suite!(@histories $factory,
            random_histories_agree_with_the_model_1 0,
            random_histories_agree_with_the_model_2 1,
            random_histories_agree_with_the_model_3 2,
            random_histories_agree_with_the_model_4 3,
        );

        #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
        async fn racing_instances_never_oversell() {
            $crate::conformance::rules::races::racing_instances_never_oversell($factory).await;
        }
    };
    ($factory:expr, in_one_test, $histories:expr) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn every_rule_holds() {
            $crate::conformance_rules!(all $factory);
            $crate::conformance::rules::races::racing_instances_never_oversell($factory).await;
        }

        #[tokio::test]
        async fn random_histories_agree_with_the_model() {
            $crate::conformance::history::run($factory, 0..$histories).await;
        }
    };
    (@histories $factory:expr, $($name:ident $part:expr,)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                $crate::conformance::history::run_part($factory, $part, 4).await;
            }
        )*
    };
}

/// The list of rules: `each` makes a test of every one, `all` runs one after the other.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_rules {
    ($mode:ident $factory:expr) => {
        $crate::conformance_rules!(@$mode $factory, cells:
            fault_01_an_expired_reservation_frees_its_slot,
            fault_02_a_second_finish_frees_nothing_of_another_job,
            fault_03_a_late_ack_is_told_that_its_lease_is_gone,
            fault_04_other_attempts_change_nothing,
            fault_05_a_silent_node_is_not_chosen_whatever_others_do,
            fault_06_a_heartbeat_changes_no_index_and_tells_nobody,
            fault_07_lost_languages_are_gone_at_once,
            fault_11_one_call_finds_the_only_free_slot,
            fault_14_a_pin_to_a_dead_or_full_node_is_not_followed,
            fault_15_a_repeated_reserve_takes_one_slot,
            a_new_node_gets_jobs_at_once,
            a_later_attempt_replaces_the_earlier_one,
            a_later_epoch_ends_old_leases_and_old_words,
            an_unknown_node_cannot_beat_itself_into_being,
            a_heartbeat_without_capabilities_keeps_them,
            running_work_is_renewed_and_strange_work_is_named,
            a_drain_order_outlives_a_reconnect,
            a_signed_off_node_loses_its_leases_once,
            a_shrunken_node_admits_nothing_until_there_is_room,
            a_dead_lease_never_makes_a_cell_full,
            private_and_overloaded_nodes_are_passed_over,
            an_explanation_from_a_view_agrees_with_the_store,
        );
        $crate::conformance_rules!(@$mode $factory, placement:
            fault_09_every_cell_is_found_across_gaps,
            doc_000_2_2_a_cell_has_at_most_a_hundred_nodes,
            a_popular_class_spans_two_cells_and_a_small_one_stays_together,
            a_place_is_kept_and_each_incarnation_gets_a_higher_epoch,
            a_reused_slot_refuses_its_former_tenant,
            a_place_is_released_only_by_its_present_epoch,
        );
        $crate::conformance_rules!(@$mode $factory, jobs:
            one_of_two_racing_ends_wins,
            a_repeated_step_is_recognised_by_its_token,
            a_job_is_created_once,
            an_heir_moves_orphans_and_the_dead_owner_cannot,
            jobs_of_the_living_are_not_claimed,
            ended_jobs_are_remembered_for_an_hour,
            jobs_are_listed_in_pages,
            oversized_content_is_refused,
        );
        $crate::conformance_rules!(@$mode $factory, sessions:
            a_session_is_taken_over_by_one_of_two,
            a_session_is_kept_as_long_as_was_asked_for,
            an_oversized_session_is_refused,
        );
        $crate::conformance_rules!(@$mode $factory, cluster:
            fault_12_a_lapsed_leader_does_not_renew,
            fault_13_the_table_and_its_version_live_together,
            only_the_present_term_publishes,
            a_resigned_leader_is_replaced_at_once,
            two_living_processes_never_share_a_name,
            messages_stay_until_they_are_acknowledged,
            a_waiting_reader_wakes_up,
            the_feed_names_what_changed_and_admits_a_gap,
            the_identity_stays_while_nothing_is_lost_and_the_clock_is_the_stores,
        );
    };
    (@each $factory:expr, $module:ident: $($rule:ident,)*) => {
        $(
            #[tokio::test]
            async fn $rule() {
                use $crate::conformance::{World, rules::$module};
                $module::$rule(World::new($factory, Default::default()).await).await;
            }
        )*
    };
    (@all $factory:expr, $module:ident: $($rule:ident,)*) => {
        $(
            {
                use $crate::conformance::{World, rules::$module};
                $module::$rule(World::new($factory, Default::default()).await).await;
            }
        )*
    };
}
