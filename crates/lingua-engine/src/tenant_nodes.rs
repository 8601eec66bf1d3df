//! Counts the node ids that each tenant registered through this instance.
//!
//! Start at `Engine::claim_node`. Only tenants with a limit are counted. An id counts from its
//! registration until its record is removed; ids whose records are gone are found when the tenant
//! reaches its limit.
//!
//! Invariant: a tenant at its limit registers no other id, and makes this instance read the fleet
//! once in a second at most.

use std::collections::HashMap;
use std::sync::Arc;

use lingua_core::{InstanceId, NodeId, Tenant, TokenName};
use lingua_store::Store;
use lingua_store::contract::NodeRecord;
use parking_lot::Mutex;

use crate::handle::NodeRegistration;
use crate::{Engine, NodeError, Timer};

/// A registration may take so long from its claim to its record.
const CLAIM_MS: u64 = 5_000;

/// How long a count of all nodes is used.
const COUNTS_MS: u64 = 1_000;

/// The ids of a tenant, with the times of their claims.
type Claims = HashMap<NodeId, u64>;

/// How many node ids belong to tokens and tenants.
#[derive(Debug, Clone, Default)]
pub struct NodeCounts {
    by_token: HashMap<TokenName, usize>,
    /// Those that registered through this instance.
    by_tenant: HashMap<Tenant, usize>,
}

impl NodeCounts {
    fn of(nodes: &[NodeRecord], instance: &InstanceId) -> Self {
        let mut counts = Self::default();
        for node in nodes {
            if let Some(token) = node.profile.token() {
                *counts.by_token.entry(token.clone()).or_default() += 1;
            }
            if node.via == *instance {
                *counts.by_tenant.entry(node.profile.tenant()).or_default() += 1;
            }
        }
        counts
    }

    /// Node ids that belong to a token.
    pub fn of_token(&self, token: &TokenName) -> usize {
        self.by_token.get(token).copied().unwrap_or(0)
    }

    /// Node ids of a tenant that were registered through this instance.
    pub fn of_tenant(&self, tenant: Tenant) -> usize {
        self.by_tenant.get(&tenant).copied().unwrap_or(0)
    }
}

/// The node ids of the tenants that have a limit.
#[derive(Debug, Default)]
pub(crate) struct TenantNodes {
    claims: Mutex<HashMap<Tenant, Claims>>,
    /// The last count of all nodes, and its time.
    counts: Mutex<Option<(u64, Arc<NodeCounts>)>>,
}

impl TenantNodes {
    fn is_counted(&self, tenant: Tenant) -> bool {
        self.claims.lock().contains_key(&tenant)
    }

    /// Counts an id, if it is not one too many. Says whether it was not counted before.
    fn claim(&self, tenant: Tenant, node: &NodeId, limit: usize, now_ms: u64) -> Option<bool> {
        let mut claims = self.claims.lock();
        let claims = claims.entry(tenant).or_default();
        if claims.contains_key(node) {
            return Some(false);
        }
        if claims.len() >= limit {
            return None;
        }
        claims.insert(node.clone(), now_ms);
        Some(true)
    }

    /// A claimed id was not registered.
    pub(crate) fn give_back(&self, tenant: Tenant, node: &NodeId) {
        if let Some(claims) = self.claims.lock().get_mut(&tenant) {
            claims.remove(node);
        }
    }

    /// Counts again what the store knows, and what was claimed a moment ago.
    pub(crate) fn recount(&self, nodes: &[NodeRecord], instance: &InstanceId, now_ms: u64) {
        let mut claims = self.claims.lock();
        for claims in claims.values_mut() {
            claims.retain(|_, claimed_ms| now_ms.saturating_sub(*claimed_ms) < CLAIM_MS);
        }
        for node in nodes.iter().filter(|node| node.via == *instance) {
            if let Some(claims) = claims.get_mut(&node.profile.tenant()) {
                claims.entry(node.node.clone()).or_insert(0);
            }
        }
    }

    fn start_counting(&self, tenant: Tenant) {
        self.claims.lock().entry(tenant).or_default();
    }
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// Counts the id of a node that registers, if its tenant has a limit. Says whether it was not
    /// counted before.
    pub(crate) async fn claim_node(&self, r: &NodeRegistration) -> Result<bool, NodeError> {
        let (tenant, Some(limit)) = (r.profile.tenant(), r.tenant_max) else { return Ok(false) };
        let claim = || self.tenant_nodes.claim(tenant, &r.node, limit, self.now_ms());
        if !self.tenant_nodes.is_counted(tenant) {
            // Once for each tenant: what it registered before it had a limit.
            let seen = self.read_nodes().await?;
            self.tenant_nodes.start_counting(tenant);
            self.tenant_nodes.recount(&seen.nodes, &self.options.instance, self.now_ms());
        }
        if let Some(is_new) = claim() {
            return Ok(is_new);
        }
        self.make_room(Room::Tenant(tenant)).await?;
        claim().ok_or_else(|| {
            self.metrics.node_rejected.count("too_many");
            NodeError::TooManyOfTenant { tenant, limit }
        })
    }

    /// How many node ids belong to tokens and tenants; at most a second old, because it reads the
    /// whole fleet.
    pub async fn node_counts(&self) -> Result<Arc<NodeCounts>, NodeError> {
        let now_ms = self.now_ms();
        if let Some((at_ms, counts)) = &*self.tenant_nodes.counts.lock()
            && now_ms.saturating_sub(*at_ms) < COUNTS_MS
        {
            return Ok(Arc::clone(counts));
        }
        let seen = self.read_nodes().await?;
        let counts = Arc::new(NodeCounts::of(&seen.nodes, &self.options.instance));
        *self.tenant_nodes.counts.lock() = Some((now_ms, Arc::clone(&counts)));
        Ok(counts)
    }
}

/// Whose nodes that are gone give up their places.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Room<'a> {
    /// Anybody's.
    All,
    /// Those of this token.
    Token(&'a TokenName),
    /// Those of this tenant that registered through this instance.
    Tenant(Tenant),
}

impl Room<'_> {
    pub(crate) fn has(self, node: &NodeRecord, instance: &InstanceId) -> bool {
        match self {
            Self::All => true,
            Self::Token(token) => node.profile.token() == Some(token),
            Self::Tenant(tenant) => node.profile.tenant() == tenant && node.via == *instance,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(n: usize) -> NodeId {
        NodeId::new(&format!("n{n}")).unwrap()
    }

    #[test]
    fn a_tenant_counts_each_id_once_and_not_more_than_its_limit() {
        let (nodes, tenant) = (TenantNodes::default(), Tenant::default());
        assert!(!nodes.is_counted(tenant));
        let claim = |n| nodes.claim(tenant, &node(n), 2, 1_000);
        assert_eq!(
            [claim(1), claim(1), claim(2), claim(3)],
            [Some(true), Some(false), Some(true), None]
        );
        nodes.give_back(tenant, &node(2));
        assert_eq!(claim(3), Some(true));
        assert_eq!(nodes.claim(Tenant::new("b").unwrap(), &node(9), 1, 0), Some(true));
        // What is neither registered nor on its way is not counted any longer.
        let instance = InstanceId::new("i").unwrap();
        nodes.recount(&[], &instance, 1_000 + CLAIM_MS - 1);
        assert_eq!(claim(4), None);
        nodes.recount(&[], &instance, 1_000 + CLAIM_MS);
        assert_eq!(claim(4), Some(true));
    }
}
