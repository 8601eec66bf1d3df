//! The contract over Redis.
//!
//! Start at [`RedisStore`]. Each operation is a method of the same name in the file of its part.

use std::collections::BTreeMap;
use std::sync::Arc;

use lingua_core::{CellId, Epoch, InstanceId, JobId, NodeId, Rules, Term};
use lingua_store::contract::*;
use lingua_store::{Clock, ManualClock, Result, StoreLimits};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::connect::Connector;
use crate::connection::Connection;
use crate::error::ConnectError;
use crate::identity::Servers;
use crate::keys::Keys;
use crate::options::RedisOptions;

/// The store over Redis or Valkey. Clones share the connection.
#[derive(Debug, Clone)]
pub struct RedisStore {
    pub(crate) connection: Arc<Connection>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) rules: Rules,
    pub(crate) limits: StoreLimits,
    clock: Option<ManualClock>,
    /// The name of the feed that was read last.
    pub(crate) feed_name: Arc<Mutex<Option<String>>>,
}

impl RedisStore {
    /// Checks the settings and prepares the connection, without waiting for a server. While no
    /// server replies, every operation fails; as soon as one does, they work.
    ///
    /// Must be called within a Tokio runtime.
    pub fn open(options: RedisOptions) -> std::result::Result<Self, ConnectError> {
        let connector = Connector::new(&options);
        connector.check().map_err(|error| ConnectError::Settings(error.to_string()))?;
        let connection = Connection::new(connector, options.timeouts);
        watch_identity(&connection, &options);
        Ok(Self {
            connection,
            keys: Arc::new(Keys::new(&options.key_prefix)),
            rules: options.rules,
            limits: options.limits,
            clock: options.clock,
            feed_name: Arc::default(),
        })
    }

    /// Opens the store and waits until a server has replied.
    pub async fn connect(options: RedisOptions) -> std::result::Result<Self, ConnectError> {
        let store = Self::open(options)?;
        store.ping().await?;
        Ok(store)
    }

    /// Succeeds if a server replies.
    pub async fn ping(&self) -> Result<()> {
        self.feed_head().await.map(drop)
    }

    /// The reply of each master to `INFO section`, by address; a single server has an empty one.
    pub async fn info(&self, section: &str) -> Result<BTreeMap<String, String>> {
        self.connection.info(section).await
    }

    /// The servers' identities. When `changes` rises, confirmed writes may have been lost.
    pub fn watch_servers(&self) -> watch::Receiver<Servers> {
        self.connection.identity.subscribe()
    }

    /// The time for the scripts: 0 means the server's own.
    pub(crate) fn script_ms(&self) -> u64 {
        self.clock.as_ref().map_or(0, ManualClock::now_ms)
    }
}

/// Checks the servers' identities from time to time, as long as the store exists.
fn watch_identity(connection: &Arc<Connection>, options: &RedisOptions) {
    let (connection, pause) = (Arc::downgrade(connection), options.timeouts.identity);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(pause).await;
            let Some(connection) = connection.upgrade() else { return };
            connection.check_identity().await;
        }
    });
}

macro_rules! forward_to_methods {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $Type:ty),*) -> $Reply:ty;)*) => {
        impl Store for RedisStore {
            fn identity(&self) -> StoreIdentity {
                StoreIdentity(self.connection.identity.changes())
            }

            $(
                async fn $name(&self, $($arg: $Type),*) -> Result<$Reply> {
                    RedisStore::$name(self, $($arg),*).await
                }
            )*
        }
    };
}

lingua_store::with_store_operations!(forward_to_methods);
