//! Nodes that talk to another instance than the one where they registered.
//!
//! Start at [`Engine::node_elsewhere`]. A node without WebSocket may reach any instance; its jobs
//! gather where it registered, and the instance that it polls fetches them from there. If that
//! instance is dead, the node has to register again.

use lingua_core::{InstanceId, NodeId};
use lingua_store::Store;
use lingua_store::contract::NodeRecord;

use super::assign;
use super::message::{BusMessage, Head, Text};
use crate::handle::{HeartbeatResult, NodeHeartbeat, changed_profile};
use crate::node::Assignment;
use crate::{Engine, NodeError, Timer};

/// Longest poll that is passed on at a time.
const POLL_MS_MAX: u64 = 30_000;

/// How much later than asked the other instance may answer.
const LATE_MS: u64 = 1_000;

impl<S: Store, T: Timer> Engine<S, T> {
    /// The record of a node that is registered at another instance which is alive.
    pub(crate) async fn node_elsewhere(&self, node: &NodeId) -> Result<NodeRecord, NodeError> {
        let record = self.record_of(node).await?.ok_or(NodeError::NotRegistered)?;
        let is_elsewhere = record.via != self.options.instance;
        let is_alive = || self.alive.lock().contains(&record.via);
        if is_elsewhere && !is_alive() {
            self.refresh_instances().await?;
        }
        match is_elsewhere && is_alive() {
            true => Ok(record),
            false => Err(NodeError::NotRegistered),
        }
    }

    /// Handles a heartbeat of a node that registered at another instance.
    pub(crate) async fn heartbeat_elsewhere(
        &self,
        heartbeat: NodeHeartbeat,
    ) -> Result<HeartbeatResult, NodeError> {
        let record = self.node_elsewhere(&heartbeat.node).await?;
        self.check_epoch(&heartbeat, record.place)?;
        if let Some(profile) = changed_profile(&heartbeat, &record.profile) {
            let health = heartbeat.health.unwrap_or(record.health);
            let record = NodeRecord { health, ..record.clone() };
            self.change_profile(&record, profile).await?;
        }
        self.store_heartbeat(record.place, None, &record.profile, heartbeat).await
    }

    /// Fetches the jobs of a node that registered at another instance.
    pub(crate) async fn poll_elsewhere(
        &self,
        node: &NodeId,
        wait_ms: u64,
    ) -> Result<Vec<Assignment>, NodeError> {
        let record = self.node_elsewhere(node).await?;
        let wait_ms = wait_ms.min(POLL_MS_MAX);
        let request = |id| Head::Poll { id, node: Text(node.clone()), wait_ms }.into();
        let reply = self.request(&record.via, wait_ms + LATE_MS, request).await;
        let Some((Head::PollReply { jobs: Some(_), .. }, parts)) = reply else {
            return Err(NodeError::NotRegistered);
        };
        let now_ms = self.now_ms();
        let decode = |part: &BusMessage| match &part.head {
            Head::PolledJob { assign, .. } => assign::decode(assign, &part.blobs, now_ms),
            _ => None,
        };
        Ok(parts.iter().filter_map(decode).collect())
    }

    /// Answers another instance that polls for a node which is registered here.
    pub(super) fn on_poll(&self, to: &InstanceId, id: u64, node: &NodeId, wait_ms: u64) {
        let engine = self.handle();
        let local = self.nodes.get(node);
        let polling = local.and_then(|local| Some((local.place.epoch, local.mailbox.clone()?)));
        let Some((epoch, mailbox)) = polling else {
            self.send(to, Head::PollReply { id, jobs: None });
            return;
        };
        let (to, node) = (to.clone(), node.clone());
        self.spawn_background(async move {
            let jobs = mailbox.jobs(engine.timer.sleep(wait_ms.min(POLL_MS_MAX))).await;
            for job in &jobs {
                let (assign, blobs) = assign::encode(job, &node, epoch, 0, engine.now_ms());
                engine.send(&to, BusMessage { head: Head::PolledJob { id, assign }, blobs });
            }
            engine.send(&to, Head::PollReply { id, jobs: Some(jobs.len() as u32) });
        });
    }
}
