//! Nodes without WebSocket that ask for their jobs at another instance than the one where they registered.
//!
//! Start at [`Handle::poll_elsewhere`]. Where a node registered, its jobs gather; whoever is asked asks there. If that instance is dead,
//! the node has to register again.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use lingua_core::{Epoch, InstanceId, NodeId, Profile};
use lingua_store::Store;
use lingua_store::contract::{
    NodeCommand, NodeCommandReply, NodeRecord, RegisterReply, RegisterRequest,
};

use super::Answered;
use super::assign::written;
use super::message::{BusMessage, Head};
use crate::clock::Timer;
use crate::error::NodeError;
use crate::handle::{Handle, HeartbeatAck, NodeHeartbeat};
use crate::node::Assignment;

/// Longest poll that is passed on at a time.
const POLL_MS_MAX: u64 = 30_000;

/// How much later than promised the other instance may answer.
const LATE_MS: u64 = 1_000;

type PollFuture = Pin<Box<dyn Future<Output = Option<Vec<Assignment>>> + Send>>;

/// How the edge fetches the jobs of a node that polls: nothing if it has no such node.
#[derive(Clone)]
pub struct Polls(Arc<dyn Fn(NodeId, Epoch, u64) -> PollFuture + Send + Sync>);

impl Polls {
    /// From a function of the edge: node, epoch, and how long to wait in milliseconds.
    pub fn new(f: impl Fn(NodeId, Epoch, u64) -> PollFuture + Send + Sync + 'static) -> Self {
        Self(Arc::new(f))
    }
}

impl fmt::Debug for Polls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Polls")
    }
}

impl<S: Store, T: Timer> Handle<S, T> {
    /// Says how other instances fetch the jobs of nodes that poll. Once, by the edge.
    pub fn answer_polls(&self, polls: Polls) {
        self.shared.bus.polls.set(polls).ok();
    }

    /// A node that is registered at another instance: its record.
    pub(crate) async fn node_elsewhere(&self, node: &NodeId) -> Result<NodeRecord, NodeError> {
        let place = self.shared.store.locate(node).await?.ok_or(NodeError::NotRegistered)?;
        let view = self.shared.store.view(place.cell).await?;
        let found = view.nodes.into_iter().find(|known| known.node == *node);
        let known = found.ok_or(NodeError::NotRegistered)?;
        // Without the instance that it is connected to there is no way to it: it has to register anew.
        match known.via != self.shared.options.instance && self.is_alive(&known.via).await? {
            true => Ok(known),
            false => Err(NodeError::NotRegistered),
        }
    }

    /// Whether an instance is there; one that was not when last looked at may have come since.
    async fn is_alive(&self, instance: &InstanceId) -> Result<bool, NodeError> {
        let was_there = || self.shared.alive.lock().contains(instance);
        if !was_there() {
            self.refresh_instances().await?;
        }
        Ok(was_there())
    }

    /// The profile that a node has now, wherever it is registered.
    pub async fn profile_anywhere(&self, node: &NodeId) -> Result<Arc<Profile>, NodeError> {
        match self.profile_of(node) {
            Some(profile) => Ok(profile),
            None => Ok(self.node_elsewhere(node).await?.profile),
        }
    }

    /// Takes a sign of life of a node that registered at another instance.
    pub(crate) async fn heartbeat_elsewhere(
        &self,
        beat: NodeHeartbeat,
    ) -> Result<HeartbeatAck, NodeError> {
        let shared = &self.shared;
        let known = self.node_elsewhere(&beat.node).await?;
        let place = known.place;
        if beat.epoch.is_some_and(|epoch| epoch != place.epoch) {
            shared.metrics.node_rejected.count("stale_epoch");
            return Err(NodeError::StaleEpoch { current: place.epoch });
        }
        if let Some(profile) = beat.profile.clone().filter(|new| **new != *known.profile) {
            let registration = RegisterRequest {
                place,
                node: known.node,
                profile,
                health: beat.health.unwrap_or_default(),
                cost_ms: known.cost_ms,
                fresh_ms: shared.options.times.stale_ms,
                version: known.version,
                via: known.via,
            };
            match shared.store.register(registration).await? {
                RegisterReply::Registered { lost } => shared.leases_lost(lost),
                RegisterReply::Stale { current } => return Err(NodeError::StaleEpoch { current }),
            }
        }
        self.beat(place, None, &known.profile, beat).await
    }

    /// A node that registered at another instance signs off: its jobs are retried at once.
    pub async fn offline_elsewhere(&self, node: &NodeId) -> Result<(), NodeError> {
        let place = self.node_elsewhere(node).await?.place;
        match self.shared.store.set_state(place, NodeCommand::Offline).await? {
            NodeCommandReply::Set { lost } => self.shared.leases_lost(lost),
            NodeCommandReply::Stale => {}
        }
        Ok(())
    }

    /// Whether a node is registered somewhere.
    pub async fn knows_anywhere(&self, node: &NodeId) -> Result<bool, NodeError> {
        if self.knows(node) {
            return Ok(true);
        }
        match self.node_elsewhere(node).await {
            Err(NodeError::NotRegistered) => Ok(false),
            known => known.map(|_| true),
        }
    }

    /// Fetches the jobs of a node that registered at another instance.
    pub async fn poll_elsewhere(
        &self,
        node: &NodeId,
        wait_ms: u64,
    ) -> Result<Vec<Assignment>, NodeError> {
        let shared = &self.shared;
        let known = self.node_elsewhere(node).await?;
        let wait_ms = wait_ms.min(POLL_MS_MAX);
        let name = node.to_string();
        let question = |id| Head::Poll { id, node: name, wait_ms }.into();
        match shared.ask(&known.via, wait_ms + LATE_MS, question).await {
            Some(Answered::Polled(Some(parts))) => {
                let read = |part: &BusMessage| match &part.head {
                    Head::PolledJob { order, .. } => shared.read_order(order, &part.blobs),
                    _ => None,
                };
                Ok(parts.iter().filter_map(read).collect())
            }
            _ => Err(NodeError::NotRegistered),
        }
    }

    /// Another instance fetches the jobs of a node that is registered here.
    pub(super) fn answer_poll(&self, to: &InstanceId, id: u64, node: &str, wait_ms: u64) {
        let shared = Arc::clone(&self.shared);
        let local = node.parse().ok().and_then(|node| shared.nodes.get(&node));
        let (Some(local), Some(polls)) = (local, shared.bus.polls.get().cloned()) else {
            shared.send(to, Head::Polled { id, jobs: None });
            return;
        };
        let to = to.clone();
        self.shared.spawn_background(async move {
            let epoch = local.place.epoch;
            let jobs = polls.0(local.node.clone(), epoch, wait_ms.min(POLL_MS_MAX)).await;
            for job in jobs.iter().flatten() {
                let now_ms = shared.now_ms();
                let (order, blobs) = written(job, (local.node.as_str(), epoch), 0, now_ms);
                shared.send(&to, BusMessage { head: Head::PolledJob { id, order }, blobs });
            }
            let jobs = jobs.map(|jobs| jobs.len() as u32);
            shared.send(&to, Head::Polled { id, jobs });
        });
    }
}
