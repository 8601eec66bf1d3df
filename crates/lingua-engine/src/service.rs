//! The background work of an instance, from start to stop.

use std::future::Future;
use std::sync::atomic::Ordering;

use lingua_core::{InstanceId, Term};
use lingua_store::Store;
use lingua_store::contract::AnnounceReply;
use prometheus_client::registry::Registry;

use crate::metrics::EngineMetrics;
use crate::node::ToNode;
use crate::usage_count::WRITE_EVERY_MS;
use crate::{Engine, EngineOptions, Handle, Timer};

/// How often an instance that waits for its name asks for it.
const CLAIM_PAUSE_MS: u64 = 250;

/// Another living process has the name of this instance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "another running process is instance {instance}; give this one another --instance-id, or \
     stop that process"
)]
pub struct NameTaken {
    /// The name that other instances know it by.
    pub instance: InstanceId,
}

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

    /// Takes the name of this instance. If another process has it, waits until that one renews it,
    /// which is an error, or until its lease ends: then it is dead. Without an answer of the store
    /// the instance starts anyway and finds out later.
    pub async fn claim_name(&self) -> Result<(), NameTaken> {
        let (engine, instance) = (&self.engine, &self.engine.options.instance);
        let mut first_until_ms = None;
        loop {
            let until_ms = match engine.store.announce(engine.presence()).await {
                Ok(AnnounceReply::Present) | Err(_) => return Ok(()),
                Ok(AnnounceReply::NameTaken { until_ms }) => until_ms,
            };
            let first_ms = *first_until_ms.get_or_insert_with(|| {
                let wait_ms = engine.options.times.leader_lease_ms;
                tracing::warn!(
                    %instance,
                    wait_ms,
                    "another process has the name of this instance; waiting until its lease ends"
                );
                until_ms
            });
            if until_ms > first_ms {
                return Err(NameTaken { instance: instance.clone() });
            }
            engine.timer.sleep(CLAIM_PAUSE_MS).await;
        }
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
                () = self.repeat(times.look_ms, "looking around", || engine.look_around()) => {}
                () = engine.subscribe_elsewhere() => {}
                () = self.repeat(WRITE_EVERY_MS, "counting usage", || engine.write_usage()) => {}
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
            engine.log_store_down(&error, "looking for jobs of the last run");
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
                engine.log_store_down(&error, task);
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
                engine.log_store_down(&error, "leading");
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
        if let Err(error) = engine.write_usage().await {
            engine.log_store_down(&error, "writing what was used last");
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
