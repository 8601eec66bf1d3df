//! Bindings of keys to nodes, in memory.
//!
//! Invariant: at most `bindings_max` bindings. Expired ones are dropped first, then those that were
//! written first.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use lingua_core::Tenant;

use super::StoreLimits;
use super::journal::ChangeLog;
use super::journal::record::DurableChange;
use crate::contract::{BindReply, BindRequest, BindingRecord};
use crate::error::Result;

/// A key and its owner.
pub(super) type OwnedKey = (Tenant, Arc<str>);

/// Where the jobs of a key go, and until when that is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeptBinding {
    pub(super) binding: BindingRecord,
    pub(super) until_ms: u64,
}

#[derive(Debug, Clone)]
pub(super) struct BindingTable {
    limits: StoreLimits,
    known: HashMap<OwnedKey, KeptBinding>,
    /// The order in which they were written; an entry with another time is out of date.
    order: VecDeque<(u64, OwnedKey)>,
    changes: ChangeLog,
}

impl AsMut<ChangeLog> for BindingTable {
    fn as_mut(&mut self) -> &mut ChangeLog {
        &mut self.changes
    }
}

impl BindingTable {
    pub(super) fn new(limits: StoreLimits) -> Self {
        let (known, order) = (HashMap::new(), VecDeque::new());
        Self { limits, known, order, changes: ChangeLog::default() }
    }

    /// Continues with these bindings.
    pub(super) fn restore(limits: StoreLimits, kept: Vec<(OwnedKey, KeptBinding)>) -> Self {
        let mut table = Self::new(limits);
        table.known = kept.into_iter().collect();
        table.sort();
        table.changes.enable();
        table
    }

    pub(super) fn get(&self, tenant: Tenant, key: &str, now_ms: u64) -> Option<BindingRecord> {
        let kept = self.known.get(&(tenant, Arc::from(key)))?;
        (kept.until_ms >= now_ms).then(|| kept.binding.clone())
    }

    pub(super) fn bind(&mut self, request: BindRequest, now_ms: u64) -> Result<BindReply> {
        request.check()?;
        let owned = (request.tenant, Arc::clone(&request.key));
        let present = self.known.get(&owned).filter(|kept| kept.until_ms >= now_ms);
        let node = present.map(|kept| &kept.binding.node);
        if node != request.replaces.as_ref() && node != Some(&request.to.node) {
            return Ok(BindReply::Conflict(present.map(|kept| kept.binding.clone())));
        }
        let stays = present.is_some_and(|kept| {
            kept.binding == request.to && request.is_fresh(kept.until_ms, now_ms)
        });
        if stays {
            return Ok(BindReply::Bound);
        }
        let until_ms = now_ms.saturating_add(request.keep_ms);
        let kept = KeptBinding { binding: request.to, until_ms };
        self.changes.push(|| DurableChange::Bound(owned.clone(), kept.clone()));
        self.known.insert(owned.clone(), kept);
        self.order.push_back((until_ms, owned));
        self.drop_old(now_ms);
        Ok(BindReply::Bound)
    }

    fn drop_old(&mut self, now_ms: u64) {
        while let Some((until_ms, owned)) = self.order.front() {
            let is_current = self.known.get(owned).is_some_and(|kept| kept.until_ms == *until_ms);
            if is_current {
                if *until_ms >= now_ms && self.known.len() <= self.limits.bindings_max {
                    break;
                }
                self.known.remove(owned);
                self.changes.push(|| DurableChange::Unbound(owned.clone()));
            }
            self.order.pop_front();
        }
        if self.order.len() > 2 * self.limits.bindings_max {
            self.sort();
        }
    }

    /// Makes the order anew, without what is out of date.
    fn sort(&mut self) {
        let order = self.known.iter().map(|(owned, kept)| (kept.until_ms, owned.clone()));
        let mut order: Vec<_> = order.collect();
        order.sort_unstable();
        self.order = order.into();
    }
}

#[cfg(test)]
mod tests {
    use lingua_core::{CellId, Epoch, NodeId, Slot};

    use super::*;
    use crate::contract::Place;

    #[test]
    fn the_oldest_bindings_are_dropped_first_and_the_order_stays_bounded() {
        let limits = StoreLimits { bindings_max: 3, ..StoreLimits::default() };
        let mut table = BindingTable::new(limits);
        let place =
            Place { cell: CellId::new(0).unwrap(), slot: Slot::new(0).unwrap(), epoch: Epoch(1) };
        let bind = |table: &mut BindingTable, key: &str, node: &str, now_ms| {
            let tenant = Tenant::default();
            let replaces = table.get(tenant, key, now_ms).map(|bound| bound.node);
            let to = BindingRecord { node: NodeId::new(node).unwrap(), place };
            let request = BindRequest { tenant, key: key.into(), replaces, to, keep_ms: 1000 };
            assert_eq!(table.bind(request, now_ms), Ok(BindReply::Bound));
            assert!(table.known.len() <= 3 && table.order.len() <= 6, "{table:?}");
        };
        for (now_ms, key) in (0..).zip(["a", "b", "c", "d"]) {
            bind(&mut table, key, "n", now_ms);
        }
        assert_eq!(table.get(Tenant::default(), "a", 4), None);
        assert!(table.get(Tenant::default(), "b", 4).is_some());
        for now_ms in 4..100 {
            bind(&mut table, "d", if now_ms % 2 == 0 { "m" } else { "n" }, now_ms);
        }
        assert!(table.get(Tenant::default(), "b", 100).is_some(), "others are not pushed out");
    }
}
