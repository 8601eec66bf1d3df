//! The background work of an instance, from start to stop.

use std::future::Future;
use std::sync::atomic::Ordering;

use lingua_core::Term;
use lingua_store::Store;
use prometheus_client::registry::Registry;

use crate::metrics::EngineMetrics;
use crate::node::ToNode;
use crate::{Engine, EngineOptions, Handle, Timer};

/// An instance that is ready to run.
#[derive(Debug)]
pub struct EngineService<S, T> {
    engine: Handle<S, T>,
}

impl<S: Store, T: Timer> EngineService<S, T> {
    /// Makes an instance; its metrics go into the registry.
    pub fn new(options: EngineOptions, store: S, timer: T, registry: &mut Registry) -> Self {
        let metrics = EngineMetrics::new(registry);
        Self { engine: Engine::new(options, store, timer, metrics) }
    }

    /// The handle that the server calls.
    pub fn handle(&self) -> Handle<S, T> {
        self.engine.clone()
    }

    /// Does the background work until `shutdown`. Then waits for the running jobs, at most as long
    /// as the options allow, and withdraws the instance.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) {
        let (engine, times) = (&self.engine, self.engine.options.times);
        self.recover().await;
        // Biased, here and elsewhere: tokio would choose the branch at random, and no simulation
        // could repeat a run.
        let working = async {
            tokio::select! {
                biased;
                () = shutdown => {}
                () = engine.follow_changes() => {}
                () = self.repeat(times.upkeep_ms, "clean-up", || engine.clean_up()) => {}
                () = self.leading() => {}
                () = engine.subscribe_elsewhere() => {}
            }
            self.leave().await;
        };
        // An instance that leaves still has jobs on nodes of others, and nodes with jobs of others.
        tokio::select! {
            biased;
            () = working => {}
            () = self.repeat(times.leader_renew_ms, "presence", || engine.announce()) => {}
            () = engine.receive_messages() => {}
            () = engine.report_lost_leases() => {}
        }
    }

    /// Resumes the jobs of an earlier incarnation of this instance.
    async fn recover(&self) {
        let engine = &self.engine;
        if let Err(error) = self.engine.resume_own_jobs().await {
            tracing::warn!(%error, "cannot look for jobs of the last run; trying again later");
            engine.reconciler.request_scan();
        }
        engine.recovered.set(()).ok();
    }

    async fn repeat<F: Future<Output = lingua_store::Result<()>>>(
        &self,
        every_ms: u64,
        task: &'static str,
        run: impl Fn() -> F,
    ) {
        let engine = &self.engine;
        loop {
            let done = run().await;
            engine.metrics.store_up.set(i64::from(done.is_ok()));
            if let Err(error) = done {
                tracing::warn!(%error, task, "the store did not answer");
            }
            engine.timer.sleep(every_ms).await;
        }
    }

    /// Renews the leadership, and makes the pool table anew soon after a change.
    async fn leading(&self) {
        let engine = &self.engine;
        let times = engine.options.times;
        loop {
            if let Err(error) = self.engine.lead().await {
                tracing::warn!(%error, task = "leading", "the store did not answer");
            }
            tokio::select! {
                biased;
                () = engine.timer.sleep(times.leader_renew_ms) => {}
                () = engine.table_changed.notified() => engine.timer.sleep(times.table_ms).await,
            }
        }
    }

    async fn leave(&self) {
        let engine = &self.engine;
        engine.stopping.store(true, Ordering::SeqCst);
        engine.nodes.send_all(&ToNode::Drain);
        tracing::info!(open_jobs = engine.live.len(), "stopping");
        let all_ended = async {
            loop {
                let ended = engine.job_ended.notified();
                if engine.live.len() == 0 {
                    return;
                }
                ended.await;
            }
        };
        tokio::select! {
            biased;
            () = all_ended => {}
            () = engine.timer.sleep(engine.options.times.drain_ms) => {
                tracing::warn!(open_jobs = engine.live.len(), "stopping with open jobs");
            }
        }
        let instance = &engine.options.instance;
        let term = match engine.store.table().await {
            Ok(Some(table)) => table.term,
            _ => Term(0),
        };
        engine.store.resign(instance, term).await.ok();
        engine.store.withdraw(instance, engine.incarnation).await.ok();
    }
}
