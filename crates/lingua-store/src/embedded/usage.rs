//! What tenants have used, in memory.
//!
//! Start at [`UsageTable::add`]. Invariant: a batch counts once, however often it comes, and no day
//! is kept for longer than [`USAGE_DAYS`].

use std::collections::BTreeMap;

use hashbrown::HashMap;
use lingua_core::Tenant;

use super::journal::ChangeLog;
use super::journal::record::DurableChange;
use crate::contract::{DAY_MS, USAGE_DAYS, UsageBatch, UsageCounts, UsageRecord};

/// Instances whose last batch is remembered. This store has one process, and so one instance at a
/// time; tests have more.
const WRITERS_MAX: usize = 1000;

#[derive(Debug, Clone, Default)]
pub(super) struct UsageTable {
    days: BTreeMap<(u64, Tenant), UsageCounts>,
    /// The number of the last batch of each incarnation. Not on disk: an instance that is started
    /// again is another incarnation.
    last: HashMap<u64, u64>,
    changes: ChangeLog,
}

impl AsMut<ChangeLog> for UsageTable {
    fn as_mut(&mut self) -> &mut ChangeLog {
        &mut self.changes
    }
}

impl UsageTable {
    /// Starts with what was on disk, and logs changes from now on.
    pub(super) fn restore(usage: Vec<UsageRecord>) -> Self {
        let mut restored = Self::default();
        restored.days.extend(usage.into_iter().map(|r| ((r.day, r.tenant), r.counts)));
        restored.changes.enable();
        restored
    }

    pub(super) fn add(&mut self, batch: &UsageBatch, now_ms: u64) -> bool {
        let day = now_ms / DAY_MS;
        let last = self.last.get(&batch.incarnation.0).copied().unwrap_or(0);
        if batch.sequence <= last {
            return false;
        }
        if self.last.len() >= WRITERS_MAX {
            self.last.clear();
        }
        self.last.insert(batch.incarnation.0, batch.sequence);
        for &(tenant, counts) in &batch.counts {
            let total = self.days.entry((day, tenant)).or_default();
            total.add(counts);
            let counts = *total;
            self.changes.push(|| DurableChange::Used(UsageRecord { day, tenant, counts }));
        }
        while let Some(&(old, _)) = self.days.keys().next().filter(|(old, _)| is_over(*old, day)) {
            self.days.retain(|(known, _), _| *known != old);
            self.changes.push(|| DurableChange::DayDropped(old));
        }
        true
    }

    pub(super) fn list(&self, tenant: Option<Tenant>, now_ms: u64) -> Vec<UsageRecord> {
        let is_wanted = |day: u64, of: Tenant| {
            !is_over(day, now_ms / DAY_MS) && tenant.is_none_or(|tenant| tenant == of)
        };
        let days = self.days.iter().filter(|((day, of), _)| is_wanted(*day, *of));
        days.map(|(&(day, tenant), &counts)| UsageRecord { day, tenant, counts }).collect()
    }
}

fn is_over(day: u64, today: u64) -> bool {
    day + USAGE_DAYS <= today
}
