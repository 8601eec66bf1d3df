//! Short ways to write nodes and requests.

use std::sync::Arc;

use lingua_core::job::{AttemptOutcome, Grant};
use lingua_core::{
    Attempt, Capabilities, CellId, Epoch, Fence, Health, InstanceId, JobId, Lang, LangPair,
    LangSet, Nmt, NodeId, Profile, Query, ServiceSet, Slot,
};

use super::World;
use crate::contract::{
    AssignRequest, Freed, HeartbeatReply, HeartbeatRequest, Incarnation, KeptLeases, LeaseKey,
    NodeClass, NodeSpeed, Place, RegisterReply, RegisterRequest, ReserveOutcome, ReserveRequest,
    Store,
};

/// How long a sign of life counts in the tests.
pub const FRESH_MS: u64 = 15_000;
/// How long a node has to confirm.
pub const ACK_MS: u64 = 5_000;
/// How long a lease of running work lasts.
pub const RUN_MS: u64 = 15_000;
/// What a job costs on a node of the tests.
pub const COST_MS: u32 = 1_000;

/// `"zh en"` as a list of languages.
pub fn langs(words: &str) -> LangSet {
    words.split_whitespace().map(|tag| Lang::new(tag).expect("a language")).collect()
}

/// `"zh:en"` as a pair.
pub fn pair(text: &str) -> LangPair {
    text.parse().expect("a pair")
}

/// A node that hears, repairs and speaks these languages.
pub fn profile(words: &str, slots: u64) -> Arc<Profile> {
    let set = || langs(words);
    let caps = Capabilities::new(set(), set(), set(), Nmt::AnyToAny, ServiceSet::ALL);
    Arc::new(Profile::new(caps.expect("languages"), slots, true).expect("slots"))
}

/// `node-n`.
pub fn node(n: usize) -> NodeId {
    NodeId::new(&format!("node-{n}")).expect("a name")
}

/// `instance-n`.
pub fn instance(n: usize) -> InstanceId {
    InstanceId::new(&format!("instance-{n}")).expect("a name")
}

/// A slot on a node.
pub fn grant(n: usize) -> Grant {
    let cell = CellId::new(0).expect("a cell");
    let slot = Slot::new(n).expect("a slot");
    Grant { node: node(n), cell, slot, epoch: Epoch(1), fence: Fence(1), via: instance(0) }
}

/// The first attempt of job n.
pub fn key(n: u128) -> LeaseKey {
    LeaseKey { job: JobId::new(n), attempt: Attempt::FIRST }
}

/// Another attempt of job n.
pub fn attempt(n: u128, attempt: u32) -> LeaseKey {
    LeaseKey { job: JobId::new(n), attempt: Attempt(attempt) }
}

/// A request for any slot for `zh:en`.
pub fn reserve(key: LeaseKey) -> ReserveRequest {
    let query = Query::new(pair("zh:en"));
    ReserveRequest { key, query, pin: None, ack_lease_ms: ACK_MS, random: 0 }
}

/// A sign of life.
pub fn heartbeat(place: Place, running: Vec<LeaseKey>) -> HeartbeatRequest {
    HeartbeatRequest {
        place,
        health: None,
        load: None,
        speed: None,
        running,
        fresh_ms: FRESH_MS,
        lease_ms: RUN_MS,
    }
}

/// How many nodes of a full cell could do the job, and how many slots it keeps for rarer pairs.
pub fn full_with(outcome: &ReserveOutcome) -> Option<(u16, u32)> {
    match outcome {
        ReserveOutcome::Full { capable, free, .. } => Some((*capable, *free)),
        _ => None,
    }
}

impl<S: Store> World<S> {
    /// Gives a node its place.
    pub async fn assign(&self, n: usize, incarnation: u64, class: u32) -> Place {
        let (incarnation, class) = (Incarnation(incarnation), NodeClass(class));
        let request = AssignRequest::new(node(n), incarnation, class);
        self.store.assign(request).await.expect("a reply").placed().expect("a place")
    }

    /// Puts a node into a place; says which leases that ended, or `None` if it is stale.
    pub async fn register(
        &self,
        n: usize,
        place: Place,
        profile: Arc<Profile>,
    ) -> Option<Vec<LeaseKey>> {
        let registration = RegisterRequest {
            place,
            node: node(n),
            profile,
            health: Health::Ready,
            speed: NodeSpeed::assumed(COST_MS),
            fresh_ms: FRESH_MS,
            version: None,
            via: instance(1),
            keep: KeptLeases::NONE,
        };
        match self.store.register(registration).await.expect("a reply") {
            RegisterReply::Registered { lost, .. } => Some(lost),
            RegisterReply::Stale { .. } => None,
        }
    }

    /// A ready node, first incarnation.
    pub async fn join(&self, n: usize, words: &str, slots: u64) -> Place {
        let place = self.assign(n, 1, 0).await;
        self.register(n, place, profile(words, slots)).await.expect("a fresh place");
        place
    }

    /// Asks for a slot.
    pub async fn try_reserve(&self, cell: CellId, request: ReserveRequest) -> ReserveOutcome {
        self.store.reserve(cell, request).await.expect("a reply").outcome
    }

    /// Takes a slot for `zh:en`, which must be there.
    pub async fn take(&self, cell: CellId, key: LeaseKey) -> Grant {
        match self.try_reserve(cell, reserve(key)).await {
            ReserveOutcome::Granted { grant, .. } => grant,
            other => panic!("{key:?} got {other:?} instead of a slot"),
        }
    }

    /// Gives a slot back, with nothing said about the node.
    pub async fn finish(&self, cell: CellId, key: LeaseKey) -> Option<Freed> {
        self.store.finish(cell, key, AttemptOutcome::Unknown).await.expect("a reply")
    }

    /// A sign of life that must be taken; says what it runs without a lease.
    pub async fn heartbeat(&self, place: Place, running: Vec<LeaseKey>) -> Vec<LeaseKey> {
        match self.store.heartbeat(heartbeat(place, running)).await.expect("a reply") {
            HeartbeatReply::Accepted { unknown, .. } => unknown,
            HeartbeatReply::Reregister => panic!("{place:?} is not known"),
        }
    }

    /// Leases of each node of a cell, by slot.
    pub async fn used(&self, cell: CellId) -> Vec<u16> {
        self.store.view(cell).await.expect("a view").nodes.iter().map(|node| node.used).collect()
    }
}
