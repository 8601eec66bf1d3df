//! Calls for operators: nodes, pools, instances, and the explanation of a choice.

use std::sync::Arc;

use lingua_core::job::JobSpec;
use lingua_core::roster::NodeVerdict;
use lingua_core::{InstanceId, NodeId, Query, SlotSet, Term};
use lingua_store::Store;
use lingua_store::contract::{CellRecord, InstanceRecord, NodeRecord};

use crate::table::PoolTable;
use crate::{Engine, SubmitError, Timer};

/// What selection thinks of a node.
#[derive(Debug, Clone)]
pub struct NodeExplanation {
    /// The node as the store sees it.
    pub node: NodeRecord,
    /// Whether it would be chosen, and if not, why.
    pub verdict: NodeVerdict,
}

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

    /// Says why each node would or would not get this job now. No slot is taken.
    pub async fn explain(&self, spec: &JobSpec) -> Result<Vec<NodeExplanation>, SubmitError> {
        let mut explanations = vec![];
        let mut is_chosen = false;
        for cell in self.cells().await? {
            let excluded = cell.nodes.iter().filter(|node| spec.exclude.contains(&node.node));
            let exclude: SlotSet = excluded.map(|node| node.place.slot).collect();
            let query = Query {
                pair: spec.pair,
                needs: spec.needs,
                public: spec.public,
                exclude,
                policy: self.options.policy,
                keep_last: spec.wait_ms > Some(0),
            };
            let roster = cell.roster(self.options.rules);
            let explained = roster.explain(&query, cell.now_ms, self.random());
            for (node, (_, verdict)) in cell.nodes.into_iter().zip(explained.verdicts) {
                // A job goes to one cell: here the first that has a slot.
                let verdict = match verdict {
                    NodeVerdict::Chosen { score } if is_chosen => NodeVerdict::AsGood { score },
                    verdict => verdict,
                };
                is_chosen |= matches!(verdict, NodeVerdict::Chosen { .. });
                explanations.push(NodeExplanation { node, verdict });
            }
        }
        Ok(explanations)
    }
}
