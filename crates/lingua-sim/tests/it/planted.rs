//! Every checker finds the bugs that are planted for it.
//!
//! Only built with `RUSTFLAGS="--cfg planted_bugs"`, into a target directory of its own.

use lingua_core::planted::Bug::*;
use lingua_sim::world::NodeBug::*;
use lingua_sim::world::PlantedBug::{Code, Node};
use lingua_sim::world::{Checker, PLANTED_BUGS, PlantedBug, PlantedBugCase};

#[test]
fn every_checker_has_a_planted_bug_that_only_it_is_trusted_to_find() {
    use Checker::{S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11};
    for checker in [S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11] {
        let finds = |plant: &&PlantedBugCase| plant.found_by == [checker];
        assert!(PLANTED_BUGS.iter().find(finds).is_some(), "{checker} has found nothing yet");
    }
}

fn assert_found(bug: PlantedBug) {
    let plant = PLANTED_BUGS.iter().find(|plant| plant.bug == bug).expect("it is in the list");
    let Some((seed, found)) = plant.find(plant.within) else {
        panic!("{bug:?} was not found in {} seeds", plant.within)
    };
    let checker = found.checker;
    assert!(plant.found_by.contains(&checker), "{bug:?} was found by {checker} at seed {seed}");
}

macro_rules! planted {
    ($($name:ident $bug:expr,)*) => {
        $(
            #[test]
            fn $name() {
                assert_found($bug);
            }
        )*

        #[test]
        fn every_planted_bug_has_its_test() {
            let tested = [$($bug),*];
            assert!(PLANTED_BUGS.iter().all(|plant| tested.contains(&plant.bug)));
            assert_eq!(tested.len(), PLANTED_BUGS.len());
        }
    };
}

planted! {
    a_node_without_admission_check_is_found Node(NoAdmission),
    a_node_without_fence_is_found Node(NoFence),
    a_counter_instead_of_leases_is_found Code(ExpiredSlotStaysCounted),
    a_finish_without_attempt_check_is_found Code(FinishIgnoresAttempt),
    a_word_about_another_attempt_that_counts_is_found Code(ReportIgnoresAttempt),
    adoption_decided_by_the_cell_is_found Code(CellAdopts),
    a_heartbeat_of_another_epoch_that_counts_is_found Code(HeartbeatIgnoresEpoch),
    a_lost_wake_is_found Code(LostWake),
    a_repeated_create_that_starts_anew_is_found Code(CreateRestartsJob),
    a_leader_without_term_is_found Code(LeaderWithoutTerm),
    a_table_that_goes_back_is_found Code(OldTableReplacesNew),
    a_move_that_is_not_told_is_found Code(MoveNotTold),
    an_order_sent_without_a_store_is_found Code(ActWithoutStore),
    a_job_that_nobody_looks_for_is_found Code(NoReconcile),
    an_age_by_two_clocks_is_found Code(AgeFromTwoClocks),
    trust_after_a_rollback_is_found Code(NoFailoverGuard),
    a_lease_that_never_expires_is_found Code(CommittedNeverExpires),
    a_lost_end_that_stays_lost_is_found Code(LostEndNotRestored),
    a_lost_end_that_yields_to_another_owner_is_found Code(EndOnlyOverOwnRecord),
    a_lost_end_that_yields_to_a_later_attempt_is_found Code(EndNotOverLaterAttempt),
    a_slot_that_is_held_for_an_ended_job_is_found Code(EndedJobKeepsSlot),
    a_slot_that_is_never_given_back_is_found Code(SlotNeverReleased),
    work_without_a_lease_that_goes_on_is_found Code(RunWithoutLease),
    results_told_as_they_end_are_found Code(DeliverAsItEnds),
    a_result_told_again_to_who_comes_back_is_found Code(DeliverTwice),
    a_segment_that_goes_with_its_instance_in_silence_is_found Code(MissingNotReported),
    sound_that_is_told_twice_is_found Code(AudioTwice),
    a_session_that_is_never_forgotten_is_found Code(SessionNeverRemoved),
    a_token_in_the_wrong_hands_is_found Node(StolenToken),
    a_return_that_is_not_announced_is_found Code(SilentReturnNotAnnounced),
    private_jobs_that_compete_are_found Code(PrivateJobsCompete),
    an_end_that_was_never_written_and_counts_is_found Code(UnwrittenEndKept),
}
