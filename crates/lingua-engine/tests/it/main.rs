//! The engine on the embedded store, with nodes that count for themselves, in virtual time.

mod bus;
mod failover;
mod jobs;
mod nodes;
mod operators;
mod panics;
mod partials;
mod restart;
mod session_failover;
mod sessions;
mod waiting;
mod world;
