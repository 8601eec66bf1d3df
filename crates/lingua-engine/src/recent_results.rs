//! Results with speech, until they were delivered.
//!
//! Start at [`RecentResults::put`]. The store keeps the texts of a result; speech, and whatever
//! else a node sent, stays in the memory of the job's owner for a client that has not got it. A
//! delivered result stays as long as there is room, in case its client asks again.
//!
//! Invariant: at most `bytes_max` bytes, of which delivered results have at most an eighth, and
//! nothing for longer than `keep_ms`. Delivered results go first, then the oldest of the tenant
//! that has most bytes here, so that no tenant pushes out the speech of another that has less.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;
use lingua_core::{JobId, Tenant};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::EngineMetrics;
use crate::request::ResultJson;

/// Delivered results get this part of the room.
const DELIVERED_PART: usize = 8;

/// How long a delivered result stays whose text is not to be kept.
const BRIEF_MS: u64 = 5_000;

/// Bytes that a result counts beside its JSON.
const ENTRY_BYTES: usize = 256;

#[derive(Debug)]
pub(crate) struct RecentResults {
    bytes_max: usize,
    keep_ms: u64,
    results: Mutex<Results>,
    held: Gauge,
    dropped: Counter,
}

#[derive(Debug, Default)]
struct Results {
    /// Where the result of a job is.
    by_job: HashMap<JobId, Position>,
    /// Delivered ones first, by age; then the others by tenant and age.
    in_order: BTreeMap<Position, RecentResult>,
    /// Delivered results whose text is not to be kept, and when they go.
    brief: VecDeque<(u64, JobId)>,
    bytes: usize,
    delivered_bytes: usize,
    /// Bytes that were not delivered, of each tenant that has any.
    undelivered_bytes: BTreeMap<Tenant, usize>,
    next: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    /// Absent once the result was delivered.
    undelivered_of: Option<Tenant>,
    number: u64,
}

#[derive(Debug)]
struct RecentResult {
    job: JobId,
    json: ResultJson,
    until_ms: u64,
    keeps_text: bool,
}

impl RecentResult {
    fn bytes(&self) -> usize {
        self.json.as_str().len() + ENTRY_BYTES
    }
}

impl Results {
    fn insert(&mut self, position: Position, result: RecentResult) {
        self.bytes += result.bytes();
        match position.undelivered_of {
            None => self.delivered_bytes += result.bytes(),
            Some(of) => *self.undelivered_bytes.entry(of).or_default() += result.bytes(),
        }
        self.by_job.insert(result.job, position);
        self.in_order.insert(position, result);
    }

    fn remove(&mut self, position: Position) -> Option<RecentResult> {
        let result = self.in_order.remove(&position)?;
        self.by_job.remove(&result.job);
        self.bytes -= result.bytes();
        let Some(of) = position.undelivered_of else {
            self.delivered_bytes -= result.bytes();
            return Some(result);
        };
        if let Some(bytes) = self.undelivered_bytes.get_mut(&of) {
            *bytes -= result.bytes();
            if *bytes == 0 {
                self.undelivered_bytes.remove(&of);
            }
        }
        Some(result)
    }

    /// The oldest result that was delivered, or the oldest of this tenant that was not.
    fn oldest(&self, undelivered_of: Option<Tenant>) -> Option<(Position, u64)> {
        let at = |number| Position { undelivered_of, number };
        let mut results = self.in_order.range(at(0)..=at(u64::MAX));
        results.next().map(|(position, result)| (*position, result.until_ms))
    }

    /// A result whose time is up, or one that has to go for want of room.
    fn next_to_drop(&self, bytes_max: usize, now_ms: u64) -> Option<Position> {
        let oldest = self.undelivered_bytes.keys().filter_map(|&of| self.oldest(Some(of)));
        let expired = oldest.min_by_key(|(_, until_ms)| *until_ms);
        if let Some((position, _)) = expired.filter(|(_, until_ms)| *until_ms <= now_ms) {
            return Some(position);
        }
        let largest = self.undelivered_bytes.iter().max_by_key(|(_, bytes)| **bytes);
        let (&of, _) = largest.filter(|_| self.bytes > bytes_max)?;
        self.oldest(Some(of)).map(|(position, _)| position)
    }
}

impl RecentResults {
    pub(crate) fn new(bytes_max: usize, keep_ms: u64, metrics: &EngineMetrics) -> Self {
        let (held, dropped) = (metrics.held_bytes.of("speech"), metrics.speech_dropped.clone());
        Self { bytes_max, keep_ms, results: Mutex::default(), held, dropped }
    }

    /// Keeps a result of a tenant for a client that has not got it; if its text is not to be kept,
    /// until shortly after it was delivered.
    pub(crate) fn put(
        &self,
        (tenant, job): (Tenant, JobId),
        json: ResultJson,
        now_ms: u64,
        keeps_text: bool,
    ) {
        let until_ms = now_ms.saturating_add(self.keep_ms);
        let result = RecentResult { job, json, until_ms, keeps_text };
        let mut results = self.results.lock();
        if let Some(&older) = results.by_job.get(&job) {
            results.remove(older);
        }
        if result.bytes() > self.bytes_max {
            self.dropped.inc();
            return;
        }
        results.next += 1;
        let position = Position { undelivered_of: Some(tenant), number: results.next };
        results.insert(position, result);
        self.shrink(&mut results, now_ms);
    }

    pub(crate) fn contains(&self, job: JobId) -> bool {
        self.results.lock().by_job.contains_key(&job)
    }

    /// The result of a job, for a client: it counts as delivered.
    pub(crate) fn deliver(&self, job: JobId, now_ms: u64) -> Option<ResultJson> {
        let mut results = self.results.lock();
        let position = results.by_job.get(&job).copied()?;
        let result = results.remove(position)?;
        let json = result.json.clone();
        if position.undelivered_of.is_some() && !result.keeps_text {
            results.brief.push_back((now_ms.saturating_add(BRIEF_MS), job));
        }
        results.insert(Position { undelivered_of: None, ..position }, result);
        self.shrink(&mut results, 0);
        Some(json)
    }

    /// Drops a result.
    pub(crate) fn forget(&self, job: JobId) {
        let mut results = self.results.lock();
        if let Some(position) = results.by_job.get(&job).copied() {
            results.remove(position);
        }
        self.held.set(results.bytes as i64);
    }

    /// Drops results whose time is up.
    pub(crate) fn expire(&self, now_ms: u64) {
        let mut results = self.results.lock();
        while let Some((_, job)) = results.brief.pop_front_if(|(until_ms, _)| *until_ms <= now_ms) {
            if let Some(position) = results.by_job.get(&job).copied() {
                results.remove(position);
            }
        }
        self.shrink(&mut results, now_ms);
    }

    fn shrink(&self, results: &mut Results, now_ms: u64) {
        while let Some((position, until_ms)) = results.oldest(None) {
            let is_full = results.delivered_bytes > self.bytes_max / DELIVERED_PART
                || results.bytes > self.bytes_max;
            if !is_full && until_ms > now_ms {
                break;
            }
            results.remove(position);
        }
        while let Some(position) = results.next_to_drop(self.bytes_max, now_ms) {
            results.remove(position);
            self.dropped.inc();
        }
        self.held.set(results.bytes as i64);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    const KEEP_MS: u64 = 1_000;

    fn results(bytes_max: usize) -> RecentResults {
        RecentResults::new(bytes_max, KEEP_MS, &EngineMetrics::new(&mut Registry::default()))
    }

    fn json(bytes: usize) -> ResultJson {
        format!("\"{}\"", "x".repeat(bytes - ENTRY_BYTES - 2)).into()
    }

    fn id(number: u128) -> JobId {
        JobId::new(number)
    }

    fn of(number: u128) -> (Tenant, JobId) {
        (Tenant::default(), id(number))
    }

    #[test]
    fn the_oldest_undelivered_result_goes_when_there_is_no_room() {
        let results = results(3_000);
        (1..=4).for_each(|n| results.put(of(n), json(1_000), n as u64, true));
        assert_eq!([1, 2, 3, 4].map(|n| results.contains(id(n))), [false, true, true, true]);
        assert_eq!((results.held.get(), results.dropped.get()), (3_000, 1));
    }

    #[test]
    fn a_tenant_with_much_speech_does_not_push_out_that_of_others() {
        let results = results(10_000);
        let loud = Tenant::new("loud").expect("a name");
        results.put(of(1), json(1_000), 0, true);
        (2..=30).for_each(|n| results.put((loud, id(n)), json(1_000), 0, true));
        assert!(results.contains(id(1)) && !results.contains(id(21)) && results.contains(id(22)));
        assert_eq!((results.held.get(), results.dropped.get()), (10_000, 20));
        results.expire(KEEP_MS);
        assert_eq!(results.held.get(), 0);
    }

    #[test]
    fn a_delivered_result_stays_while_there_is_room_and_goes_first() {
        let results = results(8_000);
        (1..=3).for_each(|n| results.put(of(n), json(1_000), 0, true));
        assert!(results.deliver(id(2), 0).is_some() && results.deliver(id(2), 0).is_some());
        assert!(results.deliver(id(3), 0).is_some());
        assert!(results.contains(id(3)), "an eighth is for delivered ones");
        assert!(!results.contains(id(2)) && results.contains(id(1)), "the older one goes");
        assert_eq!(results.dropped.get(), 0, "it was delivered");
    }

    #[test]
    fn a_result_whose_text_is_not_kept_goes_soon_after_its_delivery() {
        let results = RecentResults { keep_ms: 100 * BRIEF_MS, ..results(1 << 20) };
        results.put(of(1), json(1_000), 0, false);
        results.put(of(2), json(1_000), 0, true);
        assert!(results.deliver(id(1), 10).is_some() && results.deliver(id(2), 10).is_some());
        assert!(results.deliver(id(1), 20).is_some(), "its client may ask again at once");
        results.expire(BRIEF_MS + 9);
        assert!(results.contains(id(1)));
        results.expire(BRIEF_MS + 10);
        assert!(!results.contains(id(1)) && results.contains(id(2)));
        results.forget(id(2));
        assert_eq!((results.contains(id(2)), results.held.get()), (false, 0));
    }

    #[test]
    fn nothing_is_kept_for_longer_than_the_time() {
        let results = results(100_000);
        results.put(of(1), json(1_000), 0, true);
        results.put(of(2), json(1_000), 500, true);
        results.deliver(id(2), 0);
        results.expire(KEEP_MS);
        assert!(!results.contains(id(1)) && results.contains(id(2)));
        results.expire(KEEP_MS + 500);
        assert_eq!((results.held.get(), results.dropped.get()), (0, 1));
    }

    #[test]
    fn a_result_that_is_too_large_displaces_no_others() {
        let results = results(3_000);
        results.put(of(1), json(1_000), 0, true);
        results.put(of(2), json(3_001), 0, true);
        assert!(results.contains(id(1)) && !results.contains(id(2)));
    }
}
