//! Whether it is still the same store.
//!
//! Start at [`Servers`]; the contract's identity is its `changes`. A server that was restarted, or a replica that became the master, may have
//! forgotten writes that were answered. Who the servers are is looked at whenever a connection is
//! opened, before anything is asked on it, and then once in a while; whoever watches is told.
//!
//! Invariant: `changes` rises whenever a server's run id or replication id is another one than before.

use std::collections::BTreeMap;

use redis::{RedisResult, Value};
use tokio::sync::watch;

use crate::connect::RawConnection;

/// Who the servers are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Servers {
    /// How often it has become another store since this process began.
    pub changes: u64,
    /// The masters, by address; a single server has none.
    pub servers: BTreeMap<String, ServerIdentity>,
}

/// Who one server is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerIdentity {
    /// Drawn anew at each start of the server.
    pub run_id: String,
    /// Drawn anew at each promotion of a replica.
    pub replication_id: String,
}

/// Remembers the identity and tells whoever watches.
#[derive(Debug)]
pub(crate) struct IdentityWatch(watch::Sender<Servers>);

impl Default for IdentityWatch {
    fn default() -> Self {
        Self(watch::Sender::new(Servers::default()))
    }
}

impl IdentityWatch {
    pub(crate) fn subscribe(&self) -> watch::Receiver<Servers> {
        self.0.subscribe()
    }

    /// How often it has become another store. Costs no more than a lock that is free but for moments.
    pub(crate) fn changes(&self) -> u64 {
        self.0.borrow().changes
    }

    /// Asks the servers who they are.
    pub(crate) async fn look(&self, link: &mut RawConnection) -> RedisResult<()> {
        let mut texts: BTreeMap<String, String> = BTreeMap::new();
        // One section at a time: servers before 7.0 take no more.
        for section in ["server", "replication"] {
            let mut question = redis::cmd("INFO");
            question.arg(section);
            for (address, answer) in link.send_to_masters(question).await? {
                texts.entry(address).or_default().push_str(&text_of(&answer));
            }
        }
        let mut servers = BTreeMap::new();
        for (address, text) in texts {
            let (server, is_master) = read(&text);
            if !is_master {
                // It would refuse writes and give old answers.
                let refused = std::io::Error::other("the server is a replica at present");
                return Err(refused.into());
            }
            servers.insert(address, server);
        }
        self.0.send_if_modified(|known| note(known, servers));
        Ok(())
    }
}

/// Takes over who the servers are; says whether that is different from before.
fn note(known: &mut Servers, servers: BTreeMap<String, ServerIdentity>) -> bool {
    if known.servers == servers {
        return false;
    }
    let first = known.servers.is_empty();
    known.servers = servers;
    if !first {
        known.changes += 1;
        tracing::warn!(changes = known.changes, "the store is another one than before");
    }
    true
}

pub(crate) fn text_of(answer: &Value) -> String {
    match answer {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}

/// Who a server is, and whether it is a master.
fn read(text: &str) -> (ServerIdentity, bool) {
    let field = |name: &str| {
        let connection =
            text.lines().find_map(|connection| connection.strip_prefix(name)?.strip_prefix(':'));
        connection.unwrap_or_default().trim().to_owned()
    };
    let (run_id, replication_id) = (field("run_id"), field("master_replid"));
    (ServerIdentity { run_id, replication_id }, field("role") == "master")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(run_id: &str) -> BTreeMap<String, ServerIdentity> {
        let text = format!("# Server\r\nrun_id:{run_id}\r\nrole:master\r\nmaster_replid:abc\r\n");
        let (server, is_master) = read(&text);
        assert!(is_master);
        BTreeMap::from([(String::new(), server)])
    }

    #[test]
    fn a_restarted_server_is_another_store() {
        let mut identity = Servers::default();
        assert!(note(&mut identity, servers("one")));
        assert_eq!(identity.servers[""].run_id, "one");
        assert_eq!(identity.servers[""].replication_id, "abc");
        assert_eq!(identity.changes, 0, "the first look is no change");
        assert!(!note(&mut identity, servers("one")));
        assert!(note(&mut identity, servers("two")));
        assert_eq!(identity.changes, 1);
    }
}
