//! The suite that every store must pass.
//!
//! Start at [`conformance_suite!`](crate::conformance_suite): it creates one test for each rule in
//! `rules/` and runs the random histories of `history/`. Every reply of a history is compared with
//! the [`Model`], the contract in its simplest form.
//!
//! | file | contents |
//! |---|---|
//! | `model.rs`, `model/` | the reference model: lists and loops |
//! | `history.rs`, `history/` | random histories, checked step by step |
//! | `rules.rs`, `rules/` | one function for each rule |
//! | `fixture.rs` | shorthands for nodes and requests |
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

/// An empty store and its clock.
#[derive(Debug)]
pub struct World<S> {
    /// The store under test.
    pub store: S,
    /// The clock of the store.
    pub clock: ManualClock,
    /// The rules it was made with.
    pub rules: Rules,
}

impl<S: Store> World<S> {
    /// Creates a world with a store from `factory`.
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

/// Runs the whole suite on a store: one test for each rule, and the random histories.
///
/// `$factory` is a function `(Rules, ManualClock) -> impl Future<Output = impl Store>` that gives a
/// fresh, empty store each time. `LINGUA_HISTORIES`, `LINGUA_STEPS` and `LINGUA_SEED` make the
/// histories more, longer, or repeat a single one.
///
/// `conformance_suite!($factory, in_one_test, $histories)` is the same in a single test with this
/// many histories: for stores that take long to set up.
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

        #[tokio::test]
        async fn histories_with_full_cells_agree_with_the_model() {
            $crate::conformance::history::run_full($factory, 0..4).await;
        }

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

/// The list of rules: `each` creates one test per rule, `all` runs them one after the other.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_rules {
    ($mode:ident $factory:expr) => {
        $crate::conformance_rules!(@$mode $factory, cells:
            an_expired_reservation_frees_its_slot,
            a_second_finish_frees_nothing_of_another_job,
            a_late_ack_finds_its_lease_gone,
            other_attempts_change_nothing,
            a_node_without_heartbeats_is_not_selected,
            a_heartbeat_changes_no_index_and_publishes_nothing,
            removed_languages_are_gone_at_once,
            a_registration_keeps_the_leases_that_it_names,
            one_call_finds_the_only_free_slot,
            a_pin_to_a_dead_or_full_node_is_not_followed,
            a_repeated_reserve_takes_one_slot,
            a_new_node_gets_jobs_at_once,
            a_later_attempt_replaces_the_earlier_one,
            a_later_epoch_ends_the_leases_of_the_earlier_one,
            a_heartbeat_of_an_unknown_node_is_refused,
            a_heartbeat_without_capabilities_keeps_them,
            running_leases_are_renewed_and_unknown_ones_listed,
            a_drain_order_outlives_a_reconnect,
            a_signed_off_node_loses_its_leases_once,
            a_shrunken_node_admits_nothing_until_there_is_room,
            an_expired_lease_never_makes_a_cell_full,
            a_node_that_has_just_gone_counts_as_capable,
            private_and_overloaded_nodes_are_not_selected,
            an_explanation_from_a_view_agrees_with_the_store,
        );
        $crate::conformance_rules!(@$mode $factory, choice:
            a_new_node_starts_with_one_job,
            a_limit_follows_what_the_attempts_said,
            a_failing_node_gets_another_chance_with_its_heartbeat,
            a_reply_tells_what_the_cell_can_do,
            flexible_nodes_keep_a_few_slots_together,
            what_was_learned_of_a_node_survives_its_reconnect,
            equal_nodes_share_jobs_equally,
        );
        $crate::conformance_rules!(@$mode $factory, placement:
            every_cell_is_found_across_gaps,
            a_cell_has_at_most_a_hundred_nodes,
            cells_stay_alike_in_size,
            a_popular_class_spans_two_cells_and_a_small_one_stays_together,
            a_place_is_kept_and_each_incarnation_gets_a_higher_epoch,
            a_reused_slot_refuses_its_former_tenant,
            a_node_belongs_to_the_token_that_registered_it,
            a_place_is_released_only_by_its_present_epoch,
        );
        $crate::conformance_rules!(@$mode $factory, jobs:
            one_of_two_racing_ends_wins,
            a_repeated_step_is_recognised_by_its_token,
            a_job_is_created_once,
            only_the_heir_moves_a_claimed_job,
            jobs_of_the_living_are_not_claimed,
            ended_jobs_are_kept_for_an_hour,
            jobs_are_listed_in_pages,
            jobs_are_listed_by_state_label_and_node,
            a_list_reads_a_bounded_number_of_records,
            oversized_content_is_refused,
            nothing_is_kept_of_an_erased_job,
            a_job_is_kept_only_as_long_as_its_end_says,
        );
        $crate::conformance_rules!(@$mode $factory, usage:
            a_batch_counts_once_however_often_it_comes,
            counts_are_kept_by_day_for_a_bounded_time,
        );
        $crate::conformance_rules!(@$mode $factory, keys:
            a_key_stands_for_one_job,
            a_key_is_taken_only_from_the_named_job,
            a_key_is_kept_for_an_hour,
        );
        $crate::conformance_rules!(@$mode $factory, sessions:
            a_session_is_taken_over_by_one_of_two,
            a_session_is_kept_for_the_requested_time,
            an_oversized_session_is_refused,
        );
        $crate::conformance_rules!(@$mode $factory, bindings:
            a_binding_moves_only_from_the_node_that_the_caller_knows,
            a_binding_is_kept_for_the_requested_time,
            each_tenant_has_its_own_keys,
        );
        $crate::conformance_rules!(@$mode $factory, cluster:
            an_expired_leader_does_not_renew,
            the_table_and_its_version_are_written_together,
            only_the_present_term_publishes,
            a_resigned_leader_is_replaced_at_once,
            two_living_processes_never_share_a_name,
            messages_stay_until_they_are_acknowledged,
            a_waiting_reader_wakes_up,
            the_return_of_a_silent_node_is_a_change,
            the_feed_lists_changes_and_reports_gaps,
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
