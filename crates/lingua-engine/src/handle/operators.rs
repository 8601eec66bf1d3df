//! Calls for operators: nodes, pools, instances, and the explanation of a choice.

use std::sync::Arc;

use lingua_core::{InstanceId, LangPair, Needs, NodeId, NodeState, Term};
use lingua_store::Store;
use lingua_store::contract::{CellRecord, InstanceRecord, NodeRecord};

use crate::table::PoolTable;
use crate::{Engine, SubmitError, Timer};

/// Most cells that are searched for a node that serves a pair.
const SEARCHED_CELLS_MAX: usize = 32;

/// The instances and their leader.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// This instance.
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
    pub async fn nodes(&self) -> Result<(u64, Vec<NodeRecord>), SubmitError> {
        let cells = self.cells().await?;
        let now_ms = cells.first().map_or(self.now_ms(), |cell| cell.now_ms);
        Ok((now_ms, cells.into_iter().flat_map(|cell| cell.nodes).collect()))
    }

    /// One node, and the store's time; `None` if it is not registered.
    pub async fn node(&self, node: &NodeId) -> Result<Option<(u64, NodeRecord)>, SubmitError> {
        Ok(self.timed_record_of(node).await?)
    }

    pub(super) async fn timed_record_of(
        &self,
        node: &NodeId,
    ) -> lingua_store::Result<Option<(u64, NodeRecord)>> {
        let Some(place) = self.store.locate(node).await? else { return Ok(None) };
        let cell = self.store.view(place.cell).await?;
        let found = cell.nodes.into_iter().find(|known| known.node == *node);
        Ok(found.map(|found| (cell.now_ms, found)))
    }

    /// Whether no registered node can serve this pair. A large fleet is not searched to its end, so
    /// that `false` may mean that nobody knows.
    pub async fn is_unserved(&self, pair: LangPair, needs: Needs) -> bool {
        let rule = self.options.rules.semantic;
        let serves = |node: &NodeRecord| {
            let caps = node.profile.capabilities();
            let is_there = node.state != NodeState::Offline;
            is_there && pair.lookups().any(|pair| caps.missing(pair, needs, rule).is_none())
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

    /// The instances and their leader.
    pub async fn cluster(&self) -> Result<Cluster, SubmitError> {
        let instances = self.store.instances().await?;
        let table = self.store.table().await?.map(|table| (table.version, table.term));
        let leader = self.pools().map(|table| table.generated_by.clone());
        Ok(Cluster { instance: self.options.instance.clone(), instances, table, leader })
    }
}
