//! Assigns a cell and a slot to every node.
//!
//! Start at [`Directory::assign`]. A small class stays in one cell, so that a selection sees all of
//! it. From [`SPREAD_FROM`] nodes on it is spread, so that the loss of one cell does not take away
//! a popular pair. Otherwise a node goes to the cell with the fewest nodes, and cells are opened
//! long before the others are full ([`cells_for`]), so that cells stay alike.
//!
//! Invariants: no two nodes share a slot. A cell has at most [`CELL_NODES_MAX`] nodes. Epochs rise
//! over the whole fleet.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hashbrown::HashMap;
use lingua_core::{CELL_NODES_MAX, CELLS_MAX, CellId, Epoch, NodeId, SlotSet, TokenName};

use super::journal::ChangeLog;
use super::journal::record::DurableChange;
use crate::contract::{
    AssignReply, AssignRequest, Incarnation, NodeClass, Place, SPREAD_FROM, cells_for,
};
use crate::error::{Result, StoreError};

#[derive(Debug, Clone, Default)]
pub(super) struct Directory {
    placements: HashMap<NodeId, Placement>,
    cells: Vec<CellSlots>,
    /// How many nodes belong to each token.
    owned: HashMap<TokenName, usize>,
    epoch: Epoch,
    changes: ChangeLog,
    /// Cells have fewer nodes than [`CELL_NODES_MAX`]; in simulations only.
    pub(super) cell_nodes_max: Option<usize>,
    /// The number of the last drain or resume command to a node, as counted by its cell. Empty in a
    /// store without a disk.
    drain_commands: HashMap<NodeId, u64>,
}

/// The holder of a place.
#[derive(Debug, Clone)]
pub(super) struct Placement {
    pub(super) place: Place,
    pub(super) incarnation: Incarnation,
    pub(super) class: NodeClass,
    /// The token that the node belongs to.
    pub(super) owner: Option<TokenName>,
}

impl AsMut<ChangeLog> for Directory {
    fn as_mut(&mut self) -> &mut ChangeLog {
        &mut self.changes
    }
}

/// The slots that are taken in a cell.
#[derive(Debug, Clone, Default)]
struct CellSlots {
    taken: SlotSet,
    by_class: BTreeMap<NodeClass, usize>,
}

impl CellSlots {
    fn of_class(&self, class: NodeClass) -> usize {
        self.by_class.get(&class).copied().unwrap_or(0)
    }

    fn add_class(&mut self, class: NodeClass) {
        *self.by_class.entry(class).or_default() += 1;
    }

    fn remove_class(&mut self, class: NodeClass) {
        if let Some(count) = self.by_class.get_mut(&class) {
            *count -= 1;
            if *count == 0 {
                self.by_class.remove(&class);
            }
        }
    }
}

fn count_owned(owned: &mut HashMap<TokenName, usize>, owner: Option<&TokenName>, by: isize) {
    let Some(owner) = owner else { return };
    let count = owned.entry(owner.clone()).or_default();
    *count = count.saturating_add_signed(by);
    if *count == 0 {
        owned.remove(owner);
    }
}

impl Directory {
    /// Starts with the placements that were on disk; epochs continue after `epoch`. Fails if two
    /// placements contradict each other.
    pub(super) fn restore(
        placements: Vec<(NodeId, Placement)>,
        epoch: Epoch,
    ) -> std::result::Result<Self, String> {
        let mut directory = Self { epoch, ..Self::default() };
        for (node, placement) in placements {
            let Place { cell, slot, epoch } = placement.place;
            if directory.cells.len() <= cell.index() {
                directory.cells.resize_with(cell.index() + 1, CellSlots::default);
            }
            let cell = &mut directory.cells[cell.index()];
            if cell.taken.contains(slot) || epoch > directory.epoch {
                return Err(format!("the place of node {node} is impossible"));
            }
            cell.taken.insert(slot);
            cell.add_class(placement.class);
            count_owned(&mut directory.owned, placement.owner.as_ref(), 1);
            directory.placements.insert(node, placement);
        }
        directory.changes.enable();
        Ok(directory)
    }

    /// Writes a drain or resume command to disk, unless a later one came first: the cell's lock is
    /// not held any more.
    pub(super) fn record_drain(&mut self, node: NodeId, number: u64, drain: bool) {
        if !self.changes.is_enabled() || !self.placements.contains_key(&node) {
            return;
        }
        let last = self.drain_commands.entry(node.clone()).or_default();
        if *last < number {
            *last = number;
            self.changes.push(|| DurableChange::NodeDrained(node, drain));
        }
    }

    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        self.placements.values().map(|placement| placement.place)
    }

    pub(super) fn assign(&mut self, request: AssignRequest, now_ms: u64) -> Result<AssignReply> {
        let known = self.placements.get(&request.node);
        let had = known.and_then(|placement| placement.owner.as_ref());
        if request.is_refused_by(had) {
            return Ok(AssignReply::Taken);
        }
        let is_owned = known.is_some() && had == request.owner.as_ref();
        if let Some(owner) = request.owner.as_ref().filter(|_| !is_owned)
            && let Some(max) = request.owned_max
            && self.owned.get(owner).copied().unwrap_or(0) >= max
        {
            return Ok(AssignReply::TooMany);
        }
        self.place(request, now_ms).map(AssignReply::Placed)
    }

    fn place(&mut self, request: AssignRequest, now_ms: u64) -> Result<Place> {
        let AssignRequest { node, incarnation, class, owner, .. } = request;
        if let Some(placement) = self.placements.get_mut(&node) {
            if placement.incarnation != incarnation || placement.owner != owner {
                count_owned(&mut self.owned, placement.owner.as_ref(), -1);
                count_owned(&mut self.owned, owner.as_ref(), 1);
                placement.owner = owner;
                self.epoch = self.epoch.after(now_ms);
                placement.incarnation = incarnation;
                placement.place.epoch = self.epoch;
                let cell = &mut self.cells[placement.place.cell.index()];
                cell.remove_class(placement.class);
                cell.add_class(class);
                placement.class = class;
                self.changes.push(|| DurableChange::NodePlaced(node, placement.clone()));
            }
            return Ok(placement.place);
        }
        let index = self.cell_for(class)?;
        if index == self.cells.len() {
            self.cells.push(CellSlots::default());
        }
        let slots = &mut self.cells[index];
        let slot = (!slots.taken).first().expect("cell_for returns a cell with room");
        slots.taken.insert(slot);
        slots.add_class(class);
        self.epoch = self.epoch.after(now_ms);
        let cell = CellId::new(index).expect("cell_for returns one of CELLS_MAX");
        let place = Place { cell, slot, epoch: self.epoch };
        count_owned(&mut self.owned, owner.as_ref(), 1);
        let placement = Placement { place, incarnation, class, owner };
        self.changes.push(|| DurableChange::NodePlaced(node.clone(), placement.clone()));
        self.placements.insert(node, placement);
        Ok(place)
    }

    /// The cell for one more node of this class; perhaps the next new one.
    fn cell_for(&self, class: NodeClass) -> Result<usize> {
        let of_class: usize = self.cells.iter().map(|cell| cell.of_class(class)).sum();
        let nodes_max = self.cell_nodes_max.unwrap_or(CELL_NODES_MAX);
        let with_room =
            self.cells.iter().enumerate().filter(|(_, cell)| cell.taken.len() < nodes_max);
        if of_class < SPREAD_FROM
            && let Some((index, cell)) =
                with_room.clone().max_by_key(|(i, cell)| (cell.of_class(class), Reverse(*i)))
            && cell.of_class(class) > 0
        {
            return Ok(index);
        }
        let best = with_room.min_by_key(|(i, cell)| (cell.of_class(class), cell.taken.len(), *i));
        let can_open = self.cells.len() < CELLS_MAX;
        let is_spread = |cell: &CellSlots| cell.of_class(class) < of_class;
        match best {
            Some((index, cell))
                if !can_open
                    || self.cells.len() >= cells_for(self.placements.len() + 1)
                        && (of_class < SPREAD_FROM || is_spread(cell)) =>
            {
                Ok(index)
            }
            _ if can_open => Ok(self.cells.len()),
            _ => {
                let limit = CELLS_MAX * CELL_NODES_MAX;
                Err(StoreError::LimitReached { what: "the number of nodes", limit })
            }
        }
    }

    pub(super) fn locate(&self, node: &NodeId) -> Option<Place> {
        self.placements.get(node).map(|placement| placement.place)
    }

    pub(super) fn release(&mut self, node: &NodeId, epoch: Epoch) -> bool {
        if self.placements.get(node).is_none_or(|known| known.place.epoch != epoch) {
            return false;
        }
        let Some(placement) = self.placements.remove(node) else { return false };
        count_owned(&mut self.owned, placement.owner.as_ref(), -1);
        self.drain_commands.remove(node);
        self.changes.push(|| DurableChange::NodeReleased(node.clone()));
        let cell = &mut self.cells[placement.place.cell.index()];
        cell.taken.remove(placement.place.slot);
        cell.remove_class(placement.class);
        true
    }

    pub(super) fn cells(&self) -> Vec<CellId> {
        let used = self.cells.iter().enumerate().filter(|(_, cell)| !cell.taken.is_empty());
        used.filter_map(|(i, _)| CellId::new(i)).collect()
    }
}
