//! The store that many scheduler instances share: Redis or Valkey, alone, behind Sentinel, or as a
//! Cluster.
//!
//! Start at [`RedisStore::connect`]. Each operation of the contract is one script in `scripts/`, so
//! that it is atomic from however many instances it comes. Its Rust side is one typed function that
//! packs the arguments and reads the reply. A lease is taken in `scripts/reserve.lua`.
//!
//! | file | contents |
//! |---|---|
//! | `options.rs`, `url.rs` | where the store is, and how long to wait for it |
//! | `connection.rs`, `connect.rs` | connections that reconnect by themselves |
//! | `script.rs`, `constants.rs`, `reply.rs` | scripts, their constants, their replies |
//! | `keys.rs`, `record.rs` | the name of every key; packed records |
//! | `directory.rs` | which node is in which cell |
//! | `cell.rs`, `cell/` | nodes, leases, reservations |
//! | `jobs.rs`, `jobs/` | job records |
//! | `idempotency.rs` | idempotency keys |
//! | `sessions.rs` | session records |
//! | `bindings.rs` | which node the jobs of a bind key go to |
//! | `cluster.rs` | leader, pool table, change feed |
//! | `instances.rs` | instances and their inboxes |
//! | `identity.rs` | detects that confirmed writes may be lost |
//! | `store.rs` | the contract |
//!
//! Architecture invariant: every key of a script is declared and has the hash tag of the others, so
//! that the same scripts run on a Cluster. Time is the server's own (`TIME`), inside the script.

mod bindings;
mod cell;
mod cluster;
mod connect;
mod connection;
mod constants;
#[cfg(feature = "decoders")]
pub mod decoders;
mod directory;
mod error;
mod format;
mod idempotency;
mod identity;
mod instances;
mod jobs;
mod keys;
mod options;
mod record;
mod reply;
mod script;
mod sessions;
mod store;
mod url;
mod usage;

pub use error::ConnectError;
pub use identity::{ServerIdentity, Servers};
pub use options::{CallTimeouts, RedisOptions};
pub use store::RedisStore;
pub use url::{Address, Login, StoreUrl, Topology, UrlError};
