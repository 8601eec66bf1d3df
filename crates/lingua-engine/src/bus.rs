//! The bus between instances: it joins a job of one instance to a node of another.
//!
//! Start at `Engine::send` in `outbound.rs` for what leaves and at `Engine::receive_messages`
//! in `receive.rs` for what arrives. The store carries messages from inbox to inbox, at least once;
//! receivers are idempotent by (job, attempt).
//!
//! | file | what it holds |
//! |---|---|
//! | `message.rs` | the messages and their encoding |
//! | `outbound.rs` | one queue for each other instance; messages are sent in batches |
//! | `receive.rs` | reads the inbox and handles each message |
//! | `assign.rs` | assignments, audio and cancels for nodes of other instances |
//! | `remote_jobs.rs` | jobs of other instances that run on nodes here |
//! | `reports.rs` | reports of nodes about jobs of other instances |
//! | `lost_leases.rs` | lost leases of jobs of other instances |
//! | `watch.rs` | waiting for jobs of other instances, cancelling and watching them |
//! | `remote_nodes.rs` | nodes that talk to another instance than the one they registered at |
//!
//! Invariants: nothing local goes over the bus. Nothing depends on a message arriving: a lost
//! assignment runs into the ACK timer, a report is forwarded until it is answered, and a waiter
//! looks at the job's record from time to time.

mod assign;
mod lost_leases;
pub(crate) mod message;
mod outbound;
mod receive;
mod remote_jobs;
mod remote_nodes;
mod reports;
mod watch;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashMap;
use lingua_core::{InstanceId, NodeId};
use lingua_store::Store;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use message::{BusMessage, Head};
use outbound::OutboundQueue;
use remote_jobs::RemoteJobs;

use crate::{Engine, Timer};
pub(crate) use reports::not_live;

/// Most requests that wait for a reply.
const PENDING_MAX: usize = 65_536;

/// Most background tasks of the bus at a time.
const BACKGROUND_MAX: usize = 16_384;

/// The reply of another instance, and the messages that came before it and belong to it.
type PeerReply = (Head, Vec<BusMessage>);

#[derive(Debug)]
struct PendingRequest {
    reply: oneshot::Sender<PeerReply>,
    /// Messages that came before the reply and belong to it.
    parts: Vec<BusMessage>,
}

/// An instance's side of the bus.
#[derive(Debug)]
pub(crate) struct Bus {
    outbound: Mutex<HashMap<InstanceId, OutboundQueue>>,
    pending: Mutex<HashMap<u64, PendingRequest>>,
    next_id: AtomicU64,
    background: AtomicUsize,
    remote_jobs: Mutex<RemoteJobs>,
    lost_leases: Mutex<VecDeque<lost_leases::LostLease>>,
    lost_leases_added: Notify,
    /// When the instances of nodes that called here were told so.
    seen_nodes: Mutex<HashMap<NodeId, u64>>,
    /// Instances that watch our jobs, and until when.
    watchers: Mutex<Vec<(InstanceId, u64)>>,
    is_watched: AtomicBool,
}

impl Bus {
    /// Request ids start at a random number, so that a reply to an earlier incarnation of this
    /// instance is not taken for one to this.
    pub(crate) fn new(first_id: u64) -> Self {
        Self {
            outbound: Mutex::default(),
            pending: Mutex::default(),
            next_id: AtomicU64::new(first_id >> 1),
            background: AtomicUsize::new(0),
            remote_jobs: Mutex::default(),
            lost_leases: Mutex::default(),
            lost_leases_added: Notify::new(),
            seen_nodes: Mutex::default(),
            watchers: Mutex::default(),
            is_watched: AtomicBool::new(false),
        }
    }
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// Sends a request to another instance and waits for the reply. `None` if the instance does not
    /// exist or does not reply in time.
    async fn request(
        &self,
        to: &InstanceId,
        wait_ms: u64,
        request: impl FnOnce(u64) -> BusMessage,
    ) -> Option<PeerReply> {
        let id = self.bus.next_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (reply, replied) = oneshot::channel();
        {
            let mut pending = self.bus.pending.lock();
            if pending.len() >= PENDING_MAX {
                return None;
            }
            pending.insert(id, PendingRequest { reply, parts: vec![] });
        }
        let _guard = PendingGuard { bus: &self.bus, id };
        if !self.send_and_wait(to, request(id)).await {
            return None;
        }
        self.timer.within(wait_ms, replied).await?.ok()
    }

    /// Completes the request that this reply belongs to.
    fn on_reply(&self, id: u64, head: Head) {
        let pending = self.bus.pending.lock().remove(&id);
        if let Some(PendingRequest { reply, parts }) = pending {
            reply.send((head, parts)).ok();
        }
    }

    /// Runs a task in the background, unless too many run already; says whether it runs.
    pub(crate) fn spawn_background(&self, task: impl Future<Output = ()> + Send + 'static) -> bool {
        if self.bus.background.fetch_add(1, Ordering::Relaxed) >= BACKGROUND_MAX {
            self.bus.background.fetch_sub(1, Ordering::Relaxed);
            self.metrics.bus.count("dropped");
            return false;
        }
        let engine = self.handle();
        tokio::spawn(async move {
            task.await;
            engine.bus.background.fetch_sub(1, Ordering::Relaxed);
        });
        true
    }
}

/// Forgets a request when its caller stops waiting.
struct PendingGuard<'a> {
    bus: &'a Bus,
    id: u64,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        self.bus.pending.lock().remove(&self.id);
    }
}
