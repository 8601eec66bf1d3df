//! The contract over Redis.
//!
//! Start at [`RedisStore`]. Each operation is a method of the same name in the file of its part.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lingua_core::{CellId, Epoch, InstanceId, JobId, NodeId, Tenant, Term};
use lingua_store::contract::*;
use lingua_store::{Clock, ManualClock, Result, StoreError};
use parking_lot::Mutex;
use redis::{Cmd, FromRedisValue, ToRedisArgs};
use tokio::sync::watch;

use crate::connection::{Connection, Repeat};
use crate::error::ConnectError;
use crate::identity::Servers;
use crate::keys::Keys;
use crate::options::RedisOptions;
use crate::reply::convert;
use crate::script::Script;

/// The store over Redis or Valkey. Clones share the connection.
#[derive(Debug, Clone)]
pub struct RedisStore {
    pub(crate) connection: Arc<Connection>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) options: Arc<RedisOptions>,
    /// The name of the feed that was read last.
    pub(crate) feed_name: Arc<Mutex<Option<String>>>,
    /// How many records could not be read and were left out.
    pub(crate) unreadable: Arc<AtomicU64>,
}

impl RedisStore {
    /// Checks the settings and prepares the connection, without waiting for a server. While no
    /// server replies, every operation fails; as soon as one does, they work.
    ///
    /// Must be called within a Tokio runtime.
    pub fn open(options: RedisOptions) -> std::result::Result<Self, ConnectError> {
        options.check().map_err(|error| ConnectError::Settings(error.to_string()))?;
        let options = Arc::new(options);
        let keys = Arc::new(Keys::new(&options.key_prefix));
        let connection = Arc::new(Connection::new(Arc::clone(&options), Arc::clone(&keys)));
        watch_identity(&connection, options.timeouts.identity);
        Ok(Self {
            connection,
            keys,
            options,
            feed_name: Arc::default(),
            unreadable: Arc::default(),
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
        self.connection.servers.subscribe()
    }

    /// Leaves out a record of a list that cannot be read: somebody else wrote it, and the others
    /// are still good. Each power of two is logged, so that a list that is read often does not
    /// fill the log.
    pub(crate) fn readable<T>(&self, record: Result<T>) -> Result<Option<T>> {
        match record {
            Ok(record) => Ok(Some(record)),
            Err(StoreError::Corrupt { detail }) => {
                let count = self.unreadable.fetch_add(1, Ordering::Relaxed) + 1;
                if count.is_power_of_two() {
                    tracing::warn!(count, detail, "left out a record that cannot be read");
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The records of a list that can be read.
    pub(crate) fn all_readable<T>(
        &self,
        records: impl IntoIterator<Item = Result<T>>,
    ) -> Result<Vec<T>> {
        records.into_iter().filter_map(|record| self.readable(record).transpose()).collect()
    }

    /// The time for the scripts: 0 means the server's own.
    pub(crate) fn script_ms(&self) -> u64 {
        self.options.clock.as_ref().map_or(0, ManualClock::now_ms)
    }

    /// Calls a script that may be called twice.
    pub(crate) async fn call<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[impl AsRef<[u8]>],
        args: impl ToRedisArgs,
    ) -> Result<T> {
        let command = script.command(self.script_ms(), keys, args);
        convert(self.connection.run(Some(script), &command, Repeat::Idempotent).await?)
    }

    /// Sends a command that may be sent twice.
    pub(crate) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        convert(self.connection.run(None, command, Repeat::Idempotent).await?)
    }
}

/// Checks the servers' identities from time to time, as long as the store exists.
fn watch_identity(connection: &Arc<Connection>, pause: Duration) {
    let connection = Arc::downgrade(connection);
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
                StoreIdentity(self.connection.servers.borrow().changes)
            }

            fn unreadable_records(&self) -> u64 {
                self.unreadable.load(Ordering::Relaxed)
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
