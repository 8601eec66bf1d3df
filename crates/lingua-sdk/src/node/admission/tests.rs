use super::*;
use lingua_core::{Attempt, JobId};

fn job(number: u128) -> JobRef {
    JobRef { job_id: JobId::new(number), attempt_id: Attempt::FIRST }
}

fn admission(slots: u16) -> Admission {
    Admission::new(slots, Health::Ready, Stats::default())
}

fn result(bytes: usize) -> OutboundMessage {
    OutboundMessage { text: "x".repeat(bytes).into(), audio: None }
}

fn reason(result: AdmitResult) -> &'static str {
    match result {
        AdmitResult::Refused(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refused_assignment_still_raises_the_fence() {
    let mut admission = admission(1);
    assert!(matches!(admission.admit(job(1), Fence(10)), AdmitResult::Accepted(_)));
    assert_eq!(reason(admission.admit(job(2), Fence(20))), JobFail::BUSY);
    assert_eq!(admission.release(job(1)), Some(Fence(10)));
    assert_eq!(reason(admission.admit(job(3), Fence(20))), JobFail::STALE_FENCE);
    assert_eq!(reason(admission.admit(job(3), Fence(15))), JobFail::STALE_FENCE);
    admission.begin_epoch();
    assert!(matches!(admission.admit(job(3), Fence(5)), AdmitResult::Accepted(_)));
}

#[test]
fn a_repeated_assignment_is_not_refused() {
    let mut admission = admission(1);
    assert!(matches!(admission.admit(job(1), Fence(1)), AdmitResult::Accepted(_)));
    assert!(matches!(admission.admit(job(1), Fence(1)), AdmitResult::AlreadyRunning));
    admission.release(job(1));
    admission.keep_result(job(1), result(3));
    assert!(matches!(admission.admit(job(1), Fence(1)), AdmitResult::AlreadyFinished(_)));
    admission.confirm(job(1));
    assert_eq!(reason(admission.admit(job(1), Fence(1))), JobFail::STALE_FENCE);
}

#[test]
fn results_are_bounded_by_number_and_by_size() {
    let mut admission = admission(1);
    for number in 0..UNCONFIRMED_MAX as u128 + 10 {
        admission.keep_result(job(number), result(1));
    }
    assert_eq!(
        (admission.unconfirmed.len(), admission.unconfirmed_bytes),
        (UNCONFIRMED_MAX, UNCONFIRMED_MAX)
    );
    assert_eq!(admission.unconfirmed.front().map(|first| first.0), Some(job(10)));
    for number in 0..3 {
        admission.keep_result(job(1000 + number), result(UNCONFIRMED_BYTES_MAX / 2));
    }
    assert_eq!(
        (admission.unconfirmed.len(), admission.unconfirmed_bytes),
        (2, UNCONFIRMED_BYTES_MAX)
    );
}

#[test]
fn draining_ends_when_the_scheduler_ends_it() {
    let mut admission = admission(1);
    assert!(admission.set_draining(true) && !admission.set_draining(true));
    assert_eq!(reason(admission.admit(job(1), Fence(1))), JobFail::BUSY);
    assert_eq!(admission.health(), Health::Draining);
    assert!(admission.set_draining(false));
    assert_eq!(admission.health(), Health::Ready);
    assert!(matches!(admission.admit(job(1), Fence(2)), AdmitResult::Accepted(_)));
}
