//! The store over Redis, through the suite and through its troubles, on servers that the tests
//! start themselves.
//!
//! `LINGUA_REDIS_SERVER` names another server program, such as `valkey-server`.

#![allow(clippy::unwrap_used, reason = "a test without its servers has failed")]

mod cluster;
mod clustered;
mod differential;
mod faults;
mod limits;
mod sentinel;
mod servers;
mod standalone;
mod watched;
