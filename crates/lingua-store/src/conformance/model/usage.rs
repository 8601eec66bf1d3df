//! What tenants have used, as the contract has it.

use lingua_core::Tenant;

use super::Model;
use crate::contract::{DAY_MS, USAGE_DAYS, UsageBatch, UsageRecord};

impl Model {
    /// What adding a batch must answer.
    pub fn expect_add_usage(&mut self, batch: &UsageBatch) -> bool {
        let writer = (batch.incarnation, batch.sequence);
        let was_added = |(who, number): &(_, u64)| *who == writer.0 && *number >= writer.1;
        if self.batches.iter().any(was_added) {
            return false;
        }
        self.batches.push(writer);
        let day = self.now_ms / DAY_MS;
        for &(tenant, counts) in &batch.counts {
            match self.usage.iter_mut().find(|known| (known.day, known.tenant) == (day, tenant)) {
                Some(known) => known.counts.add(counts),
                None => self.usage.push(UsageRecord { day, tenant, counts }),
            }
        }
        true
    }

    /// What was counted, by day, then by tenant.
    pub fn expect_usage(&mut self, tenant: Option<Tenant>) -> Vec<UsageRecord> {
        let today = self.now_ms / DAY_MS;
        self.usage.retain(|known| known.day + USAGE_DAYS > today);
        self.usage.sort_by_key(|known| (known.day, known.tenant));
        let of = |known: &&UsageRecord| tenant.is_none_or(|tenant| tenant == known.tenant);
        self.usage.iter().filter(of).copied().collect()
    }
}
