//! Which node is in which cell: one typed function for each script on the directory.

use lingua_core::{CELL_NODES_MAX, CELLS_MAX, CellId, Epoch, NodeId, Slot};
use lingua_store::contract::{AssignRequest, Place};
use lingua_store::{Result, StoreError};
use redis::Value;

use crate::reply::{ScriptReply, corrupt, number_of};
use crate::script::{ASSIGN, RELEASE};
use crate::store::RedisStore;

impl RedisStore {
    pub(crate) async fn assign(&self, request: AssignRequest) -> Result<Place> {
        let AssignRequest { node, incarnation, class } = request;
        let keys = self.keys.directory();
        let call = ASSIGN.call(self.script_ms(), &keys);
        let call = call.arg(node.as_str()).arg(incarnation.0).arg(class.0);
        let mut reply = ScriptReply::new(self.connection.run(&call).await?)?;
        if reply.is_empty() {
            let limit = CELLS_MAX * CELL_NODES_MAX;
            return Err(StoreError::LimitReached { what: "the number of nodes", limit });
        }
        place(reply.number()?, reply.number()?, reply.number()?)
    }

    pub(crate) async fn locate(&self, node: &NodeId) -> Result<Option<Place>> {
        let [places, ..] = self.keys.directory();
        let mut command = redis::cmd("HGET");
        command.arg(places).arg(node.as_str());
        match self.connection.send(&command).await? {
            Value::BulkString(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                let mut numbers = text.split(' ').map(str::parse::<u64>);
                let mut next = || numbers.next().and_then(std::result::Result::ok);
                match (next(), next(), next()) {
                    (Some(cell), Some(slot), Some(epoch)) => place(cell, slot, epoch).map(Some),
                    _ => Err(corrupt(&format!("the place of node {node} is {text:?}"))),
                }
            }
            _ => Ok(None),
        }
    }

    pub(crate) async fn release(&self, node: &NodeId, epoch: Epoch) -> Result<bool> {
        let [places, counts, taken, classes, _] = self.keys.directory();
        let call = RELEASE.call(self.script_ms(), &[places, counts, taken, classes]);
        let call = call.arg(node.as_str()).arg(epoch.0);
        Ok(number_of(self.connection.run(&call).await?)? == 1)
    }

    pub(crate) async fn cells(&self) -> Result<Vec<CellId>> {
        let [_, counts, ..] = self.keys.directory();
        let mut command = redis::cmd("GET");
        command.arg(counts);
        let Value::BulkString(counts) = self.connection.send(&command).await? else {
            return Ok(vec![]);
        };
        let used = counts.iter().enumerate().filter(|&(_, &count)| count > 0);
        Ok(used.filter_map(|(cell, _)| CellId::new(cell)).collect())
    }
}

fn place(cell: u64, slot: u64, epoch: u64) -> Result<Place> {
    let (known_cell, known_slot) = (CellId::new(cell as usize), Slot::new(slot as usize));
    match (known_cell, known_slot) {
        (Some(cell), Some(slot)) => Ok(Place { cell, slot, epoch: Epoch(epoch) }),
        _ => Err(corrupt(&format!("there is no slot {slot} in cell {cell}"))),
    }
}
