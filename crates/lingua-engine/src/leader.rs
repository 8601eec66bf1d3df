//! Leadership: the leader makes the pool table from the cells and publishes it.
//!
//! Start at [`Engine::lead`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lingua_core::Term;
use lingua_core::planted::{self, Bug};
use lingua_store::Store;
use lingua_store::contract::{ElectReply, ElectRequest, PublishReply, PublishRequest};

use crate::last_seen::SeenNodes;
use crate::table;
use crate::{Engine, Timer};

/// A large table is made again after so many times the time that it took: a tenth of a processor
/// at most.
const TABLE_PAUSE: u64 = 10;

impl<S: Store, T: Timer> Engine<S, T> {
    /// Renews the leadership, or takes it if there is no leader; the leader publishes the table if
    /// it has changed.
    pub(crate) async fn lead(&self) -> lingua_store::Result<()> {
        let Some(term) = self.elect().await? else { return Ok(()) };
        let wait_ms = self.table_due_ms.load(Ordering::Relaxed).saturating_sub(self.now_ms());
        if wait_ms > 0 {
            self.timer.sleep(wait_ms.min(self.options.times.leader_renew_ms)).await;
            if self.now_ms() < self.table_due_ms.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        let cells = self.cells().await?;
        let (rules, pools) = (self.options.rules, self.options.pools);
        let (before, now_ms) = (self.table.lock().clone(), self.now_ms());
        let is_large = table::is_large(&cells);
        let last = before.clone();
        let make = move || (table::make(&cells, rules, pools, last.as_deref(), now_ms), cells);
        let (mut table, cells) = match is_large {
            false => make(),
            // The thread that serves connections must not stand still meanwhile.
            true => match tokio::task::spawn_blocking(make).await {
                Ok(made) => made,
                Err(error) => {
                    tracing::error!(%error, "cannot make the pool table");
                    return Ok(());
                }
            },
        };
        let took_ms = self.now_ms().saturating_sub(now_ms);
        let pause_ms = took_ms.saturating_mul(TABLE_PAUSE);
        self.table_due_ms.store(self.now_ms().saturating_add(pause_ms), Ordering::Relaxed);
        self.last_seen.keep_nodes(&Arc::new(SeenNodes::of(cells, now_ms)));
        self.metrics.show_fleet(&table);
        table.generated_by = self.options.instance.to_string();
        if before.is_some_and(|before| before.term == term.0 && before.shows_same(&table)) {
            return Ok(());
        }
        table.generated_ms = now_ms;
        let replaces = self.store.table().await?.map_or(0, |table| table.version);
        let instance = self.options.instance.clone();
        let publish = PublishRequest { instance, term, replaces, table: table.encode().into() };
        if let PublishReply::Published(version) = self.store.publish(publish).await? {
            tracing::debug!(version, term = term.0, "published the pool table");
        }
        Ok(())
    }

    /// The term that this instance leads in; `None` if another instance leads.
    async fn elect(&self) -> lingua_store::Result<Option<Term>> {
        let candidate = ElectRequest {
            instance: self.options.instance.clone(),
            incarnation: self.incarnation,
            lease_ms: self.options.times.leader_lease_ms,
        };
        let led = *self.led.lock();
        let mut election = match led.filter(|_| planted::is(Bug::LeaderWithoutTerm)) {
            Some((term, _)) => ElectReply::Leading { term, until_ms: 0 },
            None => self.store.elect(candidate.clone()).await?,
        };
        if let ElectReply::Leading { term, .. } = election
            && self.is_from_other_store(term)
        {
            // The store may have lost versions; a new term puts them above those that were seen.
            self.store.resign(&candidate.instance, term).await?;
            election = self.store.elect(candidate).await?;
        }
        let term = match election {
            ElectReply::Leading { term, .. } => Some(term),
            _ => None,
        };
        self.metrics.leader.set(i64::from(term.is_some()));
        if let Some(term) = term {
            self.is_from_other_store(term);
        }
        Ok(term)
    }

    /// Whether this term began before the store's last failover; remembers a term that is new.
    fn is_from_other_store(&self, term: Term) -> bool {
        let identity = self.store.identity();
        let mut led = self.led.lock();
        match *led {
            Some((known, began_in)) if known == term => began_in != identity,
            _ => {
                *led = Some((term, identity));
                false
            }
        }
    }
}
