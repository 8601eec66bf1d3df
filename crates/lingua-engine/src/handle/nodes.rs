//! Calls for nodes: registering, polling for jobs, signing off. Heartbeats are in
//! `heartbeats.rs`.
//!
//! Start at [`Engine::register`]. Calls about a node that registered at another instance go on in
//! `bus/remote_nodes.rs`.

use std::sync::Arc;

use lingua_core::{Health, Load, NodeId, NodeState, Profile, TokenName};
use lingua_store::contract::{
    AssignReply, AssignRequest, Incarnation, KeptLeases, LeaseKey, NodeClass, NodeCommand,
    NodeCommandReply, NodeRecord, NodeSpeed, Place, RegisterReply, RegisterRequest,
};
use lingua_store::{Store, StoreError};
use tokio::sync::mpsc;

use crate::cost::Cost;
use crate::mailbox::Mailbox;
use crate::node::{Assignment, LocalNode, Outbox, RegisteredNode, ToNode};
use crate::state::timed;
use crate::tenant_nodes::Room;
use crate::{Engine, NodeError, Timer};

/// A fleet is told to send at most so many heartbeats in a second.
const HEARTBEATS_PER_SECOND_MAX: u64 = 1000;

/// A node that connects.
#[derive(Debug, Clone)]
pub struct NodeRegistration {
    /// The name of the node.
    pub node: NodeId,
    /// Whether the node gave its name. The record of another one goes with its connection.
    pub is_named: bool,
    /// Its languages, services and slots, and who registers it.
    pub profile: Arc<Profile>,
    /// Most nodes that belong to the token that registers it.
    pub owned_max: Option<usize>,
    /// Most nodes of its tenant that register through this instance.
    pub tenant_max: Option<usize>,
    /// Its health at the start.
    pub health: Health,
    /// The version of its software, for people.
    pub version: Option<Arc<str>>,
    /// The attempts that it runs and goes on with.
    pub running: Vec<LeaseKey>,
    /// Takes the messages to the node.
    pub outbox: Outbox,
}

impl NodeRegistration {
    /// A ready node that gave its name and runs nothing.
    pub fn new(node: NodeId, profile: Arc<Profile>, outbox: Outbox) -> Self {
        let (is_named, owned_max, tenant_max, health) = (true, None, None, Health::Ready);
        let (version, running) = (None, vec![]);
        Self { node, is_named, profile, owned_max, tenant_max, health, version, running, outbox }
    }
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// Connects a node. An earlier connection of the same node is closed.
    pub async fn register(&self, r: NodeRegistration) -> Result<RegisteredNode, NodeError> {
        self.register_with(r, None).await
    }

    /// Registers a node without WebSocket; it fetches its jobs with [`Engine::poll`]. Its outbox is
    /// replaced by one of the engine.
    pub async fn register_polling(
        &self,
        mut r: NodeRegistration,
    ) -> Result<RegisteredNode, NodeError> {
        let (outbox, inbox) = mpsc::channel(self.options.bounds.outbox_max);
        r.outbox = outbox;
        self.register_with(r, Some(Mailbox::new(inbox))).await
    }

    async fn register_with(
        &self,
        r: NodeRegistration,
        mailbox: Option<Arc<Mailbox>>,
    ) -> Result<RegisteredNode, NodeError> {
        let place = self.assign(&r).await?;
        let cost = self.nodes.get(&r.node).map(|node| *node.cost.lock()).unwrap_or_default();
        let keep = KeptLeases::Only(r.running.clone());
        let speed = cost.speed(self.typical_ms());
        let speed = self.store_registration(self.register_request(&r, place, speed, keep)).await?;
        let cost = if cost.is_known() { cost } else { Cost::from_speed(speed) };
        let (node, profile) = (r.node.clone(), Arc::clone(&r.profile));
        if !self.nodes.attach(LocalNode::new(r, place, mailbox, cost, self.now_ms())) {
            return Err(NodeError::StaleEpoch { current: place.epoch });
        }
        self.announce_slots(&node, place, &profile);
        Ok(self.registered_node(place, &profile))
    }

    /// The interval that a node is told: longer in a large fleet, so that heartbeats stay below
    /// [`HEARTBEATS_PER_SECOND_MAX`], but never so long that a single lost one makes it stale.
    fn heartbeat_ms(&self) -> u64 {
        let nodes = self.pools().map_or(0, |table| table.nodes_alive());
        let (least_ms, stale_ms) = (self.options.times.heartbeat_ms, self.options.times.stale_ms);
        let spread_ms = nodes * 1000 / HEARTBEATS_PER_SECOND_MAX;
        spread_ms.min(stale_ms / 2).max(least_ms)
    }

    /// Gives a node its place, with a new epoch; if none is left, that of a node that is gone.
    pub(super) async fn assign(&self, r: &NodeRegistration) -> Result<Place, NodeError> {
        let is_claimed = self.claim_node(r).await?;
        let assigned = self.assign_place(r).await;
        if is_claimed && assigned.is_err() {
            self.tenant_nodes.give_back(r.profile.tenant(), &r.node);
        }
        assigned
    }

    async fn assign_place(&self, r: &NodeRegistration) -> Result<Place, NodeError> {
        let full = match self.try_assign(r).await {
            Err(full @ (NodeError::FleetFull { .. } | NodeError::TooMany { .. })) => full,
            assigned => return assigned,
        };
        let room = match (&full, r.profile.token()) {
            (NodeError::TooMany { .. }, Some(token)) => Room::Token(token),
            _ => Room::All,
        };
        match self.make_room(room).await? {
            true => self.try_assign(r).await,
            false => Err(full),
        }
    }

    async fn try_assign(&self, r: &NodeRegistration) -> Result<Place, NodeError> {
        let owned_max = r.owned_max;
        let request = AssignRequest {
            owner: r.profile.token().cloned(),
            owned_max,
            ..AssignRequest::new(
                r.node.clone(),
                Incarnation(self.random_u64()),
                class_of(&r.profile),
            )
        };
        match self.store.assign(request).await {
            Ok(AssignReply::Placed(place)) => Ok(place),
            Ok(AssignReply::Taken) => Err(self.refuse_other_owner()),
            Ok(AssignReply::TooMany) => {
                self.metrics.node_rejected.count("too_many");
                Err(NodeError::TooMany { limit: owned_max.unwrap_or_default() })
            }
            Err(StoreError::LimitReached { limit, .. }) => Err(NodeError::FleetFull { limit }),
            Err(error) => Err(error.into()),
        }
    }

    fn refuse_other_owner(&self) -> NodeError {
        self.metrics.node_rejected.count("other_owner");
        NodeError::Taken
    }

    /// Fails if a node belongs to another token than the caller's. Without tokens nothing does.
    pub(super) fn check_owner(
        &self,
        of: &Profile,
        caller: Option<&TokenName>,
    ) -> Result<(), NodeError> {
        match (of.token(), caller) {
            (Some(owner), Some(caller)) if owner != caller => Err(self.refuse_other_owner()),
            _ => Ok(()),
        }
    }

    /// Fails if a node, at whichever instance it registered, belongs to another token.
    pub async fn check_caller(
        &self,
        node: &NodeId,
        caller: Option<&TokenName>,
    ) -> Result<(), NodeError> {
        match self.nodes.get(node) {
            Some(local) => self.check_owner(&local.profile(), caller),
            None => self.check_owner(&self.node_elsewhere(node).await?.profile, caller),
        }
    }

    pub(super) fn register_request(
        &self,
        r: &NodeRegistration,
        place: Place,
        speed: NodeSpeed,
        keep: KeptLeases,
    ) -> RegisterRequest {
        RegisterRequest {
            place,
            node: r.node.clone(),
            profile: Arc::clone(&r.profile),
            health: r.health,
            speed,
            fresh_ms: self.options.times.stale_ms,
            version: r.version.clone(),
            via: self.options.instance.clone(),
            keep,
        }
    }

    pub(super) fn registered_node(&self, place: Place, profile: &Profile) -> RegisteredNode {
        let pairs = profile.capabilities().pair_count(self.options.rules.semantic);
        RegisteredNode { place, pairs, heartbeat_ms: self.heartbeat_ms() }
    }

    /// Registers a node in the store; gives what is known there of its speed.
    pub(super) async fn store_registration(
        &self,
        request: RegisterRequest,
    ) -> Result<NodeSpeed, NodeError> {
        match timed!(self, "register", self.store.register(request))? {
            RegisterReply::Registered { lost, speed } => {
                self.leases_lost(lost);
                Ok(speed)
            }
            RegisterReply::Stale { current } => Err(NodeError::StaleEpoch { current }),
        }
    }

    /// Wakes as many waiting jobs as the node has slots.
    pub(super) fn announce_slots(&self, node: &NodeId, place: Place, profile: &Profile) {
        self.routes.changed(place.cell);
        for _ in 0..profile.slots_max() {
            self.queue.wake_node(node, profile);
        }
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
        self.announce_slots(&record.node, record.place, &profile);
        Ok(())
    }

    /// What a node can do and how busy it is, at whichever instance it registered. Fails if it
    /// belongs to another token.
    pub async fn profile_of(
        &self,
        node: &NodeId,
        caller: Option<&TokenName>,
    ) -> Result<(Arc<Profile>, Load), NodeError> {
        let (profile, load) = match self.nodes.get(node) {
            Some(node) => (node.profile(), *node.load.lock()),
            None => {
                let record = self.node_elsewhere(node).await?;
                (record.profile, record.load)
            }
        };
        self.check_owner(&profile, caller)?;
        Ok((profile, load))
    }

    /// Waits up to `wait_ms` for jobs of a node without WebSocket.
    pub async fn poll(&self, node: &NodeId, wait_ms: u64) -> Result<Vec<Assignment>, NodeError> {
        match self.nodes.get(node) {
            Some(_) => self.poll_here(node, wait_ms).await,
            None => self.poll_elsewhere(node, wait_ms).await,
        }
    }

    /// Waits for jobs of a node that registered here. While it waits, the node is alive.
    pub(crate) async fn poll_here(
        &self,
        node: &NodeId,
        mut wait_ms: u64,
    ) -> Result<Vec<Assignment>, NodeError> {
        let mut waits_at: Option<Arc<Mailbox>> = None;
        loop {
            let local = self.nodes.get(node).ok_or(NodeError::NotRegistered)?;
            let mailbox = local.mailbox.clone().ok_or(NodeError::NotPolling)?;
            if waits_at.is_some_and(|before| !Arc::ptr_eq(&before, &mailbox)) {
                // The node has registered again and polls there.
                return Ok(vec![]);
            }
            self.touch_if_due(&local);
            // Only the mailbox is kept, so that it closes when the node leaves.
            drop(local);
            let part_ms = wait_ms.min(self.options.times.heartbeat_ms);
            wait_ms -= part_ms;
            let jobs = mailbox.jobs(self.timer.sleep(part_ms)).await;
            if !jobs.is_empty() || wait_ms == 0 {
                return Ok(jobs);
            }
            waits_at = Some(mailbox);
        }
    }

    /// Signs a node off, at whichever instance it registered: its jobs are retried at once.
    pub async fn sign_off(&self, node: &NodeId) -> Result<(), NodeError> {
        match self.nodes.get(node) {
            Some(local) => self.disconnect(node, local.place().epoch).await,
            None => {
                let place = self.node_elsewhere(node).await?.place;
                self.sign_off_at(place, NodeCommand::Offline).await
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
            Some(local) => self.announce_slots(node, place, &local.profile()),
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
