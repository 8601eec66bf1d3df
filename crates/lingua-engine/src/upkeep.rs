//! Work that is done again and again: presence, clean-up of cells, jobs of dead instances.
//!
//! Start at [`Handle::clean_up`] and [`Handle::announce`]. It does no harm if a round is late or
//! runs twice: the store compares.

use std::sync::atomic::Ordering;

use lingua_core::CellId;
use lingua_core::job::{JobEvent, JobMachine, JobState, Stage};
use lingua_core::planted::{self, Bug};
use lingua_store::Store;
use lingua_store::contract::{AdvanceRequest, AnnounceRequest, JobRecord, NodeCommand};

use crate::clock::Timer;
use crate::handle::Handle;
use crate::job_spec_codec;
use crate::live_jobs::JobMessage;
use crate::request::JobRequest;

/// Leases that are ended in one cell at a time.
const REAP_LIMIT: usize = 256;

/// Jobs that are taken over at a time.
const CLAIM_LIMIT: usize = 256;

/// In every so many rounds an instance cleans up all cells and not only its share of them.
const ALL_CELLS_EVERY: usize = 12;

impl<S: Store, T: Timer> Handle<S, T> {
    /// Ends expired leases, removes the records of nodes that are long gone, and lets the first
    /// waiting job of each pool look for a slot again.
    pub(crate) async fn clean_up(&self) -> lingua_store::Result<()> {
        let shared = &self.shared;
        shared.compare_store().await?;
        self.reconcile().await?;
        let cells = shared.store.cells().await?;
        for cell in self.own_share(cells) {
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

    /// The cells that this instance cleans up: its share of them, and now and then all, because two
    /// instances may disagree about who is alive.
    fn own_share(&self, mut cells: Vec<CellId>) -> Vec<CellId> {
        let round = self.shared.rounds.fetch_add(1, Ordering::Relaxed);
        let alive = self.shared.alive.lock();
        let own = alive.iter().position(|known| *known == self.shared.options.instance);
        if let Some(own) = own.filter(|_| !round.is_multiple_of(ALL_CELLS_EVERY)) {
            cells.retain(|cell| cell.index() % alive.len() == own);
        }
        cells
    }

    /// Reads which instances are alive.
    pub(crate) async fn refresh_instances(&self) -> lingua_store::Result<()> {
        let known = self.shared.store.instances().await?;
        let alive = known.into_iter().filter(|known| known.alive).map(|known| known.instance);
        *self.shared.alive.lock() = alive.collect();
        Ok(())
    }

    /// Renews this instance's record.
    pub(crate) async fn announce_presence(&self) -> lingua_store::Result<()> {
        let shared = &self.shared;
        let lease_ms = shared.options.times.leader_lease_ms;
        let presence = AnnounceRequest {
            instance: shared.options.instance.clone(),
            incarnation: shared.incarnation,
            address: shared.options.address.clone(),
            lease_ms,
        };
        shared.store.announce(presence).await?;
        let now_ms = shared.now_ms();
        let before_ms = shared.present_ms.swap(now_ms, Ordering::Relaxed);
        if before_ms > 0 && now_ms.saturating_sub(before_ms) > lease_ms {
            shared.was_away.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Announces this instance and takes over the jobs of dead ones.
    pub(crate) async fn announce(&self) -> lingua_store::Result<()> {
        let shared = &self.shared;
        self.announce_presence().await?;
        self.release_lost_jobs().await?;
        self.refresh_instances().await?;
        if shared.is_stopping() {
            return Ok(());
        }
        let now_ms = shared.store.now_ms().await?;
        let claimed = shared.store.claim_orphans(&shared.options.instance, CLAIM_LIMIT).await;
        // Without a reply they may be ours nevertheless.
        let claimed = claimed.inspect_err(|_| shared.reconciler.request_scan())?;
        for orphan in claimed {
            self.adopt(orphan, now_ms).await;
        }
        Ok(())
    }

    /// After an absence in which others may have taken this instance for dead: stops the runners of
    /// jobs that others have taken over, so that nodes and clients do not wait for a timer.
    async fn release_lost_jobs(&self) -> lingua_store::Result<()> {
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
        let job = JobMachine::recovered(record.stage, record.grant);
        let age_ms = now_ms.saturating_sub(record.created_ms);
        let accepted_ms = match planted::is(Bug::AgeFromTwoClocks) {
            false => self.shared.now_ms().saturating_sub(age_ms),
            true => record.created_ms.min(self.shared.now_ms()),
        };
        self.start(JobRequest::new(record.id, spec), job, accepted_ms, Some(event));
    }

    /// Ends a job whose spec cannot be read.
    async fn fail_unreadable(&self, record: JobRecord) {
        let to = Stage { state: JobState::Failed, ..record.stage };
        let (id, owner) = (record.id, self.shared.options.instance.clone());
        let token = self.shared.random_u64();
        if let Ok(step) = AdvanceRequest::new(id, owner, record.stage, to, token) {
            self.shared.store.advance_job(step).await.ok();
        }
    }
}
