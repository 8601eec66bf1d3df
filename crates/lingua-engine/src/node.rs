//! The nodes that are connected to this instance.
//!
//! Start at [`ToNode`]: the messages to a node. The store knows what a node can do and what it
//! runs; here is its connection, what it said last, and how fast it was.
//!
//! Invariant: each node has one connection, that of its latest epoch; an older connection cannot
//! remove a later one. A connection may have several epochs, one after the other.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hashbrown::HashMap;
use lingua_core::job::Refusal;
use lingua_core::{Attempt, Epoch, Fence, Health, JobId, LangPair, Load, NodeId, Profile};
use lingua_store::contract::{Bytes, LeaseKey, Place};
use parking_lot::{Mutex, RwLock};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};

use crate::cost::Cost;
use crate::handle::NodeRegistration;
use crate::mailbox::Mailbox;
use crate::request::JobRequest;
use crate::running::Running;

/// A message to a node.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum ToNode {
    /// Do this job.
    Assign(Assignment),
    /// More audio of a job that was sent before its audio was complete.
    Sound { key: LeaseKey, sound: Vec<Bytes> },
    /// The audio is complete.
    SoundEnd { key: LeaseKey, bytes: usize },
    /// Stop this attempt.
    Cancel { key: LeaseKey, reason: &'static str },
    /// A final report has arrived.
    Confirmed { key: LeaseKey, accepted: bool },
    /// An ACK came too late: the attempt is over.
    AckRefused { key: LeaseKey, why: Refusal },
    /// The store had forgotten the node; it is registered again, with another epoch.
    Registered(RegisteredNode),
    /// Finish the running jobs and take no new ones.
    Drain,
    /// Another connection has registered the same node: this one has to close.
    Superseded,
}

/// A job for a node.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// The job that the report is about.
    pub job: JobId,
    /// The attempt that the node has to name in its reports.
    pub attempt: Attempt,
    /// The node refuses the job if it has seen a later fence.
    pub fence: Fence,
    /// What is to be done.
    pub request: JobRequest,
    /// When the result is too late, in milliseconds since the epoch.
    pub deadline_ms: u64,
    /// The direction in the tags that the node registered, if those are not the job's. In a box,
    /// because most jobs have none.
    pub served_as: Option<Box<LangPair>>,
    /// Whether segments bound to one node had to move to this one.
    pub moved: bool,
    /// Whether the audio follows while the speaker speaks.
    pub stream: bool,
}

impl Assignment {
    /// The direction, in the tags that the node registered.
    pub fn pair(&self) -> LangPair {
        self.served_as.as_deref().copied().unwrap_or(self.request.spec.pair)
    }
}

/// What a node learns when it has registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisteredNode {
    /// Its cell, slot and epoch.
    pub place: Place,
    /// How many exact pools it belongs to.
    pub pairs: usize,
    /// How often it should send a heartbeat.
    pub heartbeat_ms: u64,
}

/// Most epochs of a connection that are remembered: the first, and the latest ones.
const EPOCHS_MAX: usize = 8;

/// Messages wait here until the node's connection sends them.
pub type Outbox = mpsc::Sender<ToNode>;

/// A node that is connected here.
#[derive(Debug)]
pub(crate) struct LocalNode {
    pub(crate) node: NodeId,
    /// Whether the node gave its id. The record of another one goes with its connection.
    pub(crate) is_named: bool,
    pub(crate) outbox: Outbox,
    /// Of a node without WebSocket.
    pub(crate) mailbox: Option<Arc<Mailbox>>,
    place: Mutex<Place>,
    /// The epochs of this connection, the latest last; that may be one that is being registered.
    epochs: Mutex<VecDeque<Epoch>>,
    pub(crate) profile: RwLock<Arc<Profile>>,
    /// The health that the node last reported.
    pub(crate) health: Mutex<Health>,
    /// The load that the node last reported.
    pub(crate) load: Mutex<Load>,
    pub(crate) version: Mutex<Option<Arc<str>>>,
    pub(crate) running: Running,
    /// When its last sign of life was written to the store.
    renewed_ms: AtomicU64,
    /// Held while the node is registered again.
    pub(crate) registering: tokio::sync::Mutex<()>,
    pub(crate) cost: Mutex<Cost>,
    /// Another connection has taken over, or the node is gone.
    is_closed: AtomicBool,
    /// Fences of assignments that are reserved and not sent yet.
    unsent: Mutex<BTreeSet<Fence>>,
    /// Notified when one of them was sent, or given up.
    sent: Notify,
}

/// The place of an assignment among those to one node. A node refuses a fence that is older than
/// one it has seen, so assignments go out in the order in which their slots were taken.
#[derive(Debug)]
pub(crate) struct SendTicket {
    node: Arc<LocalNode>,
    fence: Fence,
}

impl SendTicket {
    /// Whether no earlier assignment is unsent.
    pub(crate) fn is_next(&self) -> bool {
        self.node.unsent.lock().first().is_none_or(|&first| first >= self.fence)
    }

    /// Waits until no earlier assignment is unsent.
    pub(crate) async fn wait(&self) {
        loop {
            let sent = self.node.sent.notified();
            if self.is_next() {
                return;
            }
            sent.await;
        }
    }
}

impl Drop for SendTicket {
    fn drop(&mut self) {
        self.node.unsent.lock().remove(&self.fence);
        self.node.sent.notify_waiters();
    }
}

impl LocalNode {
    pub(crate) fn new(
        r: NodeRegistration,
        place: Place,
        mailbox: Option<Arc<Mailbox>>,
        cost: Cost,
        now_ms: u64,
    ) -> Self {
        let running = Running::default();
        running.confirmed(r.running, now_ms);
        Self {
            node: r.node,
            is_named: r.is_named,
            outbox: r.outbox,
            mailbox,
            place: Mutex::new(place),
            epochs: Mutex::new([place.epoch].into()),
            profile: RwLock::new(r.profile),
            health: Mutex::new(r.health),
            load: Mutex::default(),
            version: Mutex::new(r.version),
            running,
            renewed_ms: AtomicU64::new(now_ms),
            registering: tokio::sync::Mutex::default(),
            cost: Mutex::new(cost),
            is_closed: AtomicBool::new(false),
            unsent: Mutex::default(),
            sent: Notify::new(),
        }
    }

    /// Whether this is no longer the connection to the node.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Its cell, slot and epoch.
    pub(crate) fn place(&self) -> Place {
        *self.place.lock()
    }

    /// Whether this epoch is one of this connection.
    pub(crate) fn has_epoch(&self, epoch: Epoch) -> bool {
        self.epochs.lock().contains(&epoch)
    }

    /// The latest epoch of this connection.
    fn epoch(&self) -> Epoch {
        self.epochs.lock().back().copied().unwrap_or(Epoch(0))
    }

    /// The connection is about to be registered with this epoch. Until then a change of the node
    /// with this epoch would look like another connection.
    pub(crate) fn expect_epoch(&self, epoch: Epoch) {
        let mut epochs = self.epochs.lock();
        epochs.push_back(epoch);
        if epochs.len() > EPOCHS_MAX {
            // Not the first: the connection is known by it until its end.
            epochs.remove(1);
        }
    }

    /// The connection is registered in this place.
    pub(crate) fn set_place(&self, place: Place) {
        *self.place.lock() = place;
    }

    /// Sends an assignment.
    pub(crate) fn send_assignment(
        &self,
        assignment: Assignment,
        now_ms: u64,
    ) -> Result<(), TrySendError<ToNode>> {
        let key = LeaseKey { job: assignment.job, attempt: assignment.attempt };
        // Before the node can answer.
        self.running.sent(key, now_ms);
        let sent = self.outbox.try_send(ToNode::Assign(assignment));
        if sent.is_err() {
            self.running.over(key);
        }
        sent
    }

    /// Tells the node to stop an attempt. A node that does not read misses it.
    pub(crate) fn cancel(&self, key: LeaseKey) {
        self.running.over(key);
        self.outbox.try_send(ToNode::Cancel { key, reason: "the attempt is over" }).ok();
    }

    /// Notes that a sign of life is written now.
    pub(crate) fn set_renewed(&self, now_ms: u64) {
        self.renewed_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Whether the last sign of life was written so long ago; `true` only once.
    pub(crate) fn is_renewal_due(&self, now_ms: u64, after_ms: u64) -> bool {
        let before_ms = self.renewed_ms.load(Ordering::Relaxed);
        let is_due = now_ms.saturating_sub(before_ms) >= after_ms;
        let order = Ordering::Relaxed;
        is_due && self.renewed_ms.compare_exchange(before_ms, now_ms, order, order).is_ok()
    }

    /// Queues the assignment with this fence for sending.
    pub(crate) fn queue_send(self: &Arc<Self>, fence: Fence) -> SendTicket {
        self.unsent.lock().insert(fence);
        SendTicket { node: Arc::clone(self), fence }
    }

    pub(crate) fn profile(&self) -> Arc<Profile> {
        Arc::clone(&self.profile.read())
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }
}

/// The registry of connected nodes.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    by_id: RwLock<HashMap<NodeId, Arc<LocalNode>>>,
}

impl Nodes {
    /// Puts in a node's connection and closes the one before; says whether no later one is there.
    pub(crate) fn attach(&self, node: LocalNode) -> bool {
        let mut by_id = self.by_id.write();
        if let Some(before) = by_id.get(&node.node) {
            if before.epoch() > node.epoch() {
                return false;
            }
            *node.cost.lock() = *before.cost.lock();
            before.close();
            if before.epoch() < node.epoch() {
                // If the outbox is full, its connection is being closed anyway.
                before.outbox.try_send(ToNode::Superseded).ok();
            }
        }
        by_id.insert(node.node.clone(), Arc::new(node));
        true
    }

    /// How long a job takes on each node of which something is known.
    pub(crate) fn learned_ms(&self) -> Vec<u32> {
        let costs = self.by_id.read().values().map(|node| *node.cost.lock()).collect::<Vec<_>>();
        costs.into_iter().filter(|cost| cost.is_well_known()).map(Cost::learned_ms).collect()
    }

    /// Closes the connection of a node that has registered at another instance.
    pub(crate) fn supersede(&self, id: &NodeId, epoch: Epoch) {
        let mut by_id = self.by_id.write();
        if by_id.get(id).is_some_and(|node| node.epoch() < epoch)
            && let Some(before) = by_id.remove(id)
        {
            before.close();
            before.outbox.try_send(ToNode::Superseded).ok();
        }
    }

    /// Takes out a node's connection, if this epoch is one of it.
    pub(crate) fn detach(&self, id: &NodeId, epoch: Epoch) -> Option<Arc<LocalNode>> {
        let mut by_id = self.by_id.write();
        let node = by_id.get(id).filter(|node| node.has_epoch(epoch))?;
        node.close();
        by_id.remove(id)
    }

    pub(crate) fn get(&self, id: &NodeId) -> Option<Arc<LocalNode>> {
        self.by_id.read().get(id).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.read().len()
    }

    /// Sends a message to every node, in the order of their ids.
    pub(crate) fn send_all(&self, message: &ToNode) {
        let mut nodes: Vec<_> = self.by_id.read().values().cloned().collect();
        nodes.sort_unstable_by(|a, b| a.node.cmp(&b.node));
        for node in nodes {
            node.outbox.try_send(message.clone()).ok();
        }
    }
}
