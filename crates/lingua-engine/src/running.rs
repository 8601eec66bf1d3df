//! The attempts that a node has, as far as the instance that it is connected to knows.
//!
//! Start at [`Running::sent`]. The instance sees every assignment to the node, and most of its
//! reports. So it can renew the leases of a node that does not list what it runs.
//!
//! Invariant: an attempt leaves when the node has reported its end or was told to stop it, when a
//! list of the node lacks it, or when the store has no lease for it.

use std::collections::BTreeMap;

use lingua_core::node::SLOTS_MAX;
use lingua_store::contract::LeaseKey;
use parking_lot::Mutex;

/// Most attempts that are known of one node: twice its slots.
const RUNNING_MAX: usize = 2 * SLOTS_MAX as usize;

#[derive(Debug, Default)]
pub(crate) struct Running(Mutex<BTreeMap<LeaseKey, Sent>>);

#[derive(Debug, Clone, Copy)]
struct Sent {
    at_ms: u64,
    is_acked: bool,
}

impl Running {
    /// An attempt goes to the node.
    pub(crate) fn sent(&self, key: LeaseKey, now_ms: u64) {
        self.insert(key, Sent { at_ms: now_ms, is_acked: false });
    }

    fn insert(&self, key: LeaseKey, sent: Sent) {
        let mut attempts = self.0.lock();
        if attempts.len() >= RUNNING_MAX
            && let Some(oldest) = attempts.iter().min_by_key(|(_, sent)| sent.at_ms)
        {
            let oldest = *oldest.0;
            attempts.remove(&oldest);
        }
        attempts.insert(key, sent);
    }

    /// The node has confirmed an attempt.
    pub(crate) fn acked(&self, key: LeaseKey) {
        if let Some(sent) = self.0.lock().get_mut(&key) {
            sent.is_acked = true;
        }
    }

    /// The node no longer has an attempt.
    pub(crate) fn over(&self, key: LeaseKey) {
        self.0.lock().remove(&key);
    }

    /// The node lists what it runs. What the list lacks is gone, unless it was sent so recently
    /// that the node may not have seen it when it wrote the list.
    pub(crate) fn keep_listed(&self, listed: &[LeaseKey], now_ms: u64, ack_ms: u64) {
        self.0.lock().retain(|key, sent| {
            let is_new = !sent.is_acked && now_ms.saturating_sub(sent.at_ms) < ack_ms;
            is_new || listed.contains(key)
        });
    }

    /// The node runs these, and they have leases.
    pub(crate) fn confirmed(&self, keys: impl IntoIterator<Item = LeaseKey>, now_ms: u64) {
        for key in keys {
            let is_known = self.0.lock().contains_key(&key);
            match is_known {
                true => self.acked(key),
                false => self.insert(key, Sent { at_ms: now_ms, is_acked: true }),
            }
        }
    }

    pub(crate) fn has(&self, key: LeaseKey) -> bool {
        self.0.lock().contains_key(&key)
    }

    /// The attempts, in order.
    pub(crate) fn keys(&self) -> Vec<LeaseKey> {
        self.0.lock().keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use lingua_core::{Attempt, JobId};

    use super::*;

    fn key(n: u128) -> LeaseKey {
        LeaseKey { job: JobId::new(n), attempt: Attempt(1) }
    }

    #[test]
    fn a_list_ends_what_it_lacks_but_not_what_was_sent_just_now() {
        let running = Running::default();
        for n in 1..=4 {
            running.sent(key(n), 1_000);
        }
        running.acked(key(1));
        running.acked(key(2));
        running.sent(key(5), 4_000);
        running.keep_listed(&[key(2), key(4)], 6_500, 5_000);
        assert_eq!(running.keys(), [key(2), key(4), key(5)]);
        running.over(key(4));
        running.confirmed([key(2), key(7)], 7_000);
        assert_eq!(running.keys(), [key(2), key(5), key(7)]);
    }

    #[test]
    fn the_oldest_attempts_leave_when_there_are_too_many() {
        let running = Running::default();
        for n in 0..RUNNING_MAX + 2 {
            running.sent(key(n as u128), n as u64);
        }
        assert_eq!(running.keys().len(), RUNNING_MAX);
        assert_eq!(running.keys().first(), Some(&key(2)));
    }
}
