//! What nodes call.

use std::sync::Arc;

use lingua_core::job::AttemptReport;
use lingua_core::planted::{self, Bug};
use lingua_core::{Epoch, Health, JobId, Load, NodeId, NodeState, Profile};
use lingua_store::Store;
use lingua_store::contract::{
    self, AssignRequest, HeartbeatReply, Incarnation, LeaseKey, NodeClass, NodeCommand,
    NodeCommandReply, Place, RegisterReply,
};
use tokio::sync::oneshot;

use super::Handle;
use crate::clock::Timer;
use crate::error::NodeError;
use crate::live_jobs::{
    InboxError, JobMessage, LiveJob, NodeReport, PartialText, ReportKind, VerdictTo,
};
use crate::node::Outbox;
use crate::request::ResultJson;
use crate::state::timed;

/// How long a word waits until a job whose inbox is full may have room.
const FULL_PAUSE_MS: u64 = 5;

/// Longest partial text that is kept and shown, in bytes.
pub const PARTIAL_BYTES_MAX: usize = 16 * 1024;

/// Jobs of other instances that are looked up at each heartbeat of a node.
const CHECKED_MAX: usize = 32;

/// A node that connects.
#[derive(Debug, Clone)]
pub struct NodeRegistration {
    /// Who.
    pub node: NodeId,
    /// What it can do.
    pub profile: Arc<Profile>,
    /// How it feels.
    pub health: Health,
    /// Version of its software.
    pub version: Option<Arc<str>>,
    /// The way to it.
    pub outbox: Outbox,
}

/// What a node is told when it has connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisteredNode {
    /// Where it is now, and which incarnation.
    pub place: Place,
    /// How many exact pools it belongs to.
    pub pairs: usize,
    /// How often it should give a sign of life.
    pub heartbeat_ms: u64,
}

/// A node's sign of life.
#[derive(Debug, Clone)]
pub struct NodeHeartbeat {
    /// Who.
    pub node: NodeId,
    /// Which incarnation, if it says so.
    pub epoch: Option<Epoch>,
    /// How it feels, if it says so.
    pub health: Option<Health>,
    /// How busy it is.
    pub load: Load,
    /// What it runs.
    pub running: Vec<LeaseKey>,
    /// What it can do now, if that has changed.
    pub profile: Option<Arc<Profile>>,
}

/// What a sign of life is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatAck {
    /// What it runs that nobody wants.
    pub cancel: Vec<LeaseKey>,
    /// It is to finish what it has and take nothing new.
    pub drain: bool,
}

impl<S: Store, T: Timer> Handle<S, T> {
    /// Connects a node. A connection that the same node had before is told that it is over.
    pub async fn register(&self, r: NodeRegistration) -> Result<RegisteredNode, NodeError> {
        let shared = &self.shared;
        let incarnation = Incarnation(shared.random_u64());
        let assign =
            AssignRequest { node: r.node.clone(), incarnation, class: class_of(&r.profile) };
        let place = shared.store.assign(assign).await?;
        let cost_ms = shared.nodes.get(&r.node).map(|node| node.cost_ms());
        let registration = contract::RegisterRequest {
            place,
            node: r.node.clone(),
            profile: Arc::clone(&r.profile),
            health: r.health,
            cost_ms: cost_ms.unwrap_or(lingua_core::node::COST_MS_UNKNOWN),
            fresh_ms: shared.options.times.stale_ms,
            version: r.version.clone(),
            via: shared.options.instance.clone(),
        };
        match timed!(shared, "register", shared.store.register(registration)).0? {
            RegisterReply::Registered { lost } => shared.leases_lost(lost),
            RegisterReply::Stale { current } => return Err(NodeError::StaleEpoch { current }),
        }
        let profile = Arc::clone(&r.profile);
        let attached = shared.nodes.attach(&r.node, place, profile, r.version, r.outbox);
        let Some(attached) = attached else {
            return Err(NodeError::StaleEpoch { current: place.epoch });
        };
        attached.set_health(r.health);
        shared.routes.changed(place.cell);
        self.offer(&r.profile);
        let pairs = r.profile.capabilities().pair_count(shared.options.rules.semantic);
        Ok(RegisteredNode { place, pairs, heartbeat_ms: shared.options.times.heartbeat_ms })
    }

    /// Wakes as many waiting jobs as the node has slots.
    fn offer(&self, profile: &Profile) {
        for _ in 0..profile.slots_max() {
            self.shared.queue.wake_for(profile);
        }
    }

    /// Takes a sign of life.
    pub async fn heartbeat(&self, beat: NodeHeartbeat) -> Result<HeartbeatAck, NodeError> {
        let shared = &self.shared;
        let Some(node) = shared.nodes.get(&beat.node) else {
            return Box::pin(self.heartbeat_elsewhere(beat)).await;
        };
        let place = node.place;
        if beat.epoch.is_some_and(|epoch| epoch != place.epoch) {
            shared.metrics.node_rejected.count("stale_epoch");
            return Err(NodeError::StaleEpoch { current: place.epoch });
        }
        if let Some(health) = beat.health {
            node.set_health(health);
        }
        if shared.compare_store().await?.is_some()
            && shared.store.locate(&beat.node).await? != Some(place)
        {
            // A failover lost its place but not its registration: orders and wishes would not find it.
            return Err(NodeError::NotRegistered);
        }
        if let Some(profile) = beat.profile.clone().filter(|new| **new != *node.profile()) {
            self.change_profile(&beat.node, place, &profile, node.health()).await?;
            node.set_profile(profile);
        }
        node.forgive();
        self.beat(place, Some(node.cost_ms()), &node.profile(), beat).await
    }

    /// Passes a sign of life on to the store.
    pub(crate) async fn beat(
        &self,
        place: Place,
        cost_ms: Option<u32>,
        profile: &Profile,
        beat: NodeHeartbeat,
    ) -> Result<HeartbeatAck, NodeError> {
        let shared = &self.shared;
        let running = beat.running.clone();
        let heartbeat = contract::HeartbeatRequest {
            place,
            health: beat.health,
            load: beat.load,
            cost_ms,
            running: beat.running,
            fresh_ms: shared.options.times.stale_ms,
            lease_ms: shared.options.times.run_lease_ms,
        };
        match timed!(shared, "heartbeat", shared.store.heartbeat(heartbeat)).0? {
            HeartbeatReply::Accepted { drain, unknown } => {
                let mut cancel = match planted::is(Bug::RunWithoutLease) {
                    true => vec![],
                    false => unknown,
                };
                // The node will stop; whoever waits for it must not wait for its timer.
                shared.leases_lost(cancel.iter().copied());
                cancel.extend(self.release_what_is_over(place, profile, &running).await);
                Ok(HeartbeatAck { cancel, drain })
            }
            HeartbeatReply::Reregister => Err(NodeError::NotRegistered),
        }
    }

    /// Gives back slots that a node holds for jobs which have ended, and says which. Each heartbeat renews the lease of what a
    /// node runs, so a slot whose release was lost would be held for as long as the node goes on.
    async fn release_what_is_over(
        &self,
        place: Place,
        profile: &Profile,
        running: &[LeaseKey],
    ) -> Vec<LeaseKey> {
        let shared = &self.shared;
        let mut over = vec![];
        let elsewhere = running.iter().filter(|key| shared.live.get(key.job).is_none());
        for &key in elsewhere.take(CHECKED_MAX) {
            // If the store does not answer, the next heartbeat asks again.
            let Ok(record) = shared.store.job(key.job).await else { break };
            let is_wanted = record.is_some_and(|record| {
                !record.stage.state.is_terminal() && record.stage.attempt <= key.attempt
            });
            if is_wanted || planted::is(Bug::EndedJobKeepsSlot) {
                continue;
            }
            if let Ok(Some(_)) = shared.store.finish(place.cell, key).await {
                shared.queue.wake_for(profile);
            }
            over.push(key);
        }
        over
    }

    async fn change_profile(
        &self,
        node: &NodeId,
        place: Place,
        profile: &Arc<Profile>,
        health: Health,
    ) -> Result<(), NodeError> {
        let local = self.shared.nodes.get(node);
        let registration = contract::RegisterRequest {
            place,
            node: node.clone(),
            profile: Arc::clone(profile),
            health,
            cost_ms: local.as_ref().map_or(0, |local| local.cost_ms()),
            fresh_ms: self.shared.options.times.stale_ms,
            version: local.and_then(|local| local.version.clone()),
            via: self.shared.options.instance.clone(),
        };
        match self.shared.store.register(registration).await? {
            RegisterReply::Registered { lost } => self.shared.leases_lost(lost),
            RegisterReply::Stale { current } => return Err(NodeError::StaleEpoch { current }),
        }
        self.shared.routes.changed(place.cell);
        self.offer(profile);
        Ok(())
    }

    /// The profile that a connected node has now.
    pub fn profile_of(&self, node: &NodeId) -> Option<Arc<Profile>> {
        self.shared.nodes.get(node).map(|node| node.profile())
    }

    /// A connection is over, or a node signs off: its jobs are retried at once.
    pub async fn disconnect(&self, node: &NodeId, epoch: Epoch) -> Result<(), NodeError> {
        self.shared.disconnect_node(node, epoch).await
    }

    /// The epoch of a connected node.
    pub fn epoch_of(&self, node: &NodeId) -> Option<Epoch> {
        self.shared.nodes.get(node).map(|node| node.place.epoch)
    }

    /// The node has the job. With `wait`, says whether that counted.
    pub async fn acked(
        &self,
        job: JobId,
        report: AttemptReport,
        wait: bool,
    ) -> Result<(), NodeError> {
        self.say(job, NodeReport { report, kind: ReportKind::Acked }, wait).await
    }

    /// The node gave a result.
    pub async fn done(
        &self,
        job: JobId,
        report: AttemptReport,
        result: impl Into<ResultJson>,
        wait: bool,
    ) -> Result<(), NodeError> {
        let kind = ReportKind::Done { result: result.into() };
        self.say(job, NodeReport { report, kind }, wait).await
    }

    /// The node gave up. `BUSY` and `STALE_FENCE` are refusals: not the node's fault, nor the job's.
    pub async fn failed(
        &self,
        job: JobId,
        report: AttemptReport,
        reason: String,
        retryable: bool,
        wait: bool,
    ) -> Result<(), NodeError> {
        let kind = match reason.as_str() {
            "BUSY" => ReportKind::Refused,
            "STALE_FENCE" => ReportKind::Overtaken,
            _ => ReportKind::Failed { reason, retryable },
        };
        self.say(job, NodeReport { report, kind }, wait).await
    }

    /// The node has a part of the text; of no use to anybody but those who watch, so it is dropped
    /// rather than waited for. Says whether it was taken: the attempt may still turn out to be over.
    pub fn partial(&self, job: JobId, report: AttemptReport, text: &str) -> bool {
        let partial = PartialText { report, text: cut(text, PARTIAL_BYTES_MAX).into() };
        let rejected = match self.shared.live.get(job) {
            None if self.partial_elsewhere(job, &partial) => return true,
            None => "job_over",
            Some(live) => match live.send(JobMessage::Partial(Box::new(partial))) {
                Ok(()) => return true,
                Err(_) => "partial_dropped",
            },
        };
        self.shared.metrics.node_rejected.count(rejected);
        false
    }

    async fn say(&self, job: JobId, word: NodeReport, wait: bool) -> Result<(), NodeError> {
        let Some(live) = self.shared.live.get(job) else {
            return Box::pin(self.say_elsewhere(job, word, wait)).await;
        };
        let (answer, heard): (Option<VerdictTo>, _) = match wait {
            true => {
                let (answer, heard) = oneshot::channel();
                (Some(VerdictTo::Caller(answer)), Some(heard))
            }
            false => (None, None),
        };
        if !self.tell(&live, JobMessage::Report(word, answer)).await {
            return Err(self.why_not_live(job).await?);
        }
        match heard {
            Some(heard) => match heard.await {
                Ok(heard) => Ok(heard?),
                Err(_) => Err(self.why_not_live(job).await?),
            },
            None => Ok(()),
        }
    }

    /// Tells a job something; not if it is over. One that has too much to hear is waited for, so that
    /// a node that floods a job waits for itself.
    pub(super) async fn tell(&self, live: &LiveJob, mut word: JobMessage) -> bool {
        loop {
            word = match live.send(word) {
                Ok(()) => return true,
                Err(InboxError::Closed) => return false,
                Err(InboxError::Full(word)) => word,
            };
            self.shared.timer.sleep(FULL_PAUSE_MS).await;
        }
    }

    async fn why_not_live(&self, job: JobId) -> Result<NodeError, NodeError> {
        use lingua_core::job::Refusal;
        Ok(match self.shared.store.job(job).await? {
            None => NodeError::NoSuchJob,
            Some(record) if record.stage.state.is_terminal() => {
                Refusal::Ended { state: record.stage.state }.into()
            }
            Some(record) => Refusal::StaleAttempt { current: record.stage }.into(),
        })
    }

    /// Orders a node to drain, or to take jobs again; says in which state it is then.
    pub async fn order(&self, node: &NodeId, drain: bool) -> Result<Option<NodeState>, NodeError> {
        let Some(place) = self.shared.store.locate(node).await? else { return Ok(None) };
        let order = if drain { NodeCommand::Drain } else { NodeCommand::Resume };
        if self.shared.store.set_state(place, order).await? == NodeCommandReply::Stale {
            return Ok(None);
        }
        if let Some(local) = self.shared.nodes.get(node) {
            if drain {
                local.outbox.try_send(crate::node::ToNode::Drain).ok();
            } else {
                self.offer(&local.profile());
            }
        }
        let view = self.shared.store.view(place.cell).await?;
        Ok(view.nodes.iter().find(|n| n.node == *node).map(|n| n.state))
    }
}

/// The first bytes of a text, never a part of a character.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Nodes that can do the same are of one class. Every instance must come to the same number, so the
/// hash is a plain one.
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
