//! Follows the store's change feed: nodes, leaders, pool tables.
//!
//! Start at [`Engine::follow_changes`]. After a gap or an error everything is loaded again.

use std::sync::Arc;

use lingua_core::planted::{self, Bug};
use lingua_store::Store;
use lingua_store::contract::Change;

use crate::events::EngineEvent;
use crate::table::PoolTable;
use crate::{Engine, Timer};

/// Changes that are read at a time.
const FEED_LIMIT: usize = 256;

/// Pause after the store did not answer.
const PAUSE_MS: u64 = 500;

impl<S: Store, T: Timer> Engine<S, T> {
    /// Follows the change feed for ever.
    pub(crate) async fn follow_changes(&self) {
        let mut after = None;
        loop {
            let read = match after {
                None => self.load_all().await.map(Some),
                Some(from) => self.read_changes(from).await,
            };
            after = match read {
                Ok(next) => next,
                Err(error) => {
                    self.metrics.store_up.set(0);
                    self.log_store_down(&error, "change feed");
                    self.timer.sleep(PAUSE_MS).await;
                    // After a failover the numbers mean something else.
                    None
                }
            };
        }
    }

    /// Handles the changes after this number. Returns the number to go on from; `None` if changes
    /// are missing.
    async fn read_changes(&self, from: u64) -> lingua_store::Result<Option<u64>> {
        let changes = self.store.changes(from, FEED_LIMIT).await?;
        if changes.gap {
            return Ok(None);
        }
        for change in changes.changes {
            self.on_change(change).await;
        }
        Ok(Some(changes.next))
    }

    async fn load_all(&self) -> lingua_store::Result<u64> {
        let head = self.store.feed_head().await?;
        self.routes.reset(self.store.cells().await?);
        self.load_table().await?;
        self.table_changed.notify_one();
        Ok(head)
    }

    pub(crate) async fn load_table(&self) -> lingua_store::Result<()> {
        let Some(published) = self.store.table().await? else { return Ok(()) };
        let mut table = match PoolTable::decode(&published.table) {
            Ok(table) => table,
            Err(error) => {
                tracing::error!(%error, "cannot read the pool table");
                return Ok(());
            }
        };
        (table.term, table.version) = (published.term.0, published.version);
        let age = |table: &PoolTable| (table.term, table.version);
        let current = self.table.lock().as_deref().map(age);
        if current > Some(age(&table)) && !planted::is(Bug::OldTableReplacesNew) {
            // The store lost its last writes: the leader will publish anew.
            return Ok(());
        }
        let lag_ms = self.now_ms().saturating_sub(published.published_ms);
        self.metrics.show_pools(&table);
        self.metrics.table_lag_seconds.set(lag_ms as f64 / 1000.0);
        self.metrics.table_version.set(published.version as i64);
        *self.table.lock() = Some(Arc::new(table));
        self.refresh_typical();
        Ok(())
    }

    async fn on_change(&self, change: Change) {
        match change {
            Change::Node { cell, node, epoch, .. } => {
                self.nodes.supersede(&node, epoch);
                self.queue.wake_heads();
                self.routes.changed(cell);
                self.table_changed.notify_one();
                self.publish(|| EngineEvent::Node { node, epoch });
            }
            Change::Leader(term) => {
                self.metrics.leader_changes.inc();
                self.publish(|| EngineEvent::Leader { term });
            }
            Change::Table(version) => {
                self.load_table().await.ok();
                self.publish(|| EngineEvent::Pools { version });
            }
            Change::Instance(_) => {}
        }
    }
}
