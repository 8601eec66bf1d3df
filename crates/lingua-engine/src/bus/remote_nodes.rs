//! Nodes that talk to another instance than the one where they registered.
//!
//! Start at [`Engine::node_elsewhere`]. A node without WebSocket may reach any instance; its jobs
//! gather where it registered, and the instance that it polls fetches them from there. If that
//! instance is dead, the node has to register again.

use lingua_core::{Epoch, InstanceId, NodeId};
use lingua_store::Store;
use lingua_store::contract::{LeaseKey, NodeRecord};

use super::assign;
use super::message::{BusMessage, Head, NodeSeen, Text};
use crate::handle::{HeartbeatResult, NodeHeartbeat, changed_profile};
use crate::node::Assignment;
use crate::{Engine, NodeError, Timer};

/// Longest poll that is passed on at a time.
const POLL_MS_MAX: u64 = 30_000;

/// Most nodes of other instances whose last call is remembered.
const SEEN_MAX: usize = 16_384;

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
        if let Some(epoch) = heartbeat.epoch.filter(|epoch| *epoch != record.place.epoch) {
            return Err(self.refuse_epoch(epoch, record.place));
        }
        if let Some(profile) = changed_profile(&heartbeat, &record.profile) {
            let health = heartbeat.health.unwrap_or(record.health);
            let record = NodeRecord { health, ..record.clone() };
            self.change_profile(&record, profile).await?;
        }
        let listed = heartbeat.running.as_deref().unwrap_or_default();
        let (place, profile) = (record.place, &record.profile);
        let renewed = self.store_heartbeat(place, None, profile, &heartbeat, listed).await?;
        let seen = NodeSeen {
            node: Text(heartbeat.node.clone()),
            running: heartbeat.running.as_ref().map(|r| r.iter().map(|&k| k.into()).collect()),
            is_changed: heartbeat.health.is_some()
                || heartbeat.load.is_some()
                || heartbeat.profile.is_some(),
        };
        // Its own instance knows what it runs, and goes on with what it has said here.
        self.send(&record.via, Head::NodeSeen(seen));
        Ok(renewed.into_result(listed))
    }

    /// Tells the instance of a node that the node has called here, once in a heartbeat interval.
    pub(crate) fn seen_elsewhere(&self, record: &NodeRecord) {
        let node = &record.node;
        let now_ms = self.now_ms();
        let mut seen = self.bus.seen_nodes.lock();
        if seen.len() >= SEEN_MAX {
            seen.clear();
        }
        let told_ms = seen.insert(node.clone(), now_ms);
        if told_ms.is_some_and(|told| now_ms < told + self.options.times.heartbeat_ms) {
            seen.extend(told_ms.map(|told| (node.clone(), told)));
            return;
        }
        drop(seen);
        let (node, running) = (Text(node.clone()), None);
        self.send(&record.via, Head::NodeSeen(NodeSeen { node, running, is_changed: false }));
    }

    /// A node that is registered here has called at another instance.
    pub(super) fn on_node_seen(&self, seen: NodeSeen) {
        let Some(node) = self.nodes.get(&seen.node.0) else { return };
        if let Some(listed) = seen.running {
            let listed: Vec<LeaseKey> = listed.into_iter().map(|key| key.lease()).collect();
            node.running.keep_listed(&listed, self.now_ms(), self.options.times.ack_ms);
        }
        self.touch_if_due(&node);
        if !seen.is_changed {
            return;
        }
        let engine = self.handle();
        self.spawn_background(async move {
            if let Ok(Some(record)) = engine.record_of(&node.node).await
                && node.has_epoch(record.place.epoch)
            {
                *node.profile.write() = record.profile;
                *node.health.lock() = record.health;
                *node.load.lock() = record.load;
            }
        });
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
        let (to, node) = (to.clone(), node.clone());
        self.spawn_background(async move {
            let epoch = engine.nodes.get(&node).map_or(Epoch(0), |node| node.place().epoch);
            let Ok(jobs) = engine.poll_here(&node, wait_ms.min(POLL_MS_MAX)).await else {
                engine.send(&to, Head::PollReply { id, jobs: None });
                return;
            };
            for job in &jobs {
                let (assign, blobs) = assign::encode(job, &node, epoch, 0, engine.now_ms());
                engine.send(&to, BusMessage { head: Head::PolledJob { id, assign }, blobs });
            }
            engine.send(&to, Head::PollReply { id, jobs: Some(jobs.len() as u32) });
        });
    }
}
