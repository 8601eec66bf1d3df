//! The state that schedulers share: what a store must do, one that does it in memory, and the suite
//! that any other must pass.
//!
//! | module | what |
//! |---|---|
//! | [`contract`] | [`Store`], its requests and replies |
//! | [`embedded`] | [`Embedded`], the store of a single process |
//! | [`error`] | what can go wrong between a caller and a store |
//! | [`clock`] | where the embedded store gets the time from |
//! | `conformance` | reference model, random histories and rules for any store (a feature) |
//!
//! Start at [`contract::Store`].
//!
//! Architecture invariant: leases, never counters. Every count is the size of a set of named leases,
//! and every decrement is the removal of one of them.

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod contract;
pub mod embedded;
pub mod error;

pub use clock::{Clock, ManualClock, SystemClock};
pub use contract::Store;
pub use embedded::{Embedded, OpenError, StoreLimits};
pub use error::{Result, StoreError};
