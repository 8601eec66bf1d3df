//! The background work of an instance, from start to stop.

use std::future::Future;

use lingua_core::Term;
use lingua_store::Store;
use prometheus_client::registry::Registry;

use crate::clock::Timer;
use crate::handle::Handle;
use crate::metrics::EngineMetrics;
use crate::node::ToNode;
use crate::options::EngineOptions;
use crate::state::EngineState;

/// How often the others are asked to say what happens there, while somebody watches here.
const INTEREST_EVERY_MS: u64 = 1_000;

/// An instance that is ready to run.
#[derive(Debug)]
pub struct EngineService<S, T> {
    handle: Handle<S, T>,
}

impl<S: Store, T: Timer> EngineService<S, T> {
    /// Makes an instance; its metrics go into the registry.
    pub fn new(options: EngineOptions, store: S, timer: T, registry: &mut Registry) -> Self {
        let metrics = EngineMetrics::new(registry);
        let shared = EngineState::new(options, store, timer, metrics);
        Self { handle: Handle { shared: shared.into() } }
    }

    /// What the edge calls.
    pub fn handle(&self) -> Handle<S, T> {
        self.handle.clone()
    }

    /// Does the background work until `shutdown`, then lets running jobs end (as long as the options
    /// allow), tells the nodes, and leaves.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) {
        let handle = &self.handle;
        self.recover().await;
        // Biased, here and elsewhere: which branch comes first must not be tokio's own luck, or no
        // simulation could repeat what it found.
        let working = async {
            tokio::select! {
                biased;
                () = shutdown => {}
                () = handle.follow() => {}
                () = self.upkeep() => {}
                () = self.leading() => {}
                () = self.interest() => {}
            }
            self.leave().await;
        };
        // Whoever leaves still has jobs on nodes of others, and nodes with jobs of others.
        tokio::select! {
            biased;
            () = working => {}
            () = self.presence() => {}
            () = handle.listen() => {}
            () = handle.shared.tell_strays() => {}
        }
    }

    /// Takes up the jobs that a former life of this instance left behind.
    async fn recover(&self) {
        let shared = &self.handle.shared;
        if let Err(error) = self.handle.resume_own_jobs().await {
            tracing::warn!(%error, "cannot look for jobs left behind; will look again");
            shared.reconciler.request_scan();
        }
        shared.set_recovered();
    }

    async fn presence(&self) {
        self.every(self.handle.shared.options.times.leader_renew_ms, "presence", || {
            self.handle.announce()
        })
        .await;
    }

    async fn interest(&self) {
        loop {
            self.handle.show_interest();
            self.handle.shared.timer.sleep(INTEREST_EVERY_MS).await;
        }
    }

    async fn upkeep(&self) {
        self.every(self.handle.shared.options.times.upkeep_ms, "clean-up", || {
            self.handle.clean_up()
        })
        .await;
    }

    async fn every<F: Future<Output = lingua_store::Result<()>>>(
        &self,
        ms: u64,
        what: &'static str,
        work: impl Fn() -> F,
    ) {
        let shared = &self.handle.shared;
        loop {
            if let Err(error) = work().await {
                shared.metrics.store_up.set(0);
                tracing::warn!(%error, what, "the store did not answer");
            } else {
                shared.metrics.store_up.set(1);
            }
            shared.timer.sleep(ms).await;
        }
    }

    /// Renews the leadership, and makes the table anew soon after something changed.
    async fn leading(&self) {
        let shared = &self.handle.shared;
        let times = shared.options.times;
        loop {
            if let Err(error) = self.handle.lead().await {
                tracing::warn!(%error, what = "leading", "the store did not answer");
            }
            tokio::select! {
                biased;
                () = shared.timer.sleep(times.leader_renew_ms) => {}
                () = shared.table_bell.notified() => shared.timer.sleep(times.table_ms).await,
            }
        }
    }

    async fn leave(&self) {
        let shared = &self.handle.shared;
        shared.stop();
        shared.nodes.send_all(&ToNode::Drain);
        tracing::info!(open_jobs = shared.live.len(), "stopping");
        let all_ended = async {
            loop {
                let ended = shared.ended_bell.notified();
                if shared.live.len() == 0 {
                    return;
                }
                ended.await;
            }
        };
        tokio::select! {
            biased;
            () = all_ended => {}
            () = shared.timer.sleep(shared.options.times.drain_ms) => {
                tracing::warn!(open_jobs = shared.live.len(), "stopping with open jobs");
            }
        }
        let instance = &shared.options.instance;
        let term = match shared.store.table().await {
            Ok(Some(table)) => table.term,
            _ => Term(0),
        };
        shared.store.resign(instance, term).await.ok();
        shared.store.withdraw(instance, shared.incarnation).await.ok();
    }
}
