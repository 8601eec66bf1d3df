//! The embedded store, through the suite and at its bounds.

mod embedded;
mod limits;
