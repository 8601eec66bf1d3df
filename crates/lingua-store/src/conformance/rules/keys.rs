//! Idempotency keys.

use lingua_core::JobId;

use crate::conformance::World;
use crate::contract::{ClaimKeyReply, ClaimKeyRequest, KeyRecord, Store};

const JOB: JobId = JobId::new(7);
const OTHER: JobId = JobId::new(8);

fn claim(job: JobId) -> ClaimKeyRequest {
    ClaimKeyRequest { key: [1; 32], body: [2; 32], job, replaces: None }
}

fn taken_by(job: JobId) -> ClaimKeyReply {
    ClaimKeyReply::Taken(KeyRecord { job, body: [2; 32] })
}

impl<S: Store> World<S> {
    async fn claim(&self, request: ClaimKeyRequest) -> ClaimKeyReply {
        self.store.claim_key(request).await.expect("a reply")
    }
}

/// A key stands for the job that claimed it first, and the claim may be repeated.
pub async fn a_key_stands_for_one_job<S: Store>(w: World<S>) {
    assert_eq!(w.claim(claim(JOB)).await, ClaimKeyReply::Claimed);
    assert_eq!(w.claim(claim(JOB)).await, ClaimKeyReply::Claimed, "its reply may be lost");
    let rival = ClaimKeyRequest { body: [3; 32], ..claim(OTHER) };
    assert_eq!(w.claim(rival).await, taken_by(JOB), "with what was asked for at first");
    let other_key = ClaimKeyRequest { key: [9; 32], ..claim(OTHER) };
    assert_eq!(w.claim(other_key).await, ClaimKeyReply::Claimed);
}

/// A key is taken from the job that the caller names, and from no other.
pub async fn a_key_is_taken_only_from_the_named_job<S: Store>(w: World<S>) {
    w.claim(claim(JOB)).await;
    let from_another = ClaimKeyRequest { replaces: Some(JobId::new(9)), ..claim(OTHER) };
    assert_eq!(w.claim(from_another).await, taken_by(JOB));
    let taken = ClaimKeyRequest { replaces: Some(JOB), ..claim(OTHER) };
    assert_eq!(w.claim(taken.clone()).await, ClaimKeyReply::Claimed);
    assert_eq!(w.claim(taken).await, ClaimKeyReply::Claimed, "its reply may be lost");
    let late = ClaimKeyRequest { replaces: Some(JOB), ..claim(JobId::new(9)) };
    assert_eq!(w.claim(late).await, taken_by(OTHER), "one of two takes it");
}

/// A key is kept for an hour from its claim on.
pub async fn a_key_is_kept_for_an_hour<S: Store>(w: World<S>) {
    w.claim(claim(JOB)).await;
    w.clock.advance(3_600_000);
    assert_eq!(w.claim(claim(OTHER)).await, taken_by(JOB));
    w.clock.advance(1);
    assert_eq!(w.claim(claim(OTHER)).await, ClaimKeyReply::Claimed);
}
