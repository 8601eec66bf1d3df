//! The routes, by kind of caller.

pub(crate) mod jobs;
pub(crate) mod me;
pub(crate) mod nodes;
pub(crate) mod operators;
pub(crate) mod usage;
