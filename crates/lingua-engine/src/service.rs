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

/// How often the subscription to the events of other instances is renewed.
const SUBSCRIBE_EVERY_MS: u64 = 1_000;

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

    /// The handle that the server calls.
    pub fn handle(&self) -> Handle<S, T> {
        self.handle.clone()
    }

    /// Does the background work until `shutdown`. Then waits for the running jobs, at most as long
    /// as the options allow, and withdraws the instance.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) {
        let handle = &self.handle;
        self.recover().await;
        // Biased, here and elsewhere: tokio would choose the branch at random, and no simulation
        // could repeat a run.
        let working = async {
            tokio::select! {
                biased;
                () = shutdown => {}
                () = handle.follow_changes() => {}
                () = self.upkeep() => {}
                () = self.leading() => {}
                () = self.subscribe() => {}
            }
            self.leave().await;
        };
        // An instance that leaves still has jobs on nodes of others, and nodes with jobs of others.
        tokio::select! {
            biased;
            () = working => {}
            () = self.presence() => {}
            () = handle.receive_messages() => {}
            () = handle.shared.report_lost_leases() => {}
        }
    }

    /// Resumes the jobs of an earlier incarnation of this instance.
    async fn recover(&self) {
        let shared = &self.handle.shared;
        if let Err(error) = self.handle.resume_own_jobs().await {
            tracing::warn!(%error, "cannot look for jobs of the last run; trying again later");
            shared.reconciler.request_scan();
        }
        shared.set_recovered();
    }

    async fn presence(&self) {
        let every_ms = self.handle.shared.options.times.leader_renew_ms;
        self.repeat(every_ms, "presence", || self.handle.announce()).await;
    }

    async fn subscribe(&self) {
        loop {
            self.handle.subscribe_elsewhere();
            self.handle.shared.timer.sleep(SUBSCRIBE_EVERY_MS).await;
        }
    }

    async fn upkeep(&self) {
        let every_ms = self.handle.shared.options.times.upkeep_ms;
        self.repeat(every_ms, "clean-up", || self.handle.clean_up()).await;
    }

    async fn repeat<F: Future<Output = lingua_store::Result<()>>>(
        &self,
        every_ms: u64,
        task: &'static str,
        run: impl Fn() -> F,
    ) {
        let shared = &self.handle.shared;
        loop {
            let done = run().await;
            shared.metrics.store_up.set(i64::from(done.is_ok()));
            if let Err(error) = done {
                tracing::warn!(%error, task, "the store did not answer");
            }
            shared.timer.sleep(every_ms).await;
        }
    }

    /// Renews the leadership, and makes the pool table anew soon after a change.
    async fn leading(&self) {
        let shared = &self.handle.shared;
        let times = shared.options.times;
        loop {
            if let Err(error) = self.handle.lead().await {
                tracing::warn!(%error, task = "leading", "the store did not answer");
            }
            tokio::select! {
                biased;
                () = shared.timer.sleep(times.leader_renew_ms) => {}
                () = shared.table_changed.notified() => shared.timer.sleep(times.table_ms).await,
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
                let ended = shared.job_ended.notified();
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
