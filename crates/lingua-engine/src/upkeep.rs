//! Work that is done again and again: presence, clean-up of cells, jobs of dead instances.
//!
//! Start at [`Engine::clean_up`] and [`Engine::announce`]. It does no harm if a round is late or
//! runs twice: the store compares.

use std::sync::atomic::Ordering;

use lingua_core::job::{JobEvent, JobMachine, JobState, Stage};
use lingua_core::planted::{self, Bug};
use lingua_core::{CellId, NodeId};
use lingua_store::Store;
use lingua_store::contract::{
    AdvanceRequest, AnnounceReply, AnnounceRequest, JobRecord, NodeCommand, NodeRecord, Place,
};

use crate::job_spec_codec;
use crate::live_jobs::JobMessage;
use crate::request::JobRequest;
use crate::runner::TakenOver;
use crate::tenant_nodes::Room;
use crate::{Engine, Timer};

/// Leases that are ended in one cell at a time.
const REAP_LIMIT: usize = 256;

/// Jobs that are taken over at a time.
const CLAIM_LIMIT: usize = 256;

/// In every so many rounds an instance cleans up all cells and not only its share of them.
const ALL_CELLS_EVERY: usize = 12;

/// How often places of nodes that are gone are given away.
const ROOM_EVERY_MS: u64 = 1_000;

/// How many places are given away at a time.
const ROOM_NODES: usize = 64;

impl<S: Store, T: Timer> Engine<S, T> {
    /// Ends expired leases, removes the records of nodes that are long gone, and lets the first
    /// waiting job of each pool look for a slot again.
    pub(crate) async fn clean_up(&self) -> lingua_store::Result<()> {
        self.recent_results.expire(self.now_ms());
        self.metrics.held_bytes.of("ended_jobs").set(self.store.ended_bytes() as i64);
        let unreadable = self.store.unreadable_records();
        self.metrics.unreadable_records.inner().store(unreadable, Ordering::Relaxed);
        self.compare_store().await?;
        self.reconcile().await?;
        let cells = self.store.cells().await?;
        for cell in self.own_share(cells) {
            let reaped = self.store.reap(cell, REAP_LIMIT).await?;
            self.leases_lost(reaped.expired.iter().map(|expired| expired.key));
            for lapsed in reaped.lapsed {
                if lapsed.for_ms > self.options.times.node_record_ms {
                    self.remove_node(&lapsed.node, lapsed.place).await?;
                }
            }
        }
        self.refresh_typical();
        self.queue.wake_heads();
        self.show_queue();
        Ok(())
    }

    /// Removes the record of a node that is gone, and frees its place.
    async fn remove_node(&self, node: &NodeId, place: Place) -> lingua_store::Result<()> {
        self.store.release(node, place.epoch).await?;
        self.store.set_state(place, NodeCommand::Retire).await?;
        if self.nodes.get(node).is_some_and(|local| local.place() == place) {
            self.nodes.detach(node, place.epoch);
        }
        Ok(())
    }

    /// No place is left, or none for a token or a tenant: gives away places of the nodes that have
    /// been gone for longest. Says whether there were any. It reads the whole fleet, so it is done
    /// once in [`ROOM_EVERY_MS`], however many nodes ask for a place.
    pub(crate) async fn make_room(&self, of: Room<'_>) -> lingua_store::Result<bool> {
        let (now_ms, before_ms) = (self.now_ms(), self.room_made_ms.load(Ordering::Relaxed));
        let order = Ordering::Relaxed;
        if now_ms.saturating_sub(before_ms) < ROOM_EVERY_MS
            || self.room_made_ms.compare_exchange(before_ms, now_ms, order, order).is_err()
        {
            return Ok(false);
        }
        let (seen, instance) = (self.read_nodes().await?, &self.options.instance);
        self.tenant_nodes.recount(&seen.nodes, instance, now_ms);
        let is_gone =
            |node: &&NodeRecord| node.fresh_until_ms < seen.as_of_ms && of.has(node, instance);
        let mut gone: Vec<&NodeRecord> = seen.nodes.iter().filter(is_gone).collect();
        gone.sort_unstable_by_key(|node| (node.fresh_until_ms, node.place.epoch));
        gone.truncate(ROOM_NODES);
        for node in &gone {
            tracing::info!(node_id = %node.node, "gave the place of a node that is gone away");
            self.remove_node(&node.node, node.place).await?;
            self.tenant_nodes.give_back(node.profile.tenant(), &node.node);
        }
        Ok(!gone.is_empty())
    }

    /// Shows how many jobs wait, and how long the oldest has waited.
    pub(crate) fn show_queue(&self) {
        self.metrics.queue_jobs.set(self.queue.len() as i64);
        let oldest_ms = self.queue.oldest_ms().map(|at_ms| self.now_ms().saturating_sub(at_ms));
        self.metrics.queue_oldest_seconds.set(oldest_ms.unwrap_or(0) as f64 / 1000.0);
    }

    /// The cells that this instance cleans up: its share of them, and now and then all, because two
    /// instances may disagree about who is alive.
    fn own_share(&self, mut cells: Vec<CellId>) -> Vec<CellId> {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed);
        let alive = self.alive.lock();
        let own = alive.iter().position(|known| *known == self.options.instance);
        if let Some(own) = own.filter(|_| !round.is_multiple_of(ALL_CELLS_EVERY)) {
            cells.retain(|cell| cell.index() % alive.len() == own);
        }
        cells
    }

    /// Reads which instances are alive.
    pub(crate) async fn refresh_instances(&self) -> lingua_store::Result<()> {
        let known = self.store.instances().await?;
        self.last_seen.keep_instances(&known, self.now_ms());
        let alive = known.into_iter().filter(|known| known.alive).map(|known| known.instance);
        *self.alive.lock() = alive.collect();
        Ok(())
    }

    pub(crate) fn presence(&self) -> AnnounceRequest {
        AnnounceRequest {
            instance: self.options.instance.clone(),
            incarnation: self.incarnation,
            address: self.options.address.clone(),
            lease_ms: self.options.times.leader_lease_ms,
        }
    }

    /// Notes that another process has this instance's name until then. If it renews the name it is
    /// alive: two cannot go on under one name. If it does not, it is dead, perhaps this instance
    /// before a restart.
    fn note_rival(&self, until_ms: u64) {
        let before_ms = self.rival_until_ms.swap(until_ms, Ordering::Relaxed);
        let instance = &self.options.instance;
        tracing::warn!(%instance, until_ms, "another process has the name of this instance");
        if before_ms > 0 && until_ms > before_ms {
            self.name_lost.set(()).ok();
        }
    }

    /// Waits until a living process with the name of this instance makes it impossible to go on.
    pub async fn name_lost(&self) {
        self.name_lost.wait().await;
    }

    /// Renews this instance's record.
    pub(crate) async fn announce_presence(&self) -> lingua_store::Result<()> {
        let lease_ms = self.options.times.leader_lease_ms;
        match self.store.announce(self.presence()).await? {
            AnnounceReply::Present => self.rival_until_ms.store(0, Ordering::Relaxed),
            AnnounceReply::NameTaken { until_ms } => self.note_rival(until_ms),
        }
        let now_ms = self.now_ms();
        let before_ms = self.present_ms.swap(now_ms, Ordering::Relaxed);
        if before_ms > 0 && now_ms.saturating_sub(before_ms) > lease_ms {
            self.was_away.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Announces this instance and takes over the jobs of dead ones.
    pub(crate) async fn announce(&self) -> lingua_store::Result<()> {
        self.announce_presence().await?;
        self.release_lost_jobs().await?;
        self.refresh_instances().await?;
        if self.is_stopping() {
            return Ok(());
        }
        let now_ms = self.store.now_ms().await?;
        let claimed = self.store.claim_orphans(&self.options.instance, CLAIM_LIMIT).await;
        // Without a reply they may be ours nevertheless.
        let claimed = claimed.inspect_err(|_| self.reconciler.request_scan())?;
        for orphan in claimed {
            self.adopt(orphan, now_ms).await;
        }
        Ok(())
    }

    /// After an absence in which others may have taken this instance for dead: stops the runners of
    /// jobs that others have taken over, so that nodes and clients do not wait for a timer.
    async fn release_lost_jobs(&self) -> lingua_store::Result<()> {
        if !self.was_away.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        for id in self.live.ids() {
            let record = self.store.job(id).await.inspect_err(|_| {
                self.was_away.store(true, Ordering::Relaxed);
            })?;
            if record.is_some_and(|record| record.owner != self.options.instance)
                && let Some(live) = self.live.get(id)
            {
                live.send(JobMessage::NotOwner).ok();
            }
        }
        Ok(())
    }

    /// Continues a job of a dead instance, or ends it if its input died too. `now_ms` is the
    /// store's time, because the record's age must not depend on another clock.
    pub(crate) async fn adopt(&self, record: JobRecord, now_ms: u64) {
        if self.restore_end_of(record.id).await {
            return;
        }
        let spec = match job_spec_codec::decode(&record.spec) {
            Ok(spec) => spec,
            Err(error) => {
                tracing::error!(job_id = %record.id, %error, "cannot take over the job");
                return self.fail_unreadable(record).await;
            }
        };
        let recoverable = record.recoverable;
        tracing::info!(job_id = %record.id, recoverable, "took over a job");
        let event = if recoverable { JobEvent::Reclaimed } else { JobEvent::InstanceLost };
        let taken_over = TakenOver::new(event, &record);
        let job = JobMachine::recovered(record.stage, record.grant);
        let age_ms = now_ms.saturating_sub(record.created_ms);
        let accepted_ms = match planted::is(Bug::AgeFromTwoClocks) {
            false => self.now_ms().saturating_sub(age_ms),
            true => record.created_ms.min(self.now_ms()),
        };
        self.start(JobRequest::new(record.id, spec), job, accepted_ms, Some(taken_over));
    }

    /// Ends a job whose spec cannot be read.
    async fn fail_unreadable(&self, record: JobRecord) {
        let to = Stage { state: JobState::Failed, ..record.stage };
        let (id, owner) = (record.id, self.options.instance.clone());
        let token = self.random_u64();
        if let Ok(step) = AdvanceRequest::new(id, owner, record.stage, to, token) {
            self.store.advance_job(step).await.ok();
        }
    }
}
