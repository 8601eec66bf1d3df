//! What any store must do, one function for each rule.
//!
//! A function named `fault_NN_…` shows that a fault of the user's documents (design §7) is not
//! repeated; one named `doc_…` is a worked example from them.

pub mod cells;
pub mod cluster;
pub mod jobs;
pub mod placement;
pub mod races;
pub mod sessions;
