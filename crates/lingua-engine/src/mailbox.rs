//! Holds what a node without WebSocket has to be told until it polls.
//!
//! Invariant: bounded by the node's outbox. A job that is not fetched in time runs into the ACK
//! timer and is retried, as for any other node.

use std::collections::VecDeque;
use std::sync::Arc;

use lingua_store::contract::LeaseKey;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::node::{Assignment, ToNode};

/// Most jobs of one poll, and most cancels that wait for a heartbeat.
const AT_ONCE: usize = 64;

#[derive(Debug)]
pub(crate) struct Mailbox {
    inbox: tokio::sync::Mutex<mpsc::Receiver<ToNode>>,
    cancelled: Mutex<VecDeque<LeaseKey>>,
}

impl Mailbox {
    pub(crate) fn new(inbox: mpsc::Receiver<ToNode>) -> Arc<Self> {
        let (inbox, cancelled) = (tokio::sync::Mutex::new(inbox), Mutex::default());
        Arc::new(Self { inbox, cancelled })
    }

    /// Waits for jobs until `timeout` is over, or the node is gone.
    pub(crate) async fn jobs(&self, timeout: impl Future<Output = ()>) -> Vec<Assignment> {
        let mut jobs = vec![];
        let fetch = async {
            let mut inbox = self.inbox.lock().await;
            while jobs.is_empty() {
                let Some(message) = inbox.recv().await else { return };
                self.sort(message, &mut jobs);
                while jobs.len() < AT_ONCE
                    && let Ok(message) = inbox.try_recv()
                {
                    self.sort(message, &mut jobs);
                }
            }
        };
        tokio::select! {
            biased;
            () = fetch => {}
            () = timeout => {}
        }
        jobs
    }

    fn sort(&self, message: ToNode, jobs: &mut Vec<Assignment>) {
        match message {
            ToNode::Assign(assignment) => jobs.push(assignment),
            ToNode::Cancel { key, .. } => {
                let mut cancelled = self.cancelled.lock();
                if cancelled.len() == AT_ONCE {
                    cancelled.pop_front();
                }
                cancelled.push_back(key);
            }
            // Polling nodes do not stream.
            ToNode::Sound { .. } | ToNode::SoundEnd { .. } => {}
            ToNode::Confirmed { .. } | ToNode::AckRefused { .. } | ToNode::Registered(_) => {}
            ToNode::Drain | ToNode::Superseded => {}
        }
    }

    /// The attempts that the node has to stop; it learns them with its next heartbeat.
    pub(crate) fn take_cancelled(&self) -> Vec<LeaseKey> {
        self.cancelled.lock().drain(..).collect()
    }
}
