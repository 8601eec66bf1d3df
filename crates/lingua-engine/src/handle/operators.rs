//! Calls for operators: nodes, pools, instances, and the explanation of a choice.

use std::sync::Arc;

use lingua_core::{InstanceId, LangPair, Needs, NodeId, NodeState, Tenant, Term};
use lingua_store::Store;
use lingua_store::contract::{CellRecord, InstanceRecord, NodeRecord};

use crate::last_seen::{SeenInstances, SeenNodes};
use crate::table::PoolTable;
use crate::{Engine, SubmitError, Timer};

/// Most cells that are searched for a node that serves a pair.
const SEARCHED_CELLS_MAX: usize = 32;

/// Something as it is now, or as it was seen last while the store does not answer.
#[derive(Debug, Clone)]
pub struct Known<V> {
    /// When it was seen, if the store does not answer now.
    pub stale_since_ms: Option<u64>,
    /// What is known.
    pub value: V,
}

/// The instances and their leader.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// The instance that made this view.
    pub instance: InstanceId,
    /// All instances, dead ones included.
    pub instances: Vec<InstanceRecord>,
    /// Version and term of the pool table that was published last.
    pub table: Option<(u64, Term)>,
    /// The instance that published it.
    pub leader: Option<String>,
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// All cells that have nodes.
    pub(crate) async fn cells(&self) -> lingua_store::Result<Vec<CellRecord>> {
        let mut cells = vec![];
        for cell in self.store.cells().await? {
            cells.push(self.store.view(cell).await?);
        }
        Ok(cells)
    }

    /// All registered nodes, and the store's time.
    pub async fn nodes(&self) -> Result<Arc<SeenNodes>, SubmitError> {
        Ok(self.read_nodes().await?)
    }

    /// All registered nodes, or those that were seen last if the store does not answer.
    pub async fn known_nodes(&self) -> Result<Known<Arc<SeenNodes>>, SubmitError> {
        match self.read_nodes().await {
            Ok(seen) => Ok(Known { stale_since_ms: None, value: seen }),
            Err(error) => match self.last_seen.nodes() {
                Some(seen) => Ok(Known { stale_since_ms: Some(seen.as_of_ms), value: seen }),
                None => Err(error.into()),
            },
        }
    }

    /// One node and the store's time, as last seen if the store does not answer; `None` if it is
    /// not registered.
    pub async fn node(
        &self,
        node: &NodeId,
    ) -> Result<Known<Option<(u64, NodeRecord)>>, SubmitError> {
        let error = match self.timed_record_of(node).await {
            Ok(value) => return Ok(Known { stale_since_ms: None, value }),
            Err(error) => error,
        };
        let seen = self.last_seen.nodes().ok_or(error)?;
        let found = seen.nodes.iter().find(|known| known.node == *node).cloned();
        let value = found.map(|found| (seen.as_of_ms, found));
        Ok(Known { stale_since_ms: Some(seen.as_of_ms), value })
    }

    pub(crate) async fn timed_record_of(
        &self,
        node: &NodeId,
    ) -> lingua_store::Result<Option<(u64, NodeRecord)>> {
        let Some(place) = self.store.locate(node).await? else { return Ok(None) };
        let cell = self.store.view(place.cell).await?;
        let found = cell.nodes.into_iter().find(|known| known.node == *node);
        Ok(found.map(|found| (cell.now_ms, found)))
    }

    /// Whether no registered node can serve this pair, for public jobs or for those of a tenant. A
    /// large fleet is not searched to its end, so that `false` may mean that it is not known.
    pub async fn is_unserved(
        &self,
        pair: LangPair,
        needs: Needs,
        private_to: Option<Tenant>,
    ) -> bool {
        let (is_public, tenant) = (private_to.is_none(), private_to.unwrap_or_default());
        let rule = self.options.rules.semantic;
        let serves = |node: &NodeRecord| {
            let caps = node.profile.capabilities();
            let is_there = node.state != NodeState::Offline;
            let is_open = node.profile.admits(is_public, tenant);
            is_open
                && is_there
                && pair.lookups().any(|pair| caps.missing(pair, needs, rule).is_none())
        };
        let Ok(cells) = self.store.cells().await else { return false };
        if cells.len() > SEARCHED_CELLS_MAX {
            return false;
        }
        for cell in cells {
            match self.store.view(cell).await {
                Ok(cell) if !cell.nodes.iter().any(serves) => {}
                _ => return false,
            }
        }
        true
    }

    /// The pool table that was published last.
    pub fn pools(&self) -> Option<Arc<PoolTable>> {
        self.table.lock().clone()
    }

    /// The instances and their leader, as last seen if the store does not answer.
    pub async fn cluster(&self) -> Known<Cluster> {
        let (instance, shown) = (self.options.instance.clone(), self.pools());
        let leader = shown.as_ref().map(|table| table.generated_by.clone());
        let asked = async { Ok((self.store.instances().await?, self.store.table().await?)) };
        let asked: lingua_store::Result<_> = asked.await;
        match asked {
            Ok((instances, table)) => {
                let table = table.map(|table| (table.version, table.term));
                let value = Cluster { instance, instances, table, leader };
                Known { stale_since_ms: None, value }
            }
            Err(_) => {
                let SeenInstances { as_of_ms, instances } = self.last_seen.instances();
                let table = shown.map(|table| (table.version, Term(table.term)));
                let value = Cluster { instance, instances, table, leader };
                Known { stale_since_ms: Some(as_of_ms), value }
            }
        }
    }

    /// When the store last answered, if it does not answer now.
    pub fn store_away_since_ms(&self) -> Option<u64> {
        (self.metrics.store_up.get() == 0).then(|| self.last_seen.instances().as_of_ms)
    }
}
