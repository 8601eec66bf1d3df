//! The nodes that are connected to this instance.
//!
//! Start at [`ToNode`]: the messages to a node. The store knows what a node can do and what it
//! runs; here is only its connection, and how fast it was.
//!
//! Invariant: each node has one connection, that of its latest epoch; an older connection cannot
//! remove a later one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use lingua_core::{Attempt, Epoch, Fence, Health, JobId, NodeId, Profile};
use lingua_store::contract::{Bytes, LeaseKey, Place};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc};

use crate::cost::Cost;
use crate::mailbox::Mailbox;
use crate::request::JobRequest;

/// A message to a node.
#[derive(Debug, Clone)]
pub enum ToNode {
    /// Do this job.
    Assign(Assignment),
    /// More audio of a job that was sent before its audio was complete.
    Sound {
        /// The job and its attempt.
        key: LeaseKey,
        /// The audio since the last message, in chunks.
        sound: Vec<Bytes>,
    },
    /// The audio is complete.
    SoundEnd {
        /// The job and its attempt.
        key: LeaseKey,
        /// How many bytes of audio there were in all.
        bytes: usize,
    },
    /// Stop this attempt.
    Cancel {
        /// The job and its attempt.
        key: LeaseKey,
        /// The reason, for people.
        reason: &'static str,
    },
    /// A final report has arrived.
    Confirmed {
        /// The job and its attempt.
        key: LeaseKey,
        /// Whether the report counted.
        accepted: bool,
    },
    /// Finish the running jobs and take no new ones.
    Drain,
    /// Another connection has registered the same node: this one has to close.
    Superseded,
}

/// A job for a node.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// The job.
    pub job: JobId,
    /// The attempt that the node has to name in its reports.
    pub attempt: Attempt,
    /// The node refuses the job if it has seen a later fence.
    pub fence: Fence,
    /// What is to be done.
    pub request: JobRequest,
    /// When the result is too late, in milliseconds since the epoch.
    pub deadline_ms: u64,
    /// Whether segments bound to one node had to move to this one.
    pub moved: bool,
    /// Whether the audio follows while the speaker speaks.
    pub stream: bool,
}

/// Messages wait here until the node's connection sends them.
pub type Outbox = mpsc::Sender<ToNode>;

/// A node that is connected here.
#[derive(Debug)]
pub(crate) struct LocalNode {
    pub(crate) node: NodeId,
    pub(crate) place: Place,
    pub(crate) outbox: Outbox,
    /// Of a node without WebSocket.
    pub(crate) mailbox: Option<Arc<Mailbox>>,
    pub(crate) profile: RwLock<Arc<Profile>>,
    /// The health that the node last reported.
    pub(crate) health: Mutex<Health>,
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
        node: NodeId,
        place: Place,
        profile: Arc<Profile>,
        health: Health,
        outbox: Outbox,
        mailbox: Option<Arc<Mailbox>>,
        cost: Cost,
    ) -> Self {
        Self {
            node,
            place,
            outbox,
            mailbox,
            profile: RwLock::new(profile),
            health: Mutex::new(health),
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
            if before.place.epoch > node.place.epoch {
                return false;
            }
            *node.cost.lock() = *before.cost.lock();
            before.close();
            if before.place.epoch < node.place.epoch {
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
        costs.into_iter().filter(|cost| cost.is_known()).map(Cost::learned_ms).collect()
    }

    /// Closes the connection of a node that has registered at another instance.
    pub(crate) fn supersede(&self, id: &NodeId, epoch: Epoch) {
        let mut by_id = self.by_id.write();
        if by_id.get(id).is_some_and(|node| node.place.epoch < epoch)
            && let Some(before) = by_id.remove(id)
        {
            before.close();
            before.outbox.try_send(ToNode::Superseded).ok();
        }
    }

    /// Takes out a node's connection, if it is still this epoch's.
    pub(crate) fn detach(&self, id: &NodeId, epoch: Epoch) -> Option<Arc<LocalNode>> {
        let mut by_id = self.by_id.write();
        let node = by_id.get(id).filter(|node| node.place.epoch == epoch)?;
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
