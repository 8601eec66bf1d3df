//! Which node is in which cell: one typed function for each script on the directory.

use lingua_core::{CELL_NODES_MAX, CELLS_MAX, CellId, Epoch, NodeId, Slot, TokenName};
use lingua_store::contract::{AssignReply, AssignRequest, Place};
use lingua_store::{Result, StoreError};

use crate::reply::{corrupt, parse};
use crate::script::{ASSIGN, RELEASE};
use crate::store::RedisStore;

impl RedisStore {
    pub(crate) async fn assign(&self, request: AssignRequest) -> Result<AssignReply> {
        let AssignRequest { node, incarnation, class, owner, owned_max } = request;
        let owner = owner.as_ref().map_or("", TokenName::as_str);
        let owned_max = owned_max.map_or(String::new(), |max| max.to_string());
        let args = (node.as_str(), incarnation.0, class.0, owner, owned_max);
        let assigned: Vec<u64> = self.call(&ASSIGN, &self.keys.directory(), args).await?;
        match assigned.as_slice() {
            [] => {
                let limit = CELLS_MAX * CELL_NODES_MAX;
                Err(StoreError::LimitReached { what: "the number of nodes", limit })
            }
            [0] => Ok(AssignReply::Taken),
            [1] => Ok(AssignReply::TooMany),
            numbers => place(numbers).map(AssignReply::Placed),
        }
    }

    pub(crate) async fn locate(&self, node: &NodeId) -> Result<Option<Place>> {
        let [places, ..] = self.keys.directory();
        let known: Option<String> =
            self.query(redis::cmd("HGET").arg((places, node.as_str()))).await?;
        let Some(text) = known else { return Ok(None) };
        // The fields after these are for the scripts.
        let numbers: Result<Vec<u64>> = text.split(' ').take(3).map(parse).collect();
        place(&numbers?).map(Some)
    }

    pub(crate) async fn release(&self, node: &NodeId, epoch: Epoch) -> Result<bool> {
        let [places, counts, taken, classes, _, owned] = self.keys.directory();
        let keys = [places, counts, taken, classes, owned];
        self.call(&RELEASE, &keys, (node.as_str(), epoch.0)).await
    }

    pub(crate) async fn cells(&self) -> Result<Vec<CellId>> {
        let [_, counts, ..] = self.keys.directory();
        let counts: Vec<u8> = self.query(redis::cmd("GET").arg(counts)).await?;
        let used = counts.iter().enumerate().filter(|&(_, &count)| count > 0);
        Ok(used.filter_map(|(cell, _)| CellId::new(cell)).collect())
    }
}

/// The place with these numbers: cell, slot, epoch.
fn place(numbers: &[u64]) -> Result<Place> {
    if let &[cell, slot, epoch] = numbers
        && let (Some(cell), Some(slot)) = (CellId::new(cell as usize), Slot::new(slot as usize))
    {
        return Ok(Place { cell, slot, epoch: Epoch(epoch) });
    }
    Err(corrupt(&format!("{numbers:?} is not a place of a node")))
}
