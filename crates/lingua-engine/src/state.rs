//! What all parts of an instance share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use lingua_core::{Epoch, InstanceId, NodeId, Term};
use lingua_store::Store;
use lingua_store::contract::{Incarnation, NodeCommand, NodeCommandReply, StoreIdentity};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::{Notify, SetOnce, broadcast};

use crate::binding::Bindings;
use crate::bus::Bus;
use crate::clock::Timer;
use crate::error::NodeError;
use crate::events::EngineEvent;
use crate::failover_guard::FailoverGuard;
use crate::live_jobs::LiveJobs;
use crate::metrics::EngineMetrics;
use crate::node::Nodes;
use crate::one_way_nodes::OneWayNodes;
use crate::options::EngineOptions;
use crate::queue::Queue;
use crate::reconcile::Reconciler;
use crate::routes::Routes;
use crate::table::PoolTable;

/// Waits for a call to the store, and notes how long it took. An answer that is there at once, as the embedded
/// store's nearly always is, took no time: looking at the clock would take longer. Gives the answer and the seconds.
///
/// A macro, because a function would keep the call twice: as its argument and where it is waited for.
macro_rules! timed {
    ($shared:expr, $operation:literal, $call:expr) => {{
        let mut call = std::pin::pin!($call);
        let at_once =
            std::future::poll_fn(|context| std::task::Poll::Ready(call.as_mut().poll(context)));
        let (reply, seconds) = match at_once.await {
            std::task::Poll::Ready(reply) => (reply, 0.0),
            std::task::Poll::Pending => {
                let started = tokio::time::Instant::now();
                let reply = call.await;
                (reply, started.elapsed().as_secs_f64())
            }
        };
        $shared.note_call($operation, seconds, reply.is_ok());
        (reply, seconds)
    }};
}

pub(crate) use timed;

#[derive(Debug)]
pub(crate) struct EngineState<S, T> {
    pub(crate) options: EngineOptions,
    pub(crate) store: S,
    pub(crate) timer: T,
    pub(crate) metrics: EngineMetrics,
    pub(crate) nodes: Nodes,
    pub(crate) live: LiveJobs,
    pub(crate) queue: Arc<Queue>,
    pub(crate) routes: Routes,
    pub(crate) bindings: Bindings,
    pub(crate) one_way_nodes: OneWayNodes,
    pub(crate) events: broadcast::Sender<EngineEvent>,
    /// The pool table in force, as it was published last.
    pub(crate) table: Mutex<Option<Arc<PoolTable>>>,
    /// Rung when the table may need to be made anew.
    pub(crate) table_bell: Notify,
    /// Rung when a job has ended.
    pub(crate) ended_bell: Notify,
    pub(crate) incarnation: Incarnation,
    pub(crate) reconciler: Reconciler,
    pub(crate) failover_guard: FailoverGuard,
    pub(crate) bus: Bus,
    /// Who was there when last looked at, in order: they share the cleaning up.
    pub(crate) alive: Mutex<Vec<InstanceId>>,
    /// When the store last took note of this instance, and whether it may have been taken for dead since.
    pub(crate) present_ms: AtomicU64,
    pub(crate) was_away: AtomicBool,
    /// How often it has cleaned up.
    pub(crate) rounds: AtomicUsize,
    /// The term that this instance leads in, and in which life of the store it began.
    pub(crate) led: Mutex<Option<(Term, StoreIdentity)>>,
    /// Whether jobs that a former life left behind have been taken up.
    recovered: SetOnce<()>,
    stopping: AtomicBool,
    luck: Mutex<ChaCha8Rng>,
}

impl<S: Store, T: Timer> EngineState<S, T> {
    pub(crate) fn new(options: EngineOptions, store: S, timer: T, metrics: EngineMetrics) -> Self {
        let mut luck = ChaCha8Rng::seed_from_u64(options.seed);
        let incarnation = Incarnation(luck.next_u64());
        let identity = store.identity();
        Self {
            reconciler: Reconciler::new(identity),
            failover_guard: FailoverGuard::new(identity),
            bus: Bus::new(luck.next_u64()),
            alive: Mutex::default(),
            rounds: AtomicUsize::new(0),
            present_ms: AtomicU64::new(0),
            was_away: AtomicBool::new(false),
            led: Mutex::new(None),
            queue: Queue::new(options.rules.semantic),
            bindings: Bindings::new(options.bounds.bindings_max),
            events: broadcast::channel(options.bounds.events_max).0,
            options,
            store,
            timer,
            metrics,
            nodes: Nodes::default(),
            live: LiveJobs::default(),
            routes: Routes::default(),
            one_way_nodes: OneWayNodes::default(),
            table: Mutex::new(None),
            table_bell: Notify::new(),
            ended_bell: Notify::new(),
            incarnation,
            recovered: SetOnce::new(),
            stopping: AtomicBool::new(false),
            luck: Mutex::new(luck),
        }
    }

    pub(crate) fn random(&self) -> u32 {
        self.luck.lock().next_u32()
    }

    pub(crate) fn random_u64(&self) -> u64 {
        self.luck.lock().next_u64()
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.timer.now_ms()
    }

    /// Notes how long a call to the store took and whether it was answered.
    pub(crate) fn note_call(&self, operation: &'static str, seconds: f64, is_ok: bool) {
        self.metrics.store_seconds.observe(operation, seconds);
        self.metrics.store_up.set(i64::from(is_ok));
    }

    /// Tells whoever watches; an event that nobody watches is not even made.
    pub(crate) fn publish(&self, event: impl FnOnce() -> EngineEvent) {
        if self.events.receiver_count() > 0 {
            self.events.send(event()).ok();
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    pub(crate) fn set_recovered(&self) {
        // Said once is enough.
        self.recovered.set(()).ok();
    }

    /// New jobs wait until old ones are taken up: else they would be taken for old ones.
    pub(crate) async fn recovered(&self) {
        self.recovered.wait().await;
    }

    /// Ends a node's connection, if it is still this epoch's; its jobs are retried at once.
    pub(crate) async fn disconnect_node(
        &self,
        node: &NodeId,
        epoch: Epoch,
    ) -> Result<(), NodeError> {
        let known = self.nodes.detach(node, epoch).ok_or(NodeError::NotRegistered)?;
        match self.store.set_state(known.place, NodeCommand::Offline).await? {
            NodeCommandReply::Set { lost } => self.leases_lost(lost),
            NodeCommandReply::Stale => {}
        }
        Ok(())
    }

    /// Ends the connection of a node that does not read what it is told: nothing more is buffered for it.
    pub(crate) async fn disconnect_slow(&self, node: &NodeId, epoch: Epoch) {
        tracing::warn!(node_id = %node, "node is too slow, cutting it off");
        self.metrics.node_rejected.count("too_slow");
        self.disconnect_node(node, epoch).await.ok();
    }
}
