//! The last known nodes and instances, which stay readable while the store does not answer.
//!
//! Start at `Engine::look_around`. The pool table is kept elsewhere: every instance has it.

use std::sync::Arc;

use lingua_store::Store;
use lingua_store::contract::{CellRecord, InstanceRecord, NodeRecord};
use parking_lot::Mutex;

use crate::{Engine, Timer};

/// Most nodes that are kept; a larger fleet keeps none, only the pool table.
const KEPT_NODES_MAX: usize = 20_000;

/// The nodes as they were once.
#[derive(Debug)]
pub struct SeenNodes {
    /// The store's time then.
    pub as_of_ms: u64,
    /// As the store showed them last.
    pub nodes: Vec<NodeRecord>,
}

/// The instances as they were once.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeenInstances {
    pub(crate) as_of_ms: u64,
    pub(crate) instances: Vec<InstanceRecord>,
}

/// What was seen last.
#[derive(Debug, Default)]
pub(crate) struct LastSeen {
    nodes: Mutex<Option<Arc<SeenNodes>>>,
    instances: Mutex<SeenInstances>,
}

impl LastSeen {
    pub(crate) fn keep_nodes(&self, seen: &Arc<SeenNodes>) {
        let kept = (seen.nodes.len() <= KEPT_NODES_MAX).then(|| Arc::clone(seen));
        *self.nodes.lock() = kept;
    }

    pub(crate) fn nodes(&self) -> Option<Arc<SeenNodes>> {
        self.nodes.lock().clone()
    }

    pub(crate) fn keep_instances(&self, instances: &[InstanceRecord], as_of_ms: u64) {
        *self.instances.lock() = SeenInstances { as_of_ms, instances: instances.to_vec() };
    }

    pub(crate) fn instances(&self) -> SeenInstances {
        self.instances.lock().clone()
    }
}

impl SeenNodes {
    pub(crate) fn of(cells: Vec<CellRecord>, now_ms: u64) -> Self {
        let as_of_ms = cells.first().map_or(now_ms, |cell| cell.now_ms);
        Self { as_of_ms, nodes: cells.into_iter().flat_map(|cell| cell.nodes).collect() }
    }
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// Reads the table and the nodes, in case the change feed lost something, and for the time
    /// in which the store does not answer.
    pub(crate) async fn look_around(&self) -> lingua_store::Result<()> {
        self.load_table().await?;
        self.read_nodes().await?;
        Ok(())
    }

    pub(crate) async fn read_nodes(&self) -> lingua_store::Result<Arc<SeenNodes>> {
        let seen = Arc::new(SeenNodes::of(self.cells().await?, self.now_ms()));
        self.last_seen.keep_nodes(&seen);
        Ok(seen)
    }
}
