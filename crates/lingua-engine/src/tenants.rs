//! The rules of all tenants, which may change while the program runs.
//!
//! Start at [`TenantTable::rules`].

use std::collections::HashMap;
use std::sync::Arc;

use lingua_core::{Tenant, TenantRules};
use parking_lot::RwLock;

/// The rules of all tenants. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct TenantTable(Arc<RwLock<HashMap<Tenant, TenantRules>>>);

impl TenantTable {
    /// A table with these rules, of every tenant that the configuration names; the defaults hold
    /// for every other one.
    pub fn new(rules: impl IntoIterator<Item = (Tenant, TenantRules)>) -> Self {
        Self(Arc::new(RwLock::new(rules.into_iter().collect())))
    }

    /// The rules of a tenant.
    pub fn rules(&self, tenant: Tenant) -> TenantRules {
        self.0.read().get(&tenant).copied().unwrap_or_default()
    }

    /// Whether the tenant is in the configuration.
    pub fn knows(&self, tenant: Tenant) -> bool {
        self.0.read().contains_key(&tenant)
    }

    /// Whether the configuration names more than one tenant.
    pub fn has_several(&self) -> bool {
        self.0.read().len() > 1
    }

    /// The tenant's part of what all tenants share, and the number of parts, both by weight: all of
    /// it if there is only one.
    pub fn share_of(&self, tenant: Tenant) -> (u32, u32) {
        let table = self.0.read();
        let weight = |rules: &TenantRules| rules.weight.max(1);
        if table.len() <= 1 {
            return (1, 1);
        }
        let known = table.get(&tenant).map(weight);
        let all = table.values().map(weight).fold(0, u32::saturating_add);
        let part = known.unwrap_or(1);
        (part, if known.is_some() { all } else { all.saturating_add(part) })
    }

    /// Replaces all rules.
    pub fn replace(&self, rules: impl IntoIterator<Item = (Tenant, TenantRules)>) {
        *self.0.write() = rules.into_iter().collect();
    }
}
