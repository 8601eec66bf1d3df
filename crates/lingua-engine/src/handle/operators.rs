//! What operators call.

use std::sync::Arc;

use lingua_core::job::JobSpec;
use lingua_core::roster::NodeVerdict;
use lingua_core::{NodeId, Query, SlotSet};
use lingua_store::Store;
use lingua_store::contract::{CellRecord, InstanceRecord, NodeRecord};

use super::Handle;
use crate::clock::Timer;
use crate::error::SubmitError;
use crate::table::PoolTable;

/// What selection thinks of a node.
#[derive(Debug, Clone)]
pub struct NodeExplanation {
    /// The node.
    pub node: NodeRecord,
    /// Whether it would be chosen, and if not, why.
    pub verdict: NodeVerdict,
}

/// The instances and who leads them.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// This instance.
    pub instance: lingua_core::InstanceId,
    /// All instances.
    pub instances: Vec<InstanceRecord>,
    /// The pool table published last: its version and the leader's term.
    pub table: Option<(u64, lingua_core::Term)>,
    /// Who made it.
    pub leader: Option<String>,
}

impl<S: Store, T: Timer> Handle<S, T> {
    async fn views(&self) -> Result<Vec<CellRecord>, SubmitError> {
        let mut views = vec![];
        for cell in self.shared.store.cells().await? {
            views.push(self.shared.store.view(cell).await?);
        }
        Ok(views)
    }

    /// All nodes that are registered, with the time at which they were looked at.
    pub async fn nodes(&self) -> Result<(u64, Vec<NodeRecord>), SubmitError> {
        let views = self.views().await?;
        let now_ms = views.first().map_or(self.shared.now_ms(), |view| view.now_ms);
        Ok((now_ms, views.into_iter().flat_map(|view| view.nodes).collect()))
    }

    /// One node.
    pub async fn node(&self, node: &NodeId) -> Result<Option<(u64, NodeRecord)>, SubmitError> {
        let Some(place) = self.shared.store.locate(node).await? else { return Ok(None) };
        let view = self.shared.store.view(place.cell).await?;
        let found = view.nodes.into_iter().find(|n| n.node == *node);
        Ok(found.map(|n| (view.now_ms, n)))
    }

    /// The pool table in force, and its version.
    pub fn pools(&self) -> Option<Arc<PoolTable>> {
        self.shared.table.lock().clone()
    }

    /// Who is there and who leads.
    pub async fn cluster(&self) -> Result<Cluster, SubmitError> {
        let instances = self.shared.store.instances().await?;
        let table = self.shared.store.table().await?.map(|table| (table.version, table.term));
        let leader = self.pools().map(|table| table.generated_by.clone());
        Ok(Cluster { instance: self.shared.options.instance.clone(), instances, table, leader })
    }

    /// Why each node would or would not get this job now. Nothing is taken.
    pub async fn explain(&self, spec: &JobSpec) -> Result<Vec<NodeExplanation>, SubmitError> {
        let mut verdicts = vec![];
        let mut chosen = false;
        for view in self.views().await? {
            let excluded = view.nodes.iter().filter(|n| spec.exclude.contains(&n.node));
            let exclude: SlotSet = excluded.map(|n| n.place.slot).collect();
            let query = Query {
                pair: spec.pair,
                needs: spec.needs,
                public: spec.public,
                exclude,
                policy: self.shared.options.policy,
                keep_last: spec.wait_ms > Some(0),
            };
            let roster = view.roster(self.shared.options.rules);
            let told = roster.explain(&query, view.now_ms, self.shared.random());
            for (node, (_, verdict)) in view.nodes.into_iter().zip(told.verdicts) {
                // One job goes to one cell: the first that has a slot, in this account.
                let verdict = match verdict {
                    NodeVerdict::Chosen { score } if chosen => NodeVerdict::AsGood { score },
                    verdict => verdict,
                };
                chosen |= matches!(verdict, NodeVerdict::Chosen { .. });
                verdicts.push(NodeExplanation { node, verdict });
            }
        }
        Ok(verdicts)
    }

    /// Whether a node is connected here.
    pub fn knows(&self, node: &NodeId) -> bool {
        self.shared.nodes.get(node).is_some()
    }
}
