//! Idempotency keys, as the contract has them.

use super::Model;
use super::jobs::JOB_RECORD_MS;
use crate::contract::{ClaimKeyReply, ClaimKeyRequest, KeyRecord};

impl Model {
    /// What claiming a key must answer.
    pub fn expect_claim_key(&mut self, request: &ClaimKeyRequest) -> ClaimKeyReply {
        let now_ms = self.now_ms;
        self.keys.retain(|(_, _, claimed_ms)| claimed_ms + JOB_RECORD_MS >= now_ms);
        let known = self.keys.iter().find(|(key, _, _)| *key == request.key);
        match known.map(|(_, record, _)| *record) {
            Some(known) if known.job == request.job => return ClaimKeyReply::Claimed,
            Some(known) if Some(known.job) != request.replaces => {
                return ClaimKeyReply::Taken(known);
            }
            _ => {}
        }
        self.keys.retain(|(key, _, _)| *key != request.key);
        let record = KeyRecord { job: request.job, body: request.body };
        self.keys.push((request.key, record, now_ms));
        ClaimKeyReply::Claimed
    }
}
