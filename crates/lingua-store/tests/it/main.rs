//! The embedded store, in memory and on disk, through the suite and at its bounds.

mod durable;
mod embedded;
mod limits;
