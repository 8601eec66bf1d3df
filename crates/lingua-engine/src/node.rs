//! The nodes that are connected to this instance.
//!
//! Start at [`ToNode`]: what nodes are told. What a node can do and what it has is in the store; here is only the
//! way to it, and what was learned about its speed.
//!
//! Invariant: one link for each node, that of its latest epoch; an older connection cannot remove a
//! later one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use lingua_core::{Attempt, Epoch, Fence, Health, JobId, NodeId, Profile};
use lingua_store::contract::{LeaseKey, Place};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc};

use crate::cost::Cost;
use crate::request::JobRequest;

/// Something that a node is told.
#[derive(Debug, Clone)]
pub enum ToNode {
    /// Do this job.
    Assign(Assignment),
    /// More of what is being said, for a job that was sent before it was whole.
    Sound {
        /// Which job and attempt.
        key: LeaseKey,
        /// The audio since then, in chunks.
        sound: Vec<bytes::Bytes>,
    },
    /// That was all of it.
    SoundEnd {
        /// Which job and attempt.
        key: LeaseKey,
        /// How many bytes it was.
        bytes: usize,
    },
    /// Stop doing it.
    Cancel {
        /// Which job and attempt.
        key: LeaseKey,
        /// Why.
        reason: &'static str,
    },
    /// What you said about a job has arrived.
    Confirmed {
        /// Which job and attempt.
        key: LeaseKey,
        /// Whether it counted.
        accepted: bool,
    },
    /// Finish what you have and take nothing new.
    Drain,
    /// Another connection has taken your name: this one is over.
    Superseded,
}

/// A job for a node.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// The job.
    pub job: JobId,
    /// Which try.
    pub attempt: Attempt,
    /// Refuse it if a later one was seen.
    pub fence: Fence,
    /// What is to be done.
    pub request: JobRequest,
    /// When it is too late.
    pub deadline_ms: u64,
    /// Whether segments bound to one node had to move to this one.
    pub moved: bool,
    /// Whether what is said follows as it is being said.
    pub stream: bool,
}

/// The way to a node: what it is told waits here until its connection sends it.
pub type Outbox = mpsc::Sender<ToNode>;

/// A node that is connected here.
#[derive(Debug)]
pub(crate) struct LocalNode {
    pub(crate) node: NodeId,
    pub(crate) place: Place,
    pub(crate) outbox: Outbox,
    pub(crate) version: Option<Arc<str>>,
    profile: RwLock<Arc<Profile>>,
    health: Mutex<Health>,
    cost: Mutex<Cost>,
    /// Another connection has taken over, or the node is gone.
    is_over: AtomicBool,
    /// Fences of orders that are being written and are not sent yet.
    unsent: Mutex<BTreeSet<Fence>>,
    /// Rung when one of them was sent, or is not going to be.
    sent: Notify,
}

/// An order's place among those to one node. A node refuses a fence that is older than one it has seen, so orders
/// have to go out as their slots were taken, whichever is written first.
#[derive(Debug)]
pub(crate) struct SendTicket {
    node: Arc<LocalNode>,
    fence: Fence,
}

impl SendTicket {
    /// Whether no earlier order is on its way.
    pub(crate) fn is_next(&self) -> bool {
        self.node.unsent.lock().first().is_none_or(|&first| first >= self.fence)
    }

    /// Waits until no earlier order is on its way.
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
    /// Whether this is no longer the way to the node.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Takes a place for the order with this fence.
    pub(crate) fn queue_send(self: &Arc<Self>, fence: Fence) -> SendTicket {
        self.unsent.lock().insert(fence);
        SendTicket { node: Arc::clone(self), fence }
    }

    pub(crate) fn profile(&self) -> Arc<Profile> {
        Arc::clone(&self.profile.read())
    }

    pub(crate) fn set_profile(&self, profile: Arc<Profile>) {
        *self.profile.write() = profile;
    }

    /// What it last said of itself.
    pub(crate) fn health(&self) -> Health {
        *self.health.lock()
    }

    pub(crate) fn set_health(&self, health: Health) {
        *self.health.lock() = health;
    }

    pub(crate) fn learn(&self, took_ms: u64, used: u16) {
        self.cost.lock().learn(took_ms, used);
    }

    pub(crate) fn failed(&self) {
        self.cost.lock().failed();
    }

    pub(crate) fn forgive(&self) {
        self.cost.lock().forgive();
    }

    pub(crate) fn cost_ms(&self) -> u32 {
        self.cost.lock().ms()
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    by_id: RwLock<HashMap<NodeId, Arc<LocalNode>>>,
}

impl Nodes {
    /// Puts in a node's connection; `None` if a later one is there. The one before is told that it is
    /// over.
    pub(crate) fn attach(
        &self,
        id: &NodeId,
        place: Place,
        profile: Arc<Profile>,
        version: Option<Arc<str>>,
        outbox: Outbox,
    ) -> Option<Arc<LocalNode>> {
        let mut by_id = self.by_id.write();
        let before = by_id.get(id);
        if before.is_some_and(|before| before.place.epoch > place.epoch) {
            return None;
        }
        let cost = before.map(|before| *before.cost.lock()).unwrap_or_default();
        let node = Arc::new(LocalNode {
            node: id.clone(),
            place,
            outbox,
            version,
            profile: RwLock::new(profile),
            health: Mutex::default(),
            cost: Mutex::new(cost),
            is_over: AtomicBool::new(false),
            unsent: Mutex::default(),
            sent: Notify::new(),
        });
        if let Some(before) = by_id.insert(id.clone(), Arc::clone(&node)) {
            before.is_over.store(true, Ordering::Release);
            if before.place.epoch < place.epoch {
                // A full outbox needs no telling: its connection is being closed for that.
                before.outbox.try_send(ToNode::Superseded).ok();
            }
        }
        Some(node)
    }

    /// A node has connected elsewhere: the connection that it had here is told that it is over.
    pub(crate) fn supersede(&self, id: &NodeId, epoch: Epoch) {
        let mut by_id = self.by_id.write();
        if by_id.get(id).is_some_and(|node| node.place.epoch < epoch)
            && let Some(before) = by_id.remove(id)
        {
            before.is_over.store(true, Ordering::Release);
            before.outbox.try_send(ToNode::Superseded).ok();
        }
    }

    /// Takes out a node's connection, if it is still this epoch's.
    pub(crate) fn detach(&self, id: &NodeId, epoch: Epoch) -> Option<Arc<LocalNode>> {
        let mut by_id = self.by_id.write();
        let node = by_id.get(id).filter(|node| node.place.epoch == epoch)?;
        node.is_over.store(true, Ordering::Release);
        by_id.remove(id)
    }

    pub(crate) fn get(&self, id: &NodeId) -> Option<Arc<LocalNode>> {
        self.by_id.read().get(id).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.read().len()
    }

    pub(crate) fn send_all(&self, order: &ToNode) {
        let by_id = self.by_id.read();
        let mut nodes: Vec<_> = by_id.iter().collect();
        nodes.sort_unstable_by_key(|(id, _)| *id);
        for (_, node) in nodes {
            node.outbox.try_send(order.clone()).ok();
        }
    }
}
