//! The table of error codes.

use std::collections::BTreeSet;

use lingua_core::capability::CapabilityError;
use lingua_core::job::{Cause, JobFailure, JobState, Refusal, Stage};
use lingua_core::{Attempt, LangError, Service};
use lingua_wire::ErrorCode;

/// As published.
const TABLE: &[(&str, u16)] = &[
    ("NO_CAPABLE_NODE", 503),
    ("ALL_CANDIDATES_FULL_OR_FAILED", 503),
    ("PREFERRED_NODE_NOT_CAPABLE", 422),
    ("SCHEDULER_DEPENDENCY_DOWN", 503),
    ("NODE_NOT_REGISTERED", 404),
    ("STALE_EPOCH", 409),
    ("STALE_ATTEMPT", 409),
    ("JOB_NOT_FOUND", 404),
    ("NODE_NOT_FOUND", 404),
    ("POOL_NOT_FOUND", 404),
    ("ASR_LANGUAGES_REQUIRED", 422),
    ("SEMANTIC_LANGUAGES_REQUIRED", 422),
    ("TTS_LANGUAGES_REQUIRED", 422),
    ("INVALID_LANGUAGE", 422),
    ("INVALID_REQUEST", 400),
    ("PAYLOAD_TOO_LARGE", 413),
    ("RATE_LIMITED", 429),
    ("UNAUTHORIZED", 401),
    ("FORBIDDEN", 403),
    ("DEADLINE_EXCEEDED", 504),
    ("INSTANCE_LOST", 503),
    ("NODE_FAILED", 502),
    ("SESSION_NOT_FOUND", 404),
    ("SESSION_IDLE", 408),
    ("FLEET_FULL", 503),
    ("NODE_ID_TAKEN", 403),
    ("IDEMPOTENCY_KEY_REUSED", 422),
    ("INTERNAL", 500),
];

#[test]
fn every_code_has_its_published_status() {
    let ours: BTreeSet<_> =
        ErrorCode::ALL.iter().map(|code| (code.as_str(), code.status())).collect();
    assert_eq!(ours, TABLE.iter().copied().collect());
}

#[test]
fn every_code_of_the_core_is_known() {
    let stage = Stage { state: JobState::Acked, attempt: Attempt(1) };
    let codes = [
        JobFailure::NoCapableNode.code(),
        JobFailure::NoSlot.code(),
        JobFailure::PreferredNotCapable.code(),
        JobFailure::StoreDown.code(),
        JobFailure::RetriesExhausted { last: Cause::AckTimeout }.code(),
        JobFailure::NotRetryable.code(),
        JobFailure::Deadline.code(),
        JobFailure::InstanceLost.code(),
        JobFailure::Internal.code(),
        Refusal::StaleAttempt { current: stage }.code(),
        Refusal::Ended { state: JobState::Done }.code(),
        Refusal::OutOfPlace { state: JobState::New }.code(),
        LangError::Empty.code(),
        CapabilityError::Required(Service::Asr).code(),
        CapabilityError::Required(Service::Semantic).code(),
        CapabilityError::Required(Service::Tts).code(),
        CapabilityError::TooMany { list: Service::Nmt, count: 1, max: 0 }.code(),
    ];
    for code in codes {
        assert!(ErrorCode::from_name(code).is_some(), "{code}");
    }
}

/// The documentation has a page for each code, and a table of all of them.
#[test]
fn every_code_has_a_page_and_a_line_in_the_table() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors");
    let read = |file: &str| std::fs::read_to_string(format!("{folder}/{file}")).unwrap_or_default();
    let table = read("README.md");
    for code in ErrorCode::ALL {
        let (name, status) = (code.as_str(), code.status());
        let page = read(&format!("{name}.md"));
        for part in [
            &format!("# {name}\n"),
            &format!("Status: {status}"),
            "**What is wrong.**",
            "**Why it happens.**",
            "**What to do.**",
        ] {
            assert!(page.contains(part), "docs/errors/{name}.md has no {part:?}");
        }
        let line = format!("| [{name}]({name}.md) | {status} |");
        assert!(table.contains(&line), "docs/errors/README.md has no {line:?}");
    }
}
