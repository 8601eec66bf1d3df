//! The engine on the embedded store, with nodes that count for themselves, in virtual time.

mod bus;
mod failover;
mod flaky_store;
mod jobs;
mod nodes;
mod operators;
mod panics;
mod partials;
mod polling;
mod restart;
mod session_failover;
mod sessions;
mod store_faults;
mod waiting;
mod world;
