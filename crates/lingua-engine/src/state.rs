//! The state that all parts of an instance share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use lingua_core::node::COST_MS_UNKNOWN;
use lingua_core::{Epoch, InstanceId, NodeId, Term};
use lingua_store::contract::{Incarnation, NodeCommand, NodeCommandReply, Place, StoreIdentity};
use lingua_store::{Store, StoreError};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::{Notify, SetOnce, broadcast};

use crate::bus::Bus;
use crate::byte_budget::ByteBudgets;
use crate::cost::PairDurations;
use crate::events::EngineEvent;
use crate::failover_guard::FailoverGuard;
use crate::last_seen::LastSeen;
use crate::live_jobs::LiveJobs;
use crate::log_limit::LogLimit;
use crate::metrics::EngineMetrics;
use crate::node::Nodes;
use crate::one_way_nodes::OneWayNodes;
use crate::queue::Queue;
use crate::recent_results::RecentResults;
use crate::reconcile::Reconciler;
use crate::routes::Routes;
use crate::table::PoolTable;
use crate::tenant_nodes::TenantNodes;
use crate::usage_count::UsageCounter;
use crate::usage_limit::UsageLimiter;
use crate::{EngineOptions, Handle, NodeError, Timer};

/// Most lines about failed jobs in a second, for each reason.
const REFUSED_LINES_MAX: u32 = 10;

/// While the store does not answer, one line is written in this time.
const STORE_LOG_MS: u64 = 5_000;

/// Waits for a call to the store and records its duration. A reply
/// that is there at once, as the embedded store's nearly always is, counts as no time: reading the
/// clock would take longer.
///
/// A macro, because a function would hold the call twice: as its argument and while it waits.
macro_rules! timed {
    ($engine:expr, $operation:literal, $call:expr) => {{
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
        $engine.note_call($operation, seconds, reply.is_ok());
        reply
    }};
}

pub(crate) use timed;

/// An instance: the state that all its parts share. It is used through its
/// [`Handle`].
#[derive(Debug)]
pub struct Engine<S, T> {
    /// For tasks that outlive the call which starts them.
    this: Weak<Self>,
    pub(crate) options: EngineOptions,
    pub(crate) store: S,
    pub(crate) timer: T,
    pub(crate) metrics: EngineMetrics,
    pub(crate) nodes: Nodes,
    pub(crate) live: LiveJobs,
    pub(crate) queue: Arc<Queue>,
    pub(crate) usage: UsageLimiter,
    pub(crate) usage_counter: UsageCounter,
    pub(crate) budgets: ByteBudgets,
    /// Results with speech that were not delivered yet.
    pub(crate) recent_results: RecentResults,
    pub(crate) routes: Routes,
    pub(crate) pair_durations: PairDurations,
    /// The usual cost of a job in the fleet.
    pub(crate) typical_ms: AtomicU32,
    pub(crate) one_way_nodes: OneWayNodes,
    pub(crate) events: broadcast::Sender<EngineEvent>,
    /// The pool table that was published last.
    pub(crate) table: Mutex<Option<Arc<PoolTable>>>,
    /// Notified when the leader may have to make a new table.
    pub(crate) table_changed: Notify,
    /// Notified when a job has ended.
    pub(crate) job_ended: Notify,
    pub(crate) incarnation: Incarnation,
    pub(crate) reconciler: Reconciler,
    pub(crate) failover_guard: FailoverGuard,
    pub(crate) bus: Bus,
    /// The instances that are alive, in order: they share the clean-up.
    pub(crate) alive: Mutex<Vec<InstanceId>>,
    /// When the presence of this instance was last written to the store.
    pub(crate) present_ms: AtomicU64,
    /// Until when another process has the name of this instance; 0 if none has.
    pub(crate) rival_until_ms: AtomicU64,
    /// Set when another living process has the name.
    pub(crate) name_lost: SetOnce<()>,
    /// Whether others may have taken this instance for dead since.
    pub(crate) was_away: AtomicBool,
    /// How many rounds of clean-up there were.
    pub(crate) rounds: AtomicUsize,
    /// When places of nodes that are gone were last given away.
    pub(crate) room_made_ms: AtomicU64,
    pub(crate) tenant_nodes: TenantNodes,
    /// The term that this instance last led in, and the store in which it began.
    /// When the pool table may be made again.
    pub(crate) table_due_ms: AtomicU64,
    pub(crate) led: Mutex<Option<(Term, StoreIdentity)>>,
    /// Set when the jobs of an earlier incarnation are resumed.
    pub(crate) recovered: SetOnce<()>,
    pub(crate) stopping: AtomicBool,
    /// Limits the lines about failed jobs.
    pub(crate) refused_log: LogLimit,
    /// Limits the lines about a store that does not answer.
    store_log: LogLimit,
    /// What operators saw last, for the time in which the store does not answer.
    pub(crate) last_seen: LastSeen,
    rng: Mutex<ChaCha8Rng>,
}

impl<S: Store, T: Timer> Engine<S, T> {
    pub(crate) fn new(
        options: EngineOptions,
        store: S,
        timer: T,
        metrics: EngineMetrics,
    ) -> Handle<S, T> {
        let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
        let incarnation = Incarnation(rng.next_u64());
        let identity = store.identity();
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            reconciler: Reconciler::new(identity),
            failover_guard: FailoverGuard::new(identity),
            bus: Bus::new(rng.next_u64()),
            alive: Mutex::default(),
            rounds: AtomicUsize::new(0),
            room_made_ms: AtomicU64::new(0),
            tenant_nodes: TenantNodes::default(),
            present_ms: AtomicU64::new(0),
            rival_until_ms: AtomicU64::new(0),
            name_lost: SetOnce::new(),
            was_away: AtomicBool::new(false),
            table_due_ms: AtomicU64::new(0),
            led: Mutex::new(None),
            queue: Queue::new(options.rules.semantic, options.tenants.clone()),
            usage: UsageLimiter::new(options.tenants.clone(), &options.bounds, &metrics),
            usage_counter: UsageCounter::default(),
            budgets: ByteBudgets::new(&options.bounds, &metrics),
            recent_results: RecentResults::new(
                options.bounds.speech_bytes_max,
                options.times.speech_ms,
                &metrics,
            ),
            events: broadcast::channel(options.bounds.events_max).0,
            options,
            store,
            timer,
            metrics,
            nodes: Nodes::default(),
            live: LiveJobs::default(),
            routes: Routes::default(),
            pair_durations: PairDurations::default(),
            typical_ms: AtomicU32::new(COST_MS_UNKNOWN),
            one_way_nodes: OneWayNodes::default(),
            table: Mutex::new(None),
            table_changed: Notify::new(),
            job_ended: Notify::new(),
            incarnation,
            recovered: SetOnce::new(),
            stopping: AtomicBool::new(false),
            refused_log: LogLimit::new(REFUSED_LINES_MAX, 1_000),
            store_log: LogLimit::new(1, STORE_LOG_MS),
            last_seen: LastSeen::default(),
            rng: Mutex::new(rng),
        })
    }

    /// A handle for a task of its own.
    pub(crate) fn handle(&self) -> Handle<S, T> {
        self.this.upgrade().expect("an engine is only used through its handles")
    }

    pub(crate) fn random(&self) -> u32 {
        self.rng.lock().next_u32()
    }

    pub(crate) fn random_u64(&self) -> u64 {
        self.rng.lock().next_u64()
    }

    /// Records how long a call to the store took and whether it was answered.
    pub(crate) fn note_call(&self, operation: &'static str, seconds: f64, is_ok: bool) {
        self.metrics.store_seconds.observe(operation, seconds);
        self.metrics.store_up.set(i64::from(is_ok));
    }

    /// Logs that the store did not answer; one line in a few seconds, whichever task finds out.
    pub(crate) fn log_store_down(&self, error: &StoreError, task: &'static str) {
        if let Some(left_out) = self.store_log.admit("store", self.now_ms()) {
            tracing::warn!(reason = %error, task, left_out, "the store did not answer");
        }
    }

    /// Publishes an event here. Without watchers the event is not even made.
    pub(crate) fn publish(&self, event: impl FnOnce() -> EngineEvent) {
        if self.events.receiver_count() > 0 {
            self.events.send(event()).ok();
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Closes a node's connection, if this epoch is one of it; its jobs are retried at once. The
    /// record of a node that did not give its id goes.
    pub async fn disconnect(&self, node: &NodeId, epoch: Epoch) -> Result<(), NodeError> {
        let known = self.nodes.detach(node, epoch).ok_or(NodeError::NotRegistered)?;
        let place = known.place();
        if known.is_named {
            return self.sign_off_at(place, NodeCommand::Offline).await;
        }
        self.sign_off_at(place, NodeCommand::Retire).await?;
        self.store.release(node, place.epoch).await?;
        Ok(())
    }

    /// Signs a node off in the store; its jobs are retried at once.
    pub(crate) async fn sign_off_at(
        &self,
        place: Place,
        command: NodeCommand,
    ) -> Result<(), NodeError> {
        match self.store.set_state(place, command).await? {
            NodeCommandReply::Set { lost } => self.leases_lost(lost),
            NodeCommandReply::Stale => {}
        }
        Ok(())
    }

    /// Disconnects a node that does not read its messages.
    pub(crate) async fn disconnect_slow(&self, node: &NodeId, epoch: Epoch) {
        tracing::warn!(node_id = %node, "the node does not read its messages; disconnecting it");
        self.metrics.node_rejected.count("too_slow");
        self.disconnect(node, epoch).await.ok();
    }
}
