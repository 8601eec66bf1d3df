//! Signs of life of nodes: heartbeats, and everything else that a node sends.
//!
//! Start at [`Engine::heartbeat`] and [`Engine::touch`]. Both renew the leases of what the node
//! runs. A node that is connected here and that the store has forgotten is registered again, from
//! what it said last ([`Engine::restore`]).
//!
//! Invariant: what a heartbeat leaves out stays as it was.

use std::sync::Arc;

use lingua_core::job::AttemptOutcome;
use lingua_core::planted::{self, Bug};
use lingua_core::{Epoch, Health, Load, NodeId, NodeState, Profile, TokenName};
use lingua_store::Store;
use lingua_store::contract::{
    HeartbeatReply, HeartbeatRequest, KeptLeases, LeaseKey, NodeCommand, NodeRecord, NodeSpeed,
    Place,
};

use super::NodeRegistration;
use crate::node::{LocalNode, ToNode};
use crate::state::timed;
use crate::{Engine, NodeError, Timer};

/// Jobs of other instances that are looked up at each heartbeat of a node.
const CHECKED_MAX: usize = 32;

/// A node's heartbeat.
#[derive(Debug, Clone)]
pub struct NodeHeartbeat {
    /// The name of the node.
    pub node: NodeId,
    /// The epoch that it registered with, if it names it.
    pub epoch: Option<Epoch>,
    /// Its health, if it reports it.
    pub health: Option<Health>,
    /// How busy it is, if it reports it.
    pub load: Option<Load>,
    /// The attempts that it runs, if it lists them.
    pub running: Option<Vec<LeaseKey>>,
    /// Its capabilities, if they have changed.
    pub profile: Option<Arc<Profile>>,
}

impl NodeHeartbeat {
    /// A heartbeat that says nothing but that the node is alive.
    pub fn of(node: NodeId) -> Self {
        Self { node, epoch: None, health: None, load: None, running: None, profile: None }
    }
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
    /// Handles a heartbeat.
    pub async fn heartbeat(&self, heartbeat: NodeHeartbeat) -> Result<HeartbeatResult, NodeError> {
        tracing::debug!(
            node_id = %heartbeat.node,
            health = ?heartbeat.health,
            load = ?heartbeat.load,
            running = heartbeat.running.as_ref().map(Vec::len),
            "heartbeat",
        );
        let Some(node) = self.nodes.get(&heartbeat.node) else {
            return Box::pin(self.heartbeat_elsewhere(heartbeat)).await;
        };
        if let Some(epoch) = heartbeat.epoch.filter(|epoch| !node.has_epoch(*epoch)) {
            return Err(self.refuse_epoch(epoch, node.place()));
        }
        if let Some(health) = heartbeat.health {
            *node.health.lock() = health;
        }
        if let Some(load) = heartbeat.load {
            *node.load.lock() = load;
        }
        if let Some(listed) = &heartbeat.running {
            node.running.keep_listed(listed, self.now_ms(), self.options.times.ack_ms);
        }
        if let Some(profile) = changed_profile(&heartbeat, &node.profile()) {
            let record = self.record_of(&node.node).await?;
            let record = match record.filter(|record| record.place == node.place()) {
                Some(record) => record,
                None => {
                    self.restore(&node).await?;
                    self.record_of(&node.node).await?.ok_or(NodeError::NotRegistered)?
                }
            };
            let speed = node.cost.lock().speed(self.typical_ms());
            let health = heartbeat.health.unwrap_or(record.health);
            let record = NodeRecord { health, speed, ..record };
            self.change_profile(&record, Arc::clone(&profile)).await?;
            *node.profile.write() = profile;
        }
        node.cost.lock().fade(self.now_ms());
        let mut ack = self.renew(&node, &heartbeat).await?;
        if let Some(mailbox) = &node.mailbox {
            ack.cancel.extend(mailbox.take_cancelled());
        }
        Ok(ack)
    }

    /// The node has sent something other than a heartbeat: it is alive, and what it runs goes on.
    pub async fn touch(&self, node: &NodeId) -> Result<(), NodeError> {
        let node = self.nodes.get(node).ok_or(NodeError::NotRegistered)?;
        for key in self.renew(&node, &NodeHeartbeat::of(node.node.clone())).await?.cancel {
            node.cancel(key);
        }
        Ok(())
    }

    /// The same without waiting: a slow store must not hold up what the node's connection carries.
    /// The connection of a node that is not registered any more is given up; its outbox ends.
    pub fn touch_later(&self, node: &NodeId) {
        let Some(local) = self.nodes.get(node) else { return };
        let (engine, epoch) = (self.handle(), local.place().epoch);
        self.spawn_background(async move {
            match engine.touch(&local.node).await {
                // The store is away: the next sign of life tries again.
                Ok(()) | Err(NodeError::Store(_)) => {}
                Err(error) => {
                    tracing::debug!(node_id = %local.node, %error, "a node is not registered");
                    engine.nodes.detach(&local.node, epoch);
                }
            }
        });
    }

    /// A node without WebSocket has called: it is alive. This is stored once in a heartbeat
    /// interval. Fails if the node is not registered, at this instance or another, or belongs to
    /// another token.
    pub async fn seen(&self, node: &NodeId, caller: Option<&TokenName>) -> Result<(), NodeError> {
        match self.nodes.get(node) {
            Some(local) => {
                self.check_owner(&local.profile(), caller)?;
                self.touch_if_due(&local);
            }
            None => {
                let record = self.node_elsewhere(node).await?;
                self.check_owner(&record.profile, caller)?;
                self.seen_elsewhere(&record);
            }
        }
        Ok(())
    }

    /// Writes a sign of life of a node here, unless one was written in this heartbeat interval.
    pub(crate) fn touch_if_due(&self, node: &Arc<LocalNode>) {
        if node.is_renewal_due(self.now_ms(), self.options.times.heartbeat_ms) {
            let (engine, node) = (self.handle(), node.node.clone());
            self.spawn_background(async move {
                if let Err(error) = engine.touch(&node).await {
                    tracing::debug!(node_id = %node, %error, "cannot renew a node");
                }
            });
        }
    }

    /// Writes a sign of life of a node here, and registers the node again if the store has
    /// forgotten it.
    async fn renew(
        &self,
        node: &Arc<LocalNode>,
        heartbeat: &NodeHeartbeat,
    ) -> Result<HeartbeatResult, NodeError> {
        node.set_renewed(self.now_ms());
        self.ensure_registered(node).await?;
        match self.renew_once(node, heartbeat).await {
            Err(NodeError::NotRegistered) => {
                self.restore(node).await?;
                let load = Some(*node.load.lock());
                self.renew_once(node, &NodeHeartbeat { load, ..heartbeat.clone() }).await
            }
            renewed => renewed,
        }
    }

    async fn renew_once(
        &self,
        node: &LocalNode,
        heartbeat: &NodeHeartbeat,
    ) -> Result<HeartbeatResult, NodeError> {
        let listed = heartbeat.running.as_deref().unwrap_or_default();
        let mut running = node.running.keys();
        running.extend(
            listed.iter().filter(|key| !running.contains(key)).copied().collect::<Vec<_>>(),
        );
        let (place, speed) = (node.place(), node.cost.lock().speed(self.typical_ms()));
        let profile = node.profile();
        let reply = self.store_heartbeat(place, Some(speed), &profile, heartbeat, &running).await?;
        for (key, _) in &reply.over {
            node.running.over(*key);
        }
        let is_known = |key: &LeaseKey| reply.over.iter().all(|(over, _)| over != key);
        node.running.confirmed(listed.iter().copied().filter(is_known), self.now_ms());
        Ok(reply.into_result(listed))
    }

    pub(crate) fn refuse_epoch(&self, epoch: Epoch, place: Place) -> NodeError {
        tracing::debug!(epoch = epoch.0, current = place.epoch.0, "refused a heartbeat");
        self.metrics.node_rejected.count("stale_epoch");
        NodeError::StaleEpoch { current: place.epoch }
    }

    /// After a failover of the store: registers a node again whose place the store has lost. Jobs
    /// and commands would not find it.
    async fn ensure_registered(&self, node: &Arc<LocalNode>) -> Result<(), NodeError> {
        let is_lost = self.compare_store().await?.is_some()
            && self.store.locate(&node.node).await? != Some(node.place());
        match is_lost {
            true => self.restore(node).await,
            false => Ok(()),
        }
    }

    /// Registers a node again that is connected here and that the store has forgotten. Fails if
    /// the node was signed off, or has another connection.
    async fn restore(&self, node: &Arc<LocalNode>) -> Result<(), NodeError> {
        let _alone = node.registering.lock().await;
        let place = node.place();
        let known = self.store.locate(&node.node).await?;
        if let Some(known) = known.filter(|known| known.epoch > place.epoch) {
            return Err(NodeError::StaleEpoch { current: known.epoch });
        }
        if node.is_closed() {
            return Err(NodeError::NotRegistered);
        }
        if known == Some(place) {
            let view = self.store.view(place.cell).await?;
            let record = view.nodes.into_iter().find(|record| record.place == place);
            match record.map(|record| record.state) {
                Some(NodeState::Offline) => return Err(NodeError::NotRegistered),
                // Another call was faster.
                Some(_) => return Ok(()),
                None => {}
            }
        }
        let registration = NodeRegistration {
            node: node.node.clone(),
            is_named: node.is_named,
            profile: node.profile(),
            owned_max: None,
            tenant_max: None,
            health: *node.health.lock(),
            version: node.version.lock().clone(),
            running: vec![],
            outbox: node.outbox.clone(),
        };
        let registered = self.enter(node, &registration).await?;
        tracing::info!(
            node_id = %node.node,
            epoch = registered.place.epoch.0,
            "the store had forgotten a connected node; it is registered again"
        );
        node.outbox.try_send(ToNode::Registered(registered)).ok();
        Ok(())
    }

    /// Registers the node of a connection again, with another epoch. What it runs goes on.
    pub async fn register_again(
        &self,
        registration: NodeRegistration,
    ) -> Result<crate::node::RegisteredNode, NodeError> {
        let node = self.nodes.get(&registration.node).ok_or(NodeError::NotRegistered)?;
        if !node.outbox.same_channel(&registration.outbox) {
            return Err(NodeError::StaleEpoch { current: node.place().epoch });
        }
        let _alone = node.registering.lock().await;
        let registered = self.enter(&node, &registration).await?;
        *node.profile.write() = registration.profile;
        *node.health.lock() = registration.health;
        *node.load.lock() = Load::default();
        *node.version.lock() = registration.version;
        Ok(registered)
    }

    /// Gives a connection that has an epoch another one; the leases of the node are kept.
    async fn enter(
        &self,
        node: &LocalNode,
        r: &NodeRegistration,
    ) -> Result<crate::node::RegisteredNode, NodeError> {
        let place = self.assign(r).await?;
        node.expect_epoch(place.epoch);
        let speed = node.cost.lock().speed(self.typical_ms());
        let request = self.register_request(r, place, speed, KeptLeases::All);
        self.store_registration(request).await?;
        let before = node.place();
        node.set_place(place);
        if (before.cell, before.slot) != (place.cell, place.slot) {
            // What may be left of the earlier registration must get no jobs.
            self.sign_off_at(before, NodeCommand::Retire).await.ok();
        }
        node.set_renewed(self.now_ms());
        self.announce_slots(&r.node, place, &r.profile);
        Ok(self.registered_node(place, &r.profile))
    }

    /// Passes a heartbeat on to the store; renews the leases of what the node runs.
    pub(crate) async fn store_heartbeat(
        &self,
        place: Place,
        speed: Option<NodeSpeed>,
        profile: &Profile,
        heartbeat: &NodeHeartbeat,
        running: &[LeaseKey],
    ) -> Result<Renewed, NodeError> {
        let request = HeartbeatRequest {
            place,
            health: heartbeat.health,
            load: heartbeat.load,
            speed,
            running: running.to_vec(),
            fresh_ms: self.options.times.stale_ms,
            lease_ms: self.options.times.run_lease_ms,
        };
        if let Some(load) = request.load {
            self.metrics.count_overload(load, self.options.rules.thresholds);
        }
        let (drain, unknown) = match timed!(self, "heartbeat", self.store.heartbeat(request))? {
            HeartbeatReply::Accepted { drain, unknown } => (drain, unknown),
            HeartbeatReply::Reregister => return Err(NodeError::NotRegistered),
        };
        let unknown = if planted::is(Bug::RunWithoutLease) { vec![] } else { unknown };
        // The node will stop them; their runners must not wait for a timer.
        self.leases_lost_by(&heartbeat.node, unknown.iter().copied());
        let ended = self.release_ended(place, profile, running).await;
        let over = unknown.into_iter().map(|key| (key, false));
        Ok(Renewed { over: over.chain(ended.into_iter().map(|key| (key, true))).collect(), drain })
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
}

/// What a heartbeat found.
pub(crate) struct Renewed {
    /// The attempts that the node must not go on with, and whether they held a slot until now.
    pub(crate) over: Vec<(LeaseKey, bool)>,
    drain: bool,
}

impl Renewed {
    /// The reply to the node. Attempts that it did not list and that have no lease may be long
    /// over; their owners tell it what to stop.
    pub(crate) fn into_result(self, listed: &[LeaseKey]) -> HeartbeatResult {
        let is_told = |(key, held): &(LeaseKey, bool)| *held || listed.contains(key);
        let mut cancel: Vec<LeaseKey> =
            self.over.into_iter().filter(is_told).map(|(key, _)| key).collect();
        cancel.dedup();
        HeartbeatResult { cancel, drain: self.drain }
    }
}

/// The new capabilities in a heartbeat, if they differ from the current ones.
pub(crate) fn changed_profile(
    heartbeat: &NodeHeartbeat,
    current: &Profile,
) -> Option<Arc<Profile>> {
    heartbeat.profile.clone().filter(|new| **new != *current)
}
