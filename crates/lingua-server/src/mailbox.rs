//! Nodes without WebSocket: what they are told waits until they ask for it.
//!
//! Invariant: bounded by the node's outbox; what is not fetched in time is retried elsewhere by the ACK
//! timer, as for any other node.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use lingua_core::{Epoch, NodeId};
use lingua_engine::node::{Assignment, ToNode};
use lingua_wire::node::JobRef;
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// Most jobs handed out at once.
const JOBS_AT_ONCE: usize = 64;

/// From this many mailboxes on it is worth looking for abandoned ones.
const SWEEP_FROM: usize = 64;

/// What a polling node has not fetched yet.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(crate) epoch: Epoch,
    inbox: tokio::sync::Mutex<mpsc::Receiver<ToNode>>,
    cancelled: Mutex<VecDeque<JobRef>>,
}

impl Mailbox {
    pub(crate) fn new(epoch: Epoch, inbox: mpsc::Receiver<ToNode>) -> Self {
        Self { epoch, inbox: tokio::sync::Mutex::new(inbox), cancelled: Mutex::default() }
    }

    /// Waits for jobs, as long as the node likes to.
    pub(crate) async fn jobs(&self, wait_ms: u64) -> Vec<Assignment> {
        let mut jobs = vec![];
        let wait = async {
            let mut inbox = self.inbox.lock().await;
            while jobs.is_empty() {
                let Some(order) = inbox.recv().await else { return };
                self.sort(order, &mut jobs);
                while jobs.len() < JOBS_AT_ONCE
                    && let Ok(order) = inbox.try_recv()
                {
                    self.sort(order, &mut jobs);
                }
            }
        };
        tokio::time::timeout(Duration::from_millis(wait_ms), wait).await.ok();
        jobs
    }

    fn sort(&self, order: ToNode, jobs: &mut Vec<Assignment>) {
        match order {
            ToNode::Assign(assignment) => jobs.push(assignment),
            ToNode::Cancel { key, .. } => {
                let mut cancelled = self.cancelled.lock();
                if cancelled.len() == JOBS_AT_ONCE {
                    cancelled.pop_front();
                }
                cancelled.push_back(JobRef { job_id: key.job, attempt_id: key.attempt });
            }
            // It does not say that it listens along, so it is not spoken to.
            ToNode::Sound { .. } | ToNode::SoundEnd { .. } => {}
            ToNode::Confirmed { .. } | ToNode::Drain | ToNode::Superseded => {}
        }
    }

    /// What the node is to stop; told with its next heartbeat.
    pub(crate) fn take_cancelled(&self) -> Vec<JobRef> {
        self.cancelled.lock().drain(..).collect()
    }
}

/// All polling nodes.
#[derive(Debug, Default)]
pub(crate) struct Mailboxes(Mutex<HashMap<NodeId, Arc<Mailbox>>>);

impl Mailboxes {
    /// Puts in a mailbox; now and then those are thrown out whose nodes are gone.
    pub(crate) fn put(
        &self,
        node: NodeId,
        mailbox: Mailbox,
        epoch_of: impl Fn(&NodeId) -> Option<Epoch>,
    ) {
        let mut boxes = self.0.lock();
        if boxes.len() >= SWEEP_FROM && boxes.len().is_power_of_two() {
            boxes.retain(|node, mailbox| epoch_of(node) == Some(mailbox.epoch));
        }
        boxes.insert(node, Arc::new(mailbox));
    }

    pub(crate) fn get(&self, node: &NodeId) -> Option<Arc<Mailbox>> {
        self.0.lock().get(node).cloned()
    }

    pub(crate) fn remove(&self, node: &NodeId) {
        self.0.lock().remove(node);
    }
}
