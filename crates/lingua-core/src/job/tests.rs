//! Every event in every state, and random lives.

use proptest::prelude::*;

use super::*;
use JobState::*;

const RETRY: RetryPolicy = RetryPolicy { max_retry: 2 };

/// Whether any single event leads from one stage to the other.
fn may_become(from: Stage, to: Stage) -> bool {
    let is_step = match (from.state, to.state) {
        (Done | Failed | Cancelled, _) => false,
        // An open job may fail, be cancelled, or be tried again (after an attempt failed or after
        // its instance was lost).
        (_, Failed | Cancelled | Retrying) => true,
        (New | Retrying, Selecting) => true,
        (Selecting, Reserved) => true,
        (Reserved, Dispatched) => true,
        // A result may overtake its ACK.
        (Dispatched, Acked | Done) => true,
        (Acked, Done) => true,
        _ => false,
    };
    let is_retry = to.state == Retrying;
    is_step && to.attempt == if is_retry { from.attempt.next() } else { from.attempt }
}

fn grant(slot: usize, fence: u64) -> Grant {
    Grant {
        node: NodeId::new(&format!("node-{slot}")).unwrap(),
        cell: CellId::new(0).unwrap(),
        slot: Slot::new(slot).unwrap(),
        epoch: Epoch(1),
        fence: Fence(fence),
        via: InstanceId::new("one").unwrap(),
    }
}

fn report(attempt: u32) -> AttemptReport {
    AttemptReport { attempt: Attempt(attempt), node: grant(1, 1).node, fence: None }
}

/// A job in this state, in its first attempt (second, when retrying), on node 1 if on any.
fn job_in(state: JobState) -> JobMachine {
    let first = Attempt::FIRST;
    let path: Vec<JobEvent> = match state {
        New => vec![],
        Selecting => vec![JobEvent::Select],
        Reserved => vec![JobEvent::Select, JobEvent::Granted(grant(1, 1))],
        Dispatched => vec![JobEvent::Select, JobEvent::Granted(grant(1, 1)), JobEvent::Dispatch],
        Acked => [job_path(Dispatched), vec![JobEvent::Acked(report(1))]].concat(),
        Retrying => [job_path(Dispatched), vec![JobEvent::AckTimeout(first)]].concat(),
        Done => [job_path(Dispatched), vec![JobEvent::Done(report(1))]].concat(),
        Failed => vec![JobEvent::DeadlinePassed],
        Cancelled => vec![JobEvent::Cancel],
    };
    let mut job = JobMachine::new();
    for event in path {
        job.apply(event, RETRY).unwrap();
    }
    assert_eq!(job.stage().state, state);
    job
}

fn job_path(state: JobState) -> Vec<JobEvent> {
    assert_eq!(state, Dispatched);
    vec![JobEvent::Select, JobEvent::Granted(grant(1, 1)), JobEvent::Dispatch]
}

fn every_event(attempt: u32) -> Vec<(&'static str, JobEvent)> {
    let a = Attempt(attempt);
    vec![
        ("select", JobEvent::Select),
        ("granted", JobEvent::Granted(grant(2, 2))),
        ("no_slot", JobEvent::NoSlot(JobFailure::NoSlot)),
        ("dispatch", JobEvent::Dispatch),
        ("acked", JobEvent::Acked(report(attempt))),
        ("done", JobEvent::Done(report(attempt))),
        ("failed", JobEvent::NodeFailed { report: report(attempt), retryable: true }),
        ("failed_for_good", JobEvent::NodeFailed { report: report(attempt), retryable: false }),
        ("refused", JobEvent::Refused(report(attempt))),
        ("overtaken", JobEvent::Overtaken(report(attempt))),
        ("send_failed", JobEvent::SendFailed(a)),
        ("ack_timeout", JobEvent::AckTimeout(a)),
        ("run_timeout", JobEvent::RunTimeout(a)),
        ("node_lost", JobEvent::NodeLost(a)),
        ("reclaimed", JobEvent::Reclaimed),
        ("instance_lost", JobEvent::InstanceLost),
        ("deadline", JobEvent::DeadlinePassed),
        ("cancel", JobEvent::Cancel),
        ("internal_error", JobEvent::InternalError),
    ]
}

/// The whole machine in one table: where each event leads from each open state, `-` for refused.
#[test]
fn every_event_in_every_open_state() {
    let open = [New, Selecting, Reserved, Dispatched, Acked, Retrying];
    #[rustfmt::skip]
    let table = [
        ("select",          ["SELECTING", "-", "-", "-", "-", "SELECTING"]),
        ("granted",         ["-", "RESERVED", "-", "-", "-", "-"]),
        ("no_slot",         ["-", "FAILED", "-", "-", "-", "-"]),
        ("dispatch",        ["-", "-", "DISPATCHED", "-", "-", "-"]),
        ("acked",           ["-", "-", "-", "ACKED", "ACKED", "-"]),
        ("done",            ["-", "-", "-", "DONE", "DONE", "-"]),
        ("failed",          ["-", "-", "-", "RETRYING", "RETRYING", "-"]),
        ("failed_for_good", ["-", "-", "-", "FAILED", "FAILED", "-"]),
        ("refused",         ["-", "-", "-", "RETRYING", "-", "-"]),
        ("overtaken",       ["-", "-", "-", "RETRYING", "-", "-"]),
        ("send_failed",     ["-", "-", "RETRYING", "RETRYING", "-", "-"]),
        ("ack_timeout",     ["-", "-", "-", "RETRYING", "-", "-"]),
        ("run_timeout",     ["-", "-", "-", "-", "RETRYING", "-"]),
        ("node_lost",       ["-", "-", "RETRYING", "RETRYING", "RETRYING", "-"]),
        ("reclaimed",       ["RETRYING"; 6]),
        ("instance_lost",   ["FAILED"; 6]),
        ("deadline",        ["FAILED"; 6]),
        ("cancel",          ["CANCELLED"; 6]),
    ];
    for (column, state) in open.into_iter().enumerate() {
        let attempt = job_in(state).stage().attempt.0;
        for (row, (name, event)) in table.into_iter().zip(every_event(attempt)) {
            assert_eq!(row.0, name);
            let mut job = job_in(state);
            let before = job.clone();
            let led_to = match job.apply(event, RETRY) {
                Ok(_) => {
                    let same = before.stage() == job.stage();
                    assert!(same || may_become(before.stage(), job.stage()), "{name} in {state}");
                    job.stage().state.as_str()
                }
                Err(_) => {
                    assert_eq!(job, before, "a refused event changes nothing");
                    "-"
                }
            };
            assert_eq!(led_to, row.1[column], "{name} in {state}");
        }
    }
}

#[test]
fn an_end_is_final() {
    for state in [Done, Failed, Cancelled] {
        for (name, event) in every_event(1) {
            let mut job = job_in(state);
            assert_eq!(job.apply(event, RETRY), Err(Refusal::Ended { state }), "{name} in {state}");
            assert_eq!(job, job_in(state));
        }
    }
}

/// The slot may belong to another job by then.
#[test]
fn a_duplicate_done_releases_nothing() {
    let mut job = job_in(Acked);
    let effects = job.apply(JobEvent::Done(report(1)), RETRY).unwrap();
    let attempt = Attempt::FIRST;
    let outcome = AttemptOutcome::Succeeded;
    assert_eq!(effects, [Effect::Release { grant: grant(1, 1), attempt, outcome }]);
    let again = job.apply(JobEvent::Done(report(1)), RETRY);
    assert_eq!(again, Err(Refusal::Ended { state: Done }));
    assert_eq!(again.unwrap_err().code(), "STALE_ATTEMPT");
}

#[test]
fn a_message_about_another_attempt_changes_nothing() {
    for state in [Selecting, Reserved, Dispatched, Acked, Retrying] {
        let current = job_in(state).stage();
        for other in [current.attempt.0 - 1, current.attempt.0 + 1] {
            for (name, event) in every_event(other).into_iter().filter(|e| e.1.attempt().is_some())
            {
                let mut job = job_in(state);
                let refused = job.apply(event, RETRY);
                assert_eq!(refused, Err(Refusal::StaleAttempt { current }), "{name} in {state}");
                assert_eq!(job, job_in(state));
            }
        }
    }
}

#[test]
fn a_message_from_another_node_or_with_another_fence_changes_nothing() {
    let current = job_in(Acked).stage();
    let stranger = AttemptReport { node: NodeId::new("stranger").unwrap(), ..report(1) };
    let old_fence = AttemptReport { fence: Some(Fence(0)), ..report(1) };
    for wrong in [stranger, old_fence] {
        let mut job = job_in(Acked);
        let refused = job.apply(JobEvent::Done(wrong), RETRY);
        assert_eq!(refused, Err(Refusal::StaleAttempt { current }));
        assert_eq!(job, job_in(Acked));
    }
    let right_fence = AttemptReport { fence: Some(Fence(1)), ..report(1) };
    assert!(job_in(Acked).apply(JobEvent::Done(right_fence), RETRY).is_ok());
}

#[test]
fn a_timeout_stops_the_node_gives_the_slot_back_and_goes_elsewhere() {
    let mut job = job_in(Dispatched);
    let attempt = Attempt::FIRST;
    let effects = job.apply(JobEvent::AckTimeout(attempt), RETRY).unwrap();
    let expected = [
        Effect::CancelOnNode { grant: grant(1, 1), attempt },
        Effect::Release { grant: grant(1, 1), attempt, outcome: AttemptOutcome::Failed },
        Effect::Retry { cause: Cause::AckTimeout },
    ];
    assert_eq!(effects, expected);
    assert_eq!(job.stage(), Stage { state: Retrying, attempt: Attempt(2) });
    assert_eq!(job.tried(), [(CellId::new(0).unwrap(), Slot::new(1).unwrap())]);
}

fn fail_next(
    job: &mut JobMachine,
    slot: usize,
    event: impl Fn(Attempt, AttemptReport) -> JobEvent,
) -> Vec<Effect> {
    job.apply(JobEvent::Select, RETRY).unwrap();
    job.apply(JobEvent::Granted(grant(slot, slot as u64)), RETRY).unwrap();
    job.apply(JobEvent::Dispatch, RETRY).unwrap();
    let attempt = job.stage().attempt;
    let report = AttemptReport { attempt, node: grant(slot, 0).node, fence: None };
    job.apply(event(attempt, report), RETRY).unwrap()
}

#[test]
fn two_retries_then_it_fails_with_the_last_cause() {
    let mut job = JobMachine::new();
    for slot in 1..=2 {
        let effects = fail_next(&mut job, slot, |attempt, _| JobEvent::NodeLost(attempt));
        assert_eq!(effects.last(), Some(&Effect::Retry { cause: Cause::NodeLost }));
    }
    let effects =
        fail_next(&mut job, 3, |_, report| JobEvent::NodeFailed { report, retryable: true });
    let failure = JobFailure::RetriesExhausted { last: Cause::NodeFailed };
    assert_eq!(effects.last(), Some(&Effect::Fail(failure)));
    assert_eq!(failure.code(), "ALL_CANDIDATES_FULL_OR_FAILED");
    assert_eq!(job.stage(), Stage { state: Failed, attempt: Attempt(3) });
}

#[test]
fn refusals_are_no_failures_but_are_bounded() {
    let mut job = JobMachine::new();
    for _ in 0..REFUSALS_MAX {
        let effects = fail_next(&mut job, 1, |_, report| JobEvent::Refused(report));
        assert_eq!(effects.last(), Some(&Effect::Retry { cause: Cause::Refused }));
    }
    let effects = fail_next(&mut job, 1, |_, report| JobEvent::Refused(report));
    let failure = JobFailure::RetriesExhausted { last: Cause::Refused };
    assert_eq!(effects.last(), Some(&Effect::Fail(failure)));
}

#[test]
fn a_result_may_overtake_its_ack() {
    let mut job = job_in(Dispatched);
    assert!(job.apply(JobEvent::Done(report(1)), RETRY).is_ok());
    assert_eq!(job.apply(JobEvent::Acked(report(1)), RETRY), Err(Refusal::Ended { state: Done }));
}

/// Reaching is becoming, repeated.
#[test]
fn what_may_be_reached_is_what_steps_lead_to() {
    let attempts = 1..=4;
    let stages: Vec<Stage> = attempts
        .flat_map(|n| JobState::ALL.map(|state| Stage { state, attempt: Attempt(n) }))
        .collect();
    for &from in &stages {
        let mut reached = vec![from];
        let mut next = 0;
        while next < reached.len() {
            let at = reached[next];
            let more = stages.iter().copied().filter(|&to| may_become(at, to));
            let more: Vec<Stage> = more.filter(|to| !reached.contains(to)).collect();
            reached.extend(more);
            next += 1;
        }
        for &to in stages.iter().filter(|&&to| to != from) {
            assert_eq!(from.may_reach(to), reached.contains(&to), "{from} to {to}");
        }
        assert!(!from.may_reach(from));
    }
}

fn any_event(pick: usize, attempt: u32, fence: u64) -> JobEvent {
    let mut events = every_event(attempt);
    events[1].1 = JobEvent::Granted(grant(1, fence));
    let n = events.len();
    events.swap_remove(pick % n).1
}

proptest! {
    /// Whatever happens in whatever order: every slot taken is given back exactly once, there is
    /// one end, attempts rise by one, and every step is one that a store would allow.
    #[test]
    fn any_life_keeps_the_invariants(steps in prop::collection::vec((0usize..19, 0u32..3), 1..80)) {
        let mut job = JobMachine::new();
        let (mut held, mut ends) = (Vec::<u64>::new(), 0);
        for (i, (pick, older)) in steps.into_iter().enumerate() {
            let before = job.clone();
            let attempt = job.stage().attempt.0.saturating_sub(older.saturating_sub(1));
            let fence = i as u64 + 1;
            let Ok(effects) = job.apply(any_event(pick, attempt, fence), RETRY) else {
                prop_assert_eq!(&job, &before);
                continue;
            };
            prop_assert!(job.stage() == before.stage() || may_become(before.stage(), job.stage()));
            if job.grant().is_some() && before.grant().is_none() {
                held.push(fence);
            }
            for effect in effects {
                match effect {
                    Effect::Release { grant, .. } => {
                        let fence = Some(grant.fence.0);
                        prop_assert_eq!(held.pop(), fence, "released what it did not hold");
                    }
                    Effect::Fail(_) | Effect::ConfirmCancel => ends += 1,
                    Effect::Send
                    | Effect::Commit
                    | Effect::CancelOnNode { .. }
                    | Effect::Retry { .. } => {}
                }
            }
            prop_assert!(held.len() <= 1);
            let state = job.stage().state;
            let all_ends = ends + i32::from(state == JobState::Done);
            prop_assert_eq!(all_ends, i32::from(state.is_terminal()));
            prop_assert!(!state.is_terminal() || held.is_empty());
        }
    }
}
