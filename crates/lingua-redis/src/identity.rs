//! Detects that the servers may have lost confirmed writes.
//!
//! Start at [`Servers`]; the contract's identity is its `changes`. A server that was restarted, or
//! a replica that became the master, may have lost writes. The identities are read whenever a
//! connection is opened, before its first command, and from time to time.
//!
//! Invariant: `changes` rises whenever a server's run id or replication id has changed.

use std::collections::BTreeMap;

use redis::{InfoDict, RedisResult};
use tokio::sync::watch;

use crate::connect::RawConnection;

/// The identities of the servers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Servers {
    /// How often the identities have changed since this process began.
    pub changes: u64,
    /// The masters, by address; a single server has an empty one.
    pub servers: BTreeMap<String, ServerIdentity>,
}

/// The identity of one server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerIdentity {
    /// Random; changes with each start of the server.
    pub run_id: String,
    /// Random; changes with each promotion of a replica.
    pub replication_id: String,
}

/// Reads the identities of the servers and notifies those who watch them.
pub(crate) async fn check(
    known: &watch::Sender<Servers>,
    connection: &mut RawConnection,
) -> RedisResult<()> {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    // Servers before 7.0 accept one section at a time.
    for section in ["server", "replication"] {
        for (address, text) in connection.info(section).await? {
            texts.entry(address).or_default().push_str(&text);
        }
    }
    let mut servers = BTreeMap::new();
    for (address, text) in texts {
        let (server, is_master) = read(&text);
        if !is_master {
            // It would refuse writes and reply with old data.
            return Err(std::io::Error::other("the server is a replica").into());
        }
        servers.insert(address, server);
    }
    known.send_if_modified(|known| update(known, servers));
    Ok(())
}

/// Replaces the identities; returns whether they differ.
fn update(known: &mut Servers, servers: BTreeMap<String, ServerIdentity>) -> bool {
    if known.servers == servers {
        return false;
    }
    let first = known.servers.is_empty();
    known.servers = servers;
    if !first {
        known.changes += 1;
        tracing::warn!(
            changes = known.changes,
            "the servers have changed; confirmed writes may be lost"
        );
    }
    true
}

/// The identity of a server, and whether it is a master.
fn read(text: &str) -> (ServerIdentity, bool) {
    let info = InfoDict::new(text);
    let field = |name: &str| info.get::<String>(name).unwrap_or_default();
    let (run_id, replication_id) = (field("run_id"), field("master_replid"));
    (ServerIdentity { run_id, replication_id }, field("role") == "master")
}

#[cfg(test)]
mod tests;
