//! Calls for nodes: registering, heartbeats, polling for jobs, signing off.
//!
//! Start at [`Engine::register`]. Calls about a node that registered at another instance go on in
//! `bus/remote_nodes.rs`.

use std::sync::Arc;

use lingua_core::job::AttemptOutcome;
use lingua_core::planted::{self, Bug};
use lingua_core::{Epoch, Health, Load, NodeId, NodeState, Profile};
use lingua_store::Store;
use lingua_store::contract::{
    AssignRequest, HeartbeatReply, HeartbeatRequest, Incarnation, LeaseKey, NodeClass, NodeCommand,
    NodeCommandReply, NodeRecord, NodeSpeed, Place, RegisterReply, RegisterRequest,
};
use tokio::sync::mpsc;

use crate::cost::Cost;
use crate::mailbox::Mailbox;
use crate::node::{Assignment, LocalNode, Outbox, ToNode};
use crate::state::timed;
use crate::{Engine, NodeError, Timer};

/// Jobs of other instances that are looked up at each heartbeat of a node.
const CHECKED_MAX: usize = 32;

/// A node that connects.
#[derive(Debug, Clone)]
pub struct NodeRegistration {
    /// The name of the node.
    pub node: NodeId,
    /// Its languages, services and slots.
    pub profile: Arc<Profile>,
    /// Its health at the start.
    pub health: Health,
    /// The version of its software, for people.
    pub version: Option<Arc<str>>,
    /// Takes the messages to the node.
    pub outbox: Outbox,
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

/// A node's heartbeat.
#[derive(Debug, Clone)]
pub struct NodeHeartbeat {
    /// The name of the node.
    pub node: NodeId,
    /// The epoch that it registered with, if it names it.
    pub epoch: Option<Epoch>,
    /// Its health, if it reports it.
    pub health: Option<Health>,
    /// How busy it is.
    pub load: Load,
    /// The attempts that it runs.
    pub running: Vec<LeaseKey>,
    /// Its capabilities, if they have changed.
    pub profile: Option<Arc<Profile>>,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatResult {
    /// Attempts that the node has to stop.
    pub cancel: Vec<LeaseKey>,
    /// Whether the node has to finish its jobs and take no new ones.
    pub drain: bool,
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// Connects a node. An earlier connection of the same node is closed.
    pub async fn register(&self, r: NodeRegistration) -> Result<RegisteredNode, NodeError> {
        self.register_with(r, None).await
    }

    /// Registers a node without WebSocket; it fetches its jobs with [`Engine::poll`].
    pub async fn register_polling(
        &self,
        node: NodeId,
        profile: Arc<Profile>,
        health: Health,
        version: Option<Arc<str>>,
    ) -> Result<RegisteredNode, NodeError> {
        let (outbox, inbox) = mpsc::channel(self.options.bounds.outbox_max);
        let registration = NodeRegistration { node, profile, health, version, outbox };
        self.register_with(registration, Some(Mailbox::new(inbox))).await
    }

    async fn register_with(
        &self,
        r: NodeRegistration,
        mailbox: Option<Arc<Mailbox>>,
    ) -> Result<RegisteredNode, NodeError> {
        let NodeRegistration { node, profile, health, version, outbox } = r;
        let incarnation = Incarnation(self.random_u64());
        let assign = AssignRequest { node: node.clone(), incarnation, class: class_of(&profile) };
        let place = self.store.assign(assign).await?;
        let cost = self.nodes.get(&node).map(|node| *node.cost.lock()).unwrap_or_default();
        let request = RegisterRequest {
            place,
            node: node.clone(),
            profile: Arc::clone(&profile),
            health,
            speed: cost.speed(self.typical_ms()),
            fresh_ms: self.options.times.stale_ms,
            version,
            via: self.options.instance.clone(),
        };
        let speed = self.store_registration(request).await?;
        let cost = if cost.is_known() { cost } else { Cost::from_speed(speed) };
        let local = LocalNode::new(node, place, profile.clone(), health, outbox, mailbox, cost);
        if !self.nodes.attach(local) {
            return Err(NodeError::StaleEpoch { current: place.epoch });
        }
        self.announce_slots(place, &profile);
        let pairs = profile.capabilities().pair_count(self.options.rules.semantic);
        Ok(RegisteredNode { place, pairs, heartbeat_ms: self.options.times.heartbeat_ms })
    }

    /// Registers a node in the store; gives what is known there of its speed.
    async fn store_registration(&self, request: RegisterRequest) -> Result<NodeSpeed, NodeError> {
        match timed!(self, "register", self.store.register(request))? {
            RegisterReply::Registered { lost, speed } => {
                self.leases_lost(lost);
                Ok(speed)
            }
            RegisterReply::Stale { current } => Err(NodeError::StaleEpoch { current }),
        }
    }

    /// Wakes as many waiting jobs as the node has slots.
    fn announce_slots(&self, place: Place, profile: &Profile) {
        self.routes.changed(place.cell);
        for _ in 0..profile.slots_max() {
            self.queue.wake_for(profile);
        }
    }

    /// Handles a heartbeat.
    pub async fn heartbeat(&self, heartbeat: NodeHeartbeat) -> Result<HeartbeatResult, NodeError> {
        let Some(node) = self.nodes.get(&heartbeat.node) else {
            return Box::pin(self.heartbeat_elsewhere(heartbeat)).await;
        };
        let place = node.place;
        self.check_epoch(&heartbeat, place)?;
        if let Some(health) = heartbeat.health {
            *node.health.lock() = health;
        }
        if self.compare_store().await?.is_some()
            && self.store.locate(&heartbeat.node).await? != Some(place)
        {
            // The store lost the node's place in a failover: jobs and commands would not find it.
            return Err(NodeError::NotRegistered);
        }
        if let Some(profile) = changed_profile(&heartbeat, &node.profile()) {
            let record = self.record_of(&heartbeat.node).await?.ok_or(NodeError::NotRegistered)?;
            let health = *node.health.lock();
            let speed = node.cost.lock().speed(self.typical_ms());
            let record = NodeRecord { health, speed, ..record };
            self.change_profile(&record, Arc::clone(&profile)).await?;
            *node.profile.write() = profile;
        }
        let speed = {
            let mut cost = node.cost.lock();
            cost.fade(self.now_ms());
            cost.speed(self.typical_ms())
        };
        let mut ack = self.store_heartbeat(place, Some(speed), &node.profile(), heartbeat).await?;
        if let Some(mailbox) = &node.mailbox {
            ack.cancel.extend(mailbox.take_cancelled());
        }
        Ok(ack)
    }

    pub(crate) fn check_epoch(
        &self,
        heartbeat: &NodeHeartbeat,
        place: Place,
    ) -> Result<(), NodeError> {
        if heartbeat.epoch.is_none_or(|epoch| epoch == place.epoch) {
            return Ok(());
        }
        self.metrics.node_rejected.count("stale_epoch");
        Err(NodeError::StaleEpoch { current: place.epoch })
    }

    /// Registers a node again with other capabilities; everything else stays as it is.
    pub(crate) async fn change_profile(
        &self,
        record: &NodeRecord,
        profile: Arc<Profile>,
    ) -> Result<(), NodeError> {
        let request = RegisterRequest {
            profile: Arc::clone(&profile),
            ..RegisterRequest::repeat(record, self.options.times.stale_ms)
        };
        self.store_registration(request).await?;
        self.announce_slots(record.place, &profile);
        Ok(())
    }

    /// Passes a heartbeat on to the store.
    pub(crate) async fn store_heartbeat(
        &self,
        place: Place,
        speed: Option<NodeSpeed>,
        profile: &Profile,
        heartbeat: NodeHeartbeat,
    ) -> Result<HeartbeatResult, NodeError> {
        let request = HeartbeatRequest {
            place,
            health: heartbeat.health,
            load: heartbeat.load,
            speed,
            running: heartbeat.running.clone(),
            fresh_ms: self.options.times.stale_ms,
            lease_ms: self.options.times.run_lease_ms,
        };
        match timed!(self, "heartbeat", self.store.heartbeat(request))? {
            HeartbeatReply::Accepted { drain, unknown } => {
                let mut cancel = match planted::is(Bug::RunWithoutLease) {
                    true => vec![],
                    false => unknown,
                };
                // The node will stop them; their runners must not wait for a timer.
                self.leases_lost(cancel.iter().copied());
                cancel.extend(self.release_ended(place, profile, &heartbeat.running).await);
                Ok(HeartbeatResult { cancel, drain })
            }
            HeartbeatReply::Reregister => Err(NodeError::NotRegistered),
        }
    }

    /// Releases the slots that a node holds for jobs which have ended, and returns them. Each
    /// heartbeat renews the leases of what a node runs, so a slot whose release was lost would be
    /// held for as long as the node runs the job.
    async fn release_ended(
        &self,
        place: Place,
        profile: &Profile,
        running: &[LeaseKey],
    ) -> Vec<LeaseKey> {
        let mut ended = vec![];
        let not_live = running.iter().filter(|key| self.live.get(key.job).is_none());
        for &key in not_live.take(CHECKED_MAX) {
            // If the store does not answer, the next heartbeat asks again.
            let Ok(record) = self.store.job(key.job).await else { break };
            let is_wanted = record.is_some_and(|record| {
                !record.stage.state.is_terminal() && record.stage.attempt <= key.attempt
            });
            if is_wanted || planted::is(Bug::EndedJobKeepsSlot) {
                continue;
            }
            if let Ok(Some(_)) = self.store.finish(place.cell, key, AttemptOutcome::Unknown).await {
                self.queue.wake_for(profile);
            }
            ended.push(key);
        }
        ended
    }

    /// The profile of a node, at whichever instance it registered.
    pub async fn profile_of(&self, node: &NodeId) -> Result<Arc<Profile>, NodeError> {
        match self.nodes.get(node) {
            Some(node) => Ok(node.profile()),
            None => Ok(self.node_elsewhere(node).await?.profile),
        }
    }

    /// Whether a node is registered, here or at another instance.
    pub async fn is_registered(&self, node: &NodeId) -> Result<bool, NodeError> {
        if self.nodes.get(node).is_some() {
            return Ok(true);
        }
        match self.node_elsewhere(node).await {
            Err(NodeError::NotRegistered) => Ok(false),
            known => known.map(|_| true),
        }
    }

    /// Waits up to `wait_ms` for jobs of a node without WebSocket.
    pub async fn poll(&self, node: &NodeId, wait_ms: u64) -> Result<Vec<Assignment>, NodeError> {
        let Some(local) = self.nodes.get(node) else {
            return self.poll_elsewhere(node, wait_ms).await;
        };
        // Only the mailbox is kept, so that it closes when the node leaves.
        let mailbox = local.mailbox.clone().ok_or(NodeError::NotPolling)?;
        drop(local);
        Ok(mailbox.jobs(self.timer.sleep(wait_ms)).await)
    }

    /// Signs a node off, at whichever instance it registered: its jobs are retried at once.
    pub async fn sign_off(&self, node: &NodeId) -> Result<(), NodeError> {
        match self.nodes.get(node) {
            Some(local) => self.disconnect(node, local.place.epoch).await,
            None => {
                let place = self.node_elsewhere(node).await?.place;
                self.set_offline(place).await
            }
        }
    }

    /// Tells a node to drain, or to take jobs again. Returns the state that it is in then, `None`
    /// if it is not registered.
    pub async fn set_drain(
        &self,
        node: &NodeId,
        drain: bool,
    ) -> Result<Option<NodeState>, NodeError> {
        let Some(place) = self.store.locate(node).await? else { return Ok(None) };
        let command = if drain { NodeCommand::Drain } else { NodeCommand::Resume };
        if self.store.set_state(place, command).await? == NodeCommandReply::Stale {
            return Ok(None);
        }
        match self.nodes.get(node) {
            Some(local) if drain => drop(local.outbox.try_send(ToNode::Drain)),
            Some(local) => self.announce_slots(place, &local.profile()),
            None => {}
        }
        Ok(self.record_of(node).await?.map(|record| record.state))
    }

    /// The store's record of a node.
    pub(crate) async fn record_of(
        &self,
        node: &NodeId,
    ) -> lingua_store::Result<Option<NodeRecord>> {
        Ok(self.timed_record_of(node).await?.map(|(_, record)| record))
    }
}

/// The new capabilities in a heartbeat, if they differ from the current ones.
pub(crate) fn changed_profile(
    heartbeat: &NodeHeartbeat,
    current: &Profile,
) -> Option<Arc<Profile>> {
    heartbeat.profile.clone().filter(|new| **new != *current)
}

/// Nodes with the same languages are of one class. Every instance must compute the same number, so
/// the hash is a plain one (FNV-1a).
fn class_of(profile: &Profile) -> NodeClass {
    let caps = profile.capabilities();
    let mut hash: u32 = 0x811C_9DC5;
    let mut mix = |byte: u8| hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    for list in [caps.asr(), caps.semantic(), caps.tts()] {
        for lang in list.as_slice() {
            lang.as_str().bytes().chain([b' ']).for_each(&mut mix);
        }
        mix(b';');
    }
    NodeClass(hash)
}
