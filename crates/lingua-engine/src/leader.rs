//! Leadership: the leader makes the pool table from the cells and publishes it.
//!
//! Start at [`Handle::lead`].

use lingua_core::Term;
use lingua_core::planted::{self, Bug};
use lingua_store::Store;
use lingua_store::contract::{ElectReply, ElectRequest, PublishReply, PublishRequest};

use crate::clock::Timer;
use crate::handle::Handle;
use crate::table;

impl<S: Store, T: Timer> Handle<S, T> {
    /// Renews the leadership, or takes it if there is no leader; the leader publishes the table if
    /// it has changed.
    pub(crate) async fn lead(&self) -> lingua_store::Result<()> {
        let shared = &self.shared;
        let Some(term) = self.elect().await? else { return Ok(()) };
        let mut table =
            table::make(&self.cells().await?, shared.options.rules.semantic, shared.options.pools);
        shared.metrics.show_fleet(&table);
        table.generated_by = shared.options.instance.to_string();
        let before = shared.table.lock().clone();
        if before.is_some_and(|before| before.term == term.0 && before.shows_same(&table)) {
            return Ok(());
        }
        table.generated_ms = shared.now_ms();
        let replaces = shared.store.table().await?.map_or(0, |table| table.version);
        let Ok(json) = serde_json::to_vec(&table) else { return Ok(()) };
        let instance = shared.options.instance.clone();
        let publish = PublishRequest { instance, term, replaces, table: json.into() };
        if let PublishReply::Published(version) = shared.store.publish(publish).await? {
            tracing::debug!(version, term = term.0, "published the pool table");
        }
        Ok(())
    }

    /// The term that this instance leads in; `None` if another instance leads.
    async fn elect(&self) -> lingua_store::Result<Option<Term>> {
        let shared = &self.shared;
        let candidate = ElectRequest {
            instance: shared.options.instance.clone(),
            incarnation: shared.incarnation,
            lease_ms: shared.options.times.leader_lease_ms,
        };
        let led = *shared.led.lock();
        let mut election = match led.filter(|_| planted::is(Bug::LeaderWithoutTerm)) {
            Some((term, _)) => ElectReply::Leading { term, until_ms: 0 },
            None => shared.store.elect(candidate.clone()).await?,
        };
        if let ElectReply::Leading { term, .. } = election
            && self.is_from_other_store(term)
        {
            // The store may have lost versions; a new term puts them above those that were seen.
            shared.store.resign(&candidate.instance, term).await?;
            election = shared.store.elect(candidate).await?;
        }
        let term = match election {
            ElectReply::Leading { term, .. } => Some(term),
            _ => None,
        };
        shared.metrics.leader.set(i64::from(term.is_some()));
        if let Some(term) = term {
            self.is_from_other_store(term);
        }
        Ok(term)
    }

    /// Whether this term began before the store's last failover; remembers a term that is new.
    fn is_from_other_store(&self, term: Term) -> bool {
        let identity = self.shared.store.identity();
        let mut led = self.shared.led.lock();
        match *led {
            Some((known, began_in)) if known == term => began_in != identity,
            _ => {
                *led = Some((term, identity));
                false
            }
        }
    }
}
