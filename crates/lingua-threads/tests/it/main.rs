//! The races, with the number of schedules of each: together at least 100,000.

use lingua_threads::{store, waiting};

#[test]
fn racing_jobs_never_oversell() {
    store::racing_jobs_never_oversell(20_000);
}

#[test]
fn a_lease_ends_once_whoever_ends_it() {
    store::a_lease_ends_once_whoever_ends_it(20_000);
}

#[test]
fn a_job_is_created_once_and_ends_once() {
    store::a_job_is_created_once_and_ends_once(20_000);
}

#[test]
fn no_message_is_missed() {
    store::no_message_is_missed(10_000);
}

#[test]
fn every_waiter_that_could_get_a_slot_gets_it() {
    waiting::every_waiter_that_could_get_a_slot_gets_it(20_000);
}

#[test]
fn room_that_nobody_told_of_is_passed_on() {
    waiting::room_that_nobody_told_of_is_passed_on(5_000);
}

#[test]
fn a_wake_that_is_not_used_is_passed_on() {
    waiting::a_wake_that_is_not_used_is_passed_on(20_000);
}

#[test]
fn whoever_waits_for_an_end_hears_of_it() {
    waiting::whoever_waits_for_an_end_hears_of_it(10_000);
}
