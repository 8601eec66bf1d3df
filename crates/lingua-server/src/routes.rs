//! What is done for each route, by kind of caller.

pub(crate) mod jobs;
pub(crate) mod nodes;
pub(crate) mod operators;
