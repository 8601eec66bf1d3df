//! Who is where: gives every node its cell and slot.
//!
//! Start at [`Directory::assign`]. A small class stays together, so that its cell can choose among
//! all of it; from [`SPREAD_FROM`] nodes on it is spread, so that no cell's loss takes a popular pair
//! away.
//!
//! Invariants: no two nodes share a slot; a cell has at most [`CELL_NODES_MAX`] nodes; epochs rise
//! over the whole fleet.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hashbrown::HashMap;
use lingua_core::{CELL_NODES_MAX, CELLS_MAX, CellId, Epoch, NodeId, SlotSet};

use super::journal::record::Note;
use super::journal::{Kept, Notes};
use crate::contract::{AssignRequest, Incarnation, NodeClass, Place, SPREAD_FROM};
use crate::error::{Result, StoreError};

#[derive(Debug, Clone, Default)]
pub(super) struct Directory {
    tenants: HashMap<NodeId, Tenant>,
    cells: Vec<Tenancy>,
    epoch: Epoch,
    notes: Notes,
    /// The number of the last order to a node, in the count of its cell; only if notes are taken.
    orders: HashMap<NodeId, u64>,
}

/// A node's place and who it is given to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tenant {
    pub(super) place: Place,
    pub(super) incarnation: Incarnation,
    pub(super) class: NodeClass,
}

impl Kept for Directory {
    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }
}

/// What is taken in a cell.
#[derive(Debug, Clone, Default)]
struct Tenancy {
    taken: SlotSet,
    by_class: BTreeMap<NodeClass, usize>,
}

impl Tenancy {
    fn of_class(&self, class: NodeClass) -> usize {
        self.by_class.get(&class).copied().unwrap_or(0)
    }

    fn leave(&mut self, class: NodeClass) {
        if let Some(count) = self.by_class.get_mut(&class) {
            *count -= 1;
            if *count == 0 {
                self.by_class.remove(&class);
            }
        }
    }
}

impl Directory {
    /// The directory with these tenants; says what is wrong if there cannot be one. Epochs go on
    /// after this one.
    pub(super) fn restore(
        tenants: Vec<(NodeId, Tenant)>,
        epoch: Epoch,
    ) -> std::result::Result<Self, String> {
        let mut directory = Self { epoch, ..Self::default() };
        for (node, tenant) in tenants {
            let Place { cell, slot, epoch } = tenant.place;
            if directory.cells.len() <= cell.index() {
                directory.cells.resize_with(cell.index() + 1, Tenancy::default);
            }
            let tenancy = &mut directory.cells[cell.index()];
            if tenancy.taken.contains(slot) || epoch > directory.epoch {
                return Err(format!("the place of node {node} makes no sense"));
            }
            tenancy.taken.insert(slot);
            *tenancy.by_class.entry(tenant.class).or_default() += 1;
            directory.tenants.insert(node, tenant);
        }
        directory.notes.begin();
        Ok(directory)
    }

    /// Notes an operator's order, unless a later one was noted: cells carry orders out in their own time.
    pub(super) fn note_order(&mut self, node: NodeId, number: u64, drain: bool) {
        if !self.notes.are_taken() || !self.tenants.contains_key(&node) {
            return;
        }
        let last = self.orders.entry(node.clone()).or_default();
        if *last < number {
            *last = number;
            self.notes.take(|| Note::Ordered(node, drain));
        }
    }

    /// All places that are taken.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        self.tenants.values().map(|tenant| tenant.place)
    }

    pub(super) fn assign(&mut self, request: AssignRequest, now_ms: u64) -> Result<Place> {
        let AssignRequest { node, incarnation, class } = request;
        if let Some(tenant) = self.tenants.get_mut(&node) {
            if tenant.incarnation != incarnation {
                self.epoch = self.epoch.after(now_ms);
                tenant.incarnation = incarnation;
                tenant.place.epoch = self.epoch;
                let cell = &mut self.cells[tenant.place.cell.index()];
                cell.leave(tenant.class);
                tenant.class = class;
                *cell.by_class.entry(class).or_default() += 1;
                self.notes.take(|| Note::Placed(node, *tenant));
            }
            return Ok(tenant.place);
        }
        let index = self.cell_for(class)?;
        if index == self.cells.len() {
            self.cells.push(Tenancy::default());
        }
        let tenancy = &mut self.cells[index];
        let slot = (!tenancy.taken).first().expect("cell_for gives a cell with room");
        tenancy.taken.insert(slot);
        *tenancy.by_class.entry(class).or_default() += 1;
        self.epoch = self.epoch.after(now_ms);
        let cell = CellId::new(index).expect("cell_for gives one of CELLS_MAX");
        let place = Place { cell, slot, epoch: self.epoch };
        let tenant = Tenant { place, incarnation, class };
        self.notes.take(|| Note::Placed(node.clone(), tenant));
        self.tenants.insert(node, tenant);
        Ok(place)
    }

    /// The cell for one more node of this class; may be the next new one.
    fn cell_for(&self, class: NodeClass) -> Result<usize> {
        let total: usize = self.cells.iter().map(|cell| cell.of_class(class)).sum();
        let spread = total >= SPREAD_FROM;
        let with_room =
            self.cells.iter().enumerate().filter(|(_, cell)| cell.taken.len() < CELL_NODES_MAX);
        let best = match spread {
            false => with_room
                .max_by_key(|(i, cell)| (cell.of_class(class), cell.taken.len(), Reverse(*i))),
            true => with_room
                .min_by_key(|(i, cell)| (cell.of_class(class), Reverse(cell.taken.len()), *i)),
        };
        let can_open = self.cells.len() < CELLS_MAX;
        match best {
            Some((_, cell)) if spread && can_open && cell.of_class(class) == total => {
                Ok(self.cells.len())
            }
            Some((index, _)) => Ok(index),
            None if can_open => Ok(self.cells.len()),
            None => {
                let limit = CELLS_MAX * CELL_NODES_MAX;
                Err(StoreError::LimitReached { what: "the number of nodes", limit })
            }
        }
    }

    pub(super) fn locate(&self, node: &NodeId) -> Option<Place> {
        self.tenants.get(node).map(|tenant| tenant.place)
    }

    pub(super) fn release(&mut self, node: &NodeId, epoch: Epoch) -> bool {
        let Some(tenant) = self.tenants.get(node).filter(|t| t.place.epoch == epoch).copied()
        else {
            return false;
        };
        self.tenants.remove(node);
        self.orders.remove(node);
        self.notes.take(|| Note::Released(node.clone()));
        let cell = &mut self.cells[tenant.place.cell.index()];
        cell.taken.remove(tenant.place.slot);
        cell.leave(tenant.class);
        true
    }

    pub(super) fn cells(&self) -> Vec<CellId> {
        let used = self.cells.iter().enumerate().filter(|(_, cell)| !cell.taken.is_empty());
        used.filter_map(|(i, _)| CellId::new(i)).collect()
    }
}
