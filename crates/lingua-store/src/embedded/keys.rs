//! Idempotency keys in memory.
//!
//! Start at [`KeyTable::claim`]. A key is dropped when it is as old as an ended job may become, or
//! earlier, oldest first, when there are too many.
//!
//! Invariant: at most `keys_max` keys, and not many more entries in the order of their claims.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::StoreLimits;
use super::journal::ChangeLog;
use super::journal::record::DurableChange;
use crate::contract::{ClaimKeyReply, ClaimKeyRequest, Digest, KeyRecord};

/// A key and when it was claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredKey {
    pub(super) key: Digest,
    pub(super) record: KeyRecord,
    pub(super) claimed_ms: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct KeyTable {
    limits: StoreLimits,
    known: HashMap<Digest, StoredKey>,
    /// Oldest claim first. A key that was claimed again has an older entry that is void.
    claims: VecDeque<(u64, Digest)>,
    changes: ChangeLog,
}

impl AsMut<ChangeLog> for KeyTable {
    fn as_mut(&mut self) -> &mut ChangeLog {
        &mut self.changes
    }
}

impl KeyTable {
    pub(super) fn new(limits: StoreLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Starts with the keys that were on disk, and logs changes from now on.
    pub(super) fn restore(limits: StoreLimits, mut keys: Vec<StoredKey>) -> Self {
        keys.sort_unstable_by_key(|stored| (stored.claimed_ms, stored.key));
        let mut restored = Self::new(limits);
        for stored in keys {
            restored.claims.push_back((stored.claimed_ms, stored.key));
            restored.known.insert(stored.key, stored);
        }
        restored.changes.enable();
        restored
    }

    pub(super) fn claim(&mut self, request: &ClaimKeyRequest, now_ms: u64) -> ClaimKeyReply {
        let &ClaimKeyRequest { key, body, job, replaces } = request;
        self.drop_old(now_ms);
        match self.known.get(&key).map(|known| known.record) {
            Some(known) if known.job == job => return ClaimKeyReply::Claimed,
            Some(known) if Some(known.job) != replaces => return ClaimKeyReply::Taken(known),
            _ => {}
        }
        let stored = StoredKey { key, record: KeyRecord { job, body }, claimed_ms: now_ms };
        self.known.insert(key, stored);
        self.claims.push_back((now_ms, key));
        self.changes.push(|| DurableChange::KeyClaimed(stored));
        self.drop_old(now_ms);
        ClaimKeyReply::Claimed
    }

    fn drop_old(&mut self, now_ms: u64) {
        while let Some(&(claimed_ms, key)) = self.claims.front() {
            let is_old = claimed_ms.saturating_add(self.limits.job_record_ms) < now_ms;
            if !is_old && self.claims.len() <= self.limits.keys_max {
                break;
            }
            self.claims.pop_front();
            if self.known.get(&key).is_some_and(|known| known.claimed_ms == claimed_ms) {
                self.known.remove(&key);
                self.changes.push(|| DurableChange::KeyDropped(key));
            }
        }
    }
}
