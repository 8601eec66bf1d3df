//! What has to be done again and again: presence, clean-up, orphans, the leader's table.
//!
//! Each loop is harmless if it is late or runs twice: the store compares.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lingua_core::job::{JobEvent, JobMachine, JobState, Stage};
use lingua_core::planted::{self, Bug};
use lingua_core::{CellId, Term};
use lingua_store::Store;
use lingua_store::contract::{
    AdvanceRequest, AnnounceRequest, Change, ElectReply, ElectRequest, JobRecord, NodeCommand,
    PublishReply, PublishRequest,
};

use crate::clock::Timer;
use crate::events;
use crate::handle::Handle;
use crate::job_spec_codec;
use crate::live_jobs::JobMessage;
use crate::request::JobRequest;
use crate::table::{self, PoolTable};

/// Leases ended in one cell at a time.
const REAP_LIMIT: usize = 256;

/// Orphans taken over at a time.
const CLAIM_LIMIT: usize = 256;

/// How often an instance cleans up all cells and not only its share of them.
const ALL_CELLS_EVERY: usize = 12;

/// Changes read from the feed at a time.
const FEED_LIMIT: usize = 256;

/// How long to wait after the store did not answer.
const PAUSE_MS: u64 = 500;

impl<S: Store, T: Timer> Handle<S, T> {
    /// Ends what is over and lets the first of each line look again.
    pub(crate) async fn clean_up(&self) -> lingua_store::Result<()> {
        let shared = &self.shared;
        shared.compare_store().await?;
        self.reconcile().await?;
        let cells = shared.store.cells().await?;
        for cell in self.my_share(cells) {
            let reaped = shared.store.reap(cell, REAP_LIMIT).await?;
            shared.leases_lost(reaped.expired.iter().map(|expired| expired.key));
            for lapsed in reaped.lapsed {
                if lapsed.for_ms > shared.options.times.node_record_ms {
                    shared.store.release(&lapsed.node, lapsed.place.epoch).await?;
                    shared.store.set_state(lapsed.place, NodeCommand::Retire).await?;
                    shared.nodes.detach(&lapsed.node, lapsed.place.epoch);
                }
            }
        }
        shared.queue.wake_heads();
        shared.metrics.queue_jobs.set(shared.queue.len() as i64);
        Ok(())
    }

    /// The cells that this instance is to clean up: its share of them, and now and then all, because the shares of
    /// two instances may be of different times.
    fn my_share(&self, mut cells: Vec<CellId>) -> Vec<CellId> {
        let round = self.shared.rounds.fetch_add(1, Ordering::Relaxed);
        let alive = self.shared.alive.lock();
        let me = alive.iter().position(|known| *known == self.shared.options.instance);
        if let Some(me) = me.filter(|_| !round.is_multiple_of(ALL_CELLS_EVERY)) {
            cells.retain(|cell| cell.index() % alive.len() == me);
        }
        cells
    }

    /// Looks who is there.
    pub(crate) async fn refresh_instances(&self) -> lingua_store::Result<()> {
        let known = self.shared.store.instances().await?;
        let alive = known.into_iter().filter(|known| known.alive).map(|known| known.instance);
        *self.shared.alive.lock() = alive.collect();
        Ok(())
    }

    /// Says that this instance is there.
    pub(crate) async fn announce_presence(&self) -> lingua_store::Result<()> {
        let shared = &self.shared;
        let presence = AnnounceRequest {
            instance: shared.options.instance.clone(),
            incarnation: shared.incarnation,
            address: shared.options.address.clone(),
            lease_ms: shared.options.times.leader_lease_ms,
        };
        shared.store.announce(presence).await?;
        let now_ms = shared.now_ms();
        let before_ms = shared.present_ms.swap(now_ms, Ordering::Relaxed);
        if before_ms > 0 && now_ms.saturating_sub(before_ms) > shared.options.times.leader_lease_ms
        {
            shared.was_away.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// After an absence that was long enough to be taken for dead: lets go of jobs that others have taken over. Their nodes and
    /// clients must not be kept waiting until a timer rings.
    async fn return_from_absence(&self) -> lingua_store::Result<()> {
        let shared = &self.shared;
        if !shared.was_away.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        for id in shared.live.ids() {
            let record = shared.store.job(id).await.inspect_err(|_| {
                shared.was_away.store(true, Ordering::Relaxed);
            })?;
            if record.is_some_and(|record| record.owner != shared.options.instance)
                && let Some(live) = shared.live.get(id)
            {
                live.send(JobMessage::NotOwner).ok();
            }
        }
        Ok(())
    }

    pub(crate) async fn announce(&self) -> lingua_store::Result<()> {
        let shared = &self.shared;
        self.announce_presence().await?;
        self.return_from_absence().await?;
        self.refresh_instances().await?;
        if shared.is_stopping() {
            return Ok(());
        }
        let now_ms = shared.store.now_ms().await?;
        let claimed = shared.store.claim_orphans(&shared.options.instance, CLAIM_LIMIT).await;
        if claimed.is_err() {
            // They may be ours by now.
            shared.reconciler.request_scan();
        }
        for orphan in claimed? {
            self.adopt(orphan, now_ms).await;
        }
        Ok(())
    }

    /// Goes on with a job of a dead instance, or ends it if what it needs died too.
    /// `now_ms` is the store's time: its records' ages must not be told by another clock.
    pub(crate) async fn adopt(&self, record: JobRecord, now_ms: u64) {
        if self.is_restored(record.id).await {
            return;
        }
        let spec = match job_spec_codec::decode(&record.spec) {
            Ok(spec) => spec,
            Err(error) => {
                tracing::error!(job_id = %record.id, %error, "cannot take over the job");
                self.bury(record).await;
                return;
            }
        };
        let recoverable = record.recoverable;
        tracing::info!(job_id = %record.id, recoverable, "took over a job");
        let event = if recoverable { JobEvent::Reclaimed } else { JobEvent::InstanceLost };
        let job = JobMachine::recovered(record.stage, record.grant);
        let age_ms = now_ms.saturating_sub(record.created_ms);
        let accepted_ms = match planted::is(Bug::AgeFromTwoClocks) {
            false => self.shared.now_ms().saturating_sub(age_ms),
            true => record.created_ms.min(self.shared.now_ms()),
        };
        self.start(JobRequest::new(record.id, spec), job, accepted_ms, Some(event));
    }

    /// Ends a job that nobody can go on with.
    async fn bury(&self, record: JobRecord) {
        let to = Stage { state: JobState::Failed, ..record.stage };
        let (id, owner) = (record.id, self.shared.options.instance.clone());
        let token = self.shared.random_u64();
        if let Ok(step) = AdvanceRequest::new(id, owner, record.stage, to, token) {
            self.shared.store.advance_job(step).await.ok();
        }
    }

    /// Leads if nobody does, and publishes what changed.
    pub(crate) async fn lead(&self) -> lingua_store::Result<()> {
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
            && self.led_another_store(term)
        {
            // Versions may have gone back with the store; a new term puts them above those that were seen.
            shared.store.resign(&candidate.instance, term).await?;
            election = shared.store.elect(candidate).await?;
        }
        shared.metrics.leader.set(i64::from(matches!(election, ElectReply::Leading { .. })));
        let ElectReply::Leading { term, .. } = election else { return Ok(()) };
        self.led_another_store(term);
        let mut views = vec![];
        for cell in shared.store.cells().await? {
            views.push(shared.store.view(cell).await?);
        }
        let mut table = table::make(&views, shared.options.rules.semantic, shared.options.pools);
        self.show(&table);
        let before = shared.table.lock().clone();
        table.generated_by = shared.options.instance.to_string();
        if before.is_some_and(|before| before.term == term.0 && same_pools(&before, &table)) {
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

    /// Whether this term began in another life of the store; notes a term that is new.
    fn led_another_store(&self, term: Term) -> bool {
        let identity = self.shared.store.identity();
        let mut led = self.shared.led.lock();
        match *led {
            Some((known, of)) if known == term => of != identity,
            _ => {
                *led = Some((term, identity));
                false
            }
        }
    }

    fn show(&self, table: &PoolTable) {
        let metrics = &self.shared.metrics;
        for state in ["registering", "ready", "degraded", "draining", "offline", "stale"] {
            let count = table.nodes.get(state).copied().unwrap_or(0);
            metrics.nodes.get_or_create(&[("state", state)]).set(count.into());
        }
        metrics.used_slots.set(table.used.into());
        metrics.max_slots.set(table.slots.into());
    }

    /// One gauge for each pool of the table; pools that are gone from it go.
    fn show_pools(&self, table: &PoolTable) {
        let gauges = &self.shared.metrics.pool_nodes;
        gauges.clear();
        for pool in &table.pools {
            for (state, count) in [("all", pool.nodes), ("ready", pool.ready)] {
                let labels = vec![("pair", pool.pair.clone()), ("state", state.to_owned())];
                gauges.get_or_create(&labels).set(count.into());
            }
        }
    }

    /// Follows the change feed for ever.
    pub(crate) async fn follow(&self) {
        let shared = &self.shared;
        let mut after = None;
        loop {
            let read = match after {
                None => self.load_all().await.map(|head| after = Some(head)),
                Some(from) => match shared.store.changes(from, FEED_LIMIT).await {
                    Ok(changes) if changes.gap => {
                        after = None;
                        Ok(())
                    }
                    Ok(changes) => {
                        after = Some(changes.next);
                        for change in changes.changes {
                            self.hear_change(change).await;
                        }
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
            };
            if let Err(error) = read {
                shared.metrics.store_up.set(0);
                tracing::warn!(%error, "the change feed cannot be read");
                // It may be another store by then, whose numbers mean something else.
                after = None;
                shared.timer.sleep(PAUSE_MS).await;
            }
        }
    }

    async fn load_all(&self) -> lingua_store::Result<u64> {
        let head = self.shared.store.feed_head().await?;
        self.shared.routes.forget(self.shared.store.cells().await?);
        self.load_table().await?;
        self.shared.table_bell.notify_one();
        Ok(head)
    }

    async fn load_table(&self) -> lingua_store::Result<()> {
        let Some(published) = self.shared.store.table().await? else { return Ok(()) };
        match serde_json::from_slice::<PoolTable>(&published.table) {
            Ok(mut table) => {
                (table.term, table.version) = (published.term.0, published.version);
                let at = |table: &PoolTable| (table.term, table.version);
                let held = self.shared.table.lock().as_ref().map(|held| at(held));
                if held > Some(at(&table)) && !planted::is(Bug::OldTableReplacesNew) {
                    // A store that forgot its last writes: the leader will publish anew.
                    return Ok(());
                }
                self.show_pools(&table);
                let lag_ms = self.shared.now_ms().saturating_sub(published.published_ms);
                self.shared.metrics.table_lag_seconds.set(lag_ms as f64 / 1000.0);
                *self.shared.table.lock() = Some(Arc::new(table));
                self.shared.metrics.table_version.set(published.version as i64);
            }
            Err(error) => tracing::error!(%error, "the pool table cannot be read"),
        }
        Ok(())
    }

    async fn hear_change(&self, change: Change) {
        let shared = &self.shared;
        match change {
            Change::Node { cell, node, epoch, .. } => {
                shared.nodes.supersede(&node, epoch);
                shared.queue.wake_heads();
                shared.routes.changed(cell);
                shared.table_bell.notify_one();
                shared.publish(|| events::EngineEvent::Node { node, epoch });
            }
            Change::Leader(term) => {
                shared.metrics.leader_changes.inc();
                shared.publish(|| events::EngineEvent::Leader { term });
            }
            Change::Table(version) => {
                self.load_table().await.ok();
                shared.publish(|| events::EngineEvent::Pools { version });
            }
            Change::Instance(_) => {}
        }
    }
}

fn same_pools(a: &PoolTable, b: &PoolTable) -> bool {
    (&a.pools, &a.nodes, &a.generated_by, a.left_out)
        == (&b.pools, &b.nodes, &b.generated_by, b.left_out)
}
