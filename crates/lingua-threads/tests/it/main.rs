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
fn a_slot_found_without_a_wake_wakes_the_next() {
    waiting::a_slot_found_without_a_wake_wakes_the_next(5_000);
}

#[test]
fn an_unused_wake_is_passed_on() {
    waiting::an_unused_wake_is_passed_on(20_000);
}

#[test]
fn every_waiter_learns_of_the_end() {
    waiting::every_waiter_learns_of_the_end(10_000);
}
