//! What tenants have used.

use lingua_core::Tenant;

use crate::clock::Clock;
use crate::conformance::World;
use crate::contract::{
    DAY_MS, Incarnation, Store, USAGE_DAYS, USAGE_TENANTS_MAX, UsageBatch, UsageCounts, UsageRecord,
};
use crate::error::StoreError;

fn tenant(name: &str) -> Tenant {
    Tenant::new(name).expect("a name")
}

fn batch(incarnation: u64, sequence: u64, done: u64) -> UsageBatch {
    let counts = UsageCounts { done, chars_source: u64::from(u32::MAX), ..UsageCounts::default() };
    let incarnation = Incarnation(incarnation);
    UsageBatch { incarnation, sequence, counts: vec![(tenant("alice"), counts)] }
}

impl<S: Store> World<S> {
    async fn count(&self, batch: UsageBatch) -> bool {
        self.store.add_usage(batch).await.expect("a reply")
    }

    async fn done(&self) -> Vec<(u64, u64)> {
        let usage = self.store.usage(Some(tenant("alice"))).await.expect("a reply");
        usage.iter().map(|record| (record.day, record.counts.done)).collect()
    }
}

/// A batch whose reply was lost is sent again, and counts once; each instance has its own numbers.
pub async fn a_batch_counts_once_however_often_it_comes<S: Store>(w: World<S>) {
    let today = w.clock.now_ms() / DAY_MS;
    assert!(w.count(batch(1, 1, 5)).await && !w.count(batch(1, 1, 5)).await);
    assert!(w.count(batch(2, 1, 30)).await, "of another instance");
    assert!(w.count(batch(1, 2, 100)).await);
    assert!(!w.count(batch(1, 1, 5)).await && !w.count(batch(1, 2, 100)).await, "late repeats");
    assert_eq!(w.done().await, [(today, 135)]);
    let all = w.store.usage(None).await.expect("a reply");
    let counts =
        UsageCounts { done: 135, chars_source: 3 * u64::from(u32::MAX), ..UsageCounts::default() };
    assert_eq!(all, [UsageRecord { day: today, tenant: tenant("alice"), counts }]);
    assert!(w.store.usage(Some(tenant("bob"))).await.expect("a reply").is_empty());
    let counts =
        (0..=USAGE_TENANTS_MAX).map(|n| (tenant(&format!("t{n}")), UsageCounts::default()));
    let huge = UsageBatch { counts: counts.collect(), ..batch(1, 3, 0) };
    assert!(matches!(w.store.add_usage(huge).await, Err(StoreError::LimitReached { .. })));
}

/// Counts are added up by day, and days that are long over are not kept.
pub async fn counts_are_kept_by_day_for_a_bounded_time<S: Store>(w: World<S>) {
    let today = w.clock.now_ms() / DAY_MS;
    w.count(batch(1, 1, 1)).await;
    w.clock.advance(DAY_MS);
    w.count(batch(1, 2, 2)).await;
    assert_eq!(w.done().await, [(today, 1), (today + 1, 2)]);
    w.clock.advance((USAGE_DAYS - 1) * DAY_MS);
    assert_eq!(w.done().await, [(today + 1, 2)]);
    w.count(batch(1, 3, 4)).await;
    assert_eq!(w.done().await, [(today + 1, 2), (today + USAGE_DAYS, 4)]);
}
