//! The state that schedulers share: the contract of a store, a store in memory, and the test suite
//! that every store must pass.
//!
//! | module | contents |
//! |---|---|
//! | [`contract`] | [`Store`], its requests and replies |
//! | [`embedded`] | [`Embedded`], the store of a single process |
//! | [`error`] | [`StoreError`] |
//! | [`clock`] | the clock of the embedded store, and one for tests |
//! | `conformance` | reference model, random histories and rules for any store (a feature) |
//!
//! Start at [`contract::Store`]. A lease is taken in `embedded/cell.rs`, `Cell::reserve`.
//!
//! Architecture invariant: leases, never counters. Every count is the size of a set of named
//! leases, and every decrement is the removal of one of them.

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod contract;
pub mod embedded;
pub mod error;

pub use clock::{Clock, ManualClock};
pub use contract::Store;
pub use embedded::{Embedded, OpenError, StoreLimits};
pub use error::{Result, StoreError};
