//! The rules that every store must follow, one function for each.

pub mod bindings;
pub mod cells;
pub mod choice;
pub mod cluster;
pub mod jobs;
pub mod keys;
pub mod limits;
pub mod placement;
pub mod races;
pub mod sessions;
pub mod usage;
