//! What a node offers, and how it behaves when something goes wrong.
//!
//! Start at [`NodeOptions::new`]. Bounds that no node needs to change are constants of the
//! files that keep them.

use std::time::Duration;

use lingua_core::{Health, NodeId, NodeLabel, ServiceSet};
use lingua_wire::limits::SLOTS_DEFAULT;
use lingua_wire::node::{CapabilityFields, LanguageLists, Register, ServiceFlags};

use super::error::NodeRunError;
use crate::connect::{SchedulerEndpoint, endpoint_builders};

/// The options of a node.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    pub(super) endpoint: SchedulerEndpoint,
    pub(super) node_id: Option<NodeId>,
    pub(super) languages: LanguageLists,
    pub(super) services: ServiceFlags,
    pub(super) slots: u16,
    pub(super) accept_public_jobs: bool,
    pub(super) streaming: bool,
    pub(super) labels: Vec<NodeLabel>,
    pub(super) health: Health,
    pub(super) version: String,
    pub(super) backoff: (Duration, Duration),
    pub(super) grace: Duration,
    pub(super) cancel_grace: Duration,
    pub(super) seed: Option<u64>,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $Type:ty = $value:expr,)*) => {
        $($(#[$doc])* #[must_use] pub fn $name(mut self, $name: $Type) -> Self {
            self.$name = $value;
            self
        })*
    };
}

impl NodeOptions {
    /// A node of this scheduler (`ws://host:port/v1/node/ws`, or `wss://`), without languages yet.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            endpoint: SchedulerEndpoint::new(url, "/v1/node/ws"),
            node_id: None,
            languages: LanguageLists::default(),
            services: ServiceFlags::default(),
            slots: SLOTS_DEFAULT as u16,
            accept_public_jobs: true,
            streaming: false,
            labels: vec![],
            health: Health::Ready,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            backoff: (Duration::from_millis(100), Duration::from_secs(5)),
            grace: Duration::from_secs(30),
            cancel_grace: Duration::from_secs(10),
            seed: None,
        }
    }

    endpoint_builders!();

    setters! {
        /// How many jobs the node runs at the same time (4).
        slots: u16 = slots,
        /// Whether the node accepts jobs of all tenants (true).
        accept_public_jobs: bool = accept_public_jobs,
        /// Whether the node gets a job with its first sound and the rest of the audio in
        /// [`Job::stream`](super::Job::stream) (false).
        streaming: bool = streaming,
        /// Labels that jobs may require, such as `eu` (none).
        labels: Vec<NodeLabel> = labels,
        /// The health that the node reports while it is not draining (ready).
        health: Health = health,
        /// How long running jobs may go on after the node was asked to stop (30 s).
        grace: Duration = grace,
        /// How long a handler may go on after its job was cancelled (10 s).
        cancel_grace: Duration = cancel_grace,
        /// The node's id. Without it the scheduler makes one up, and the node keeps it while it
        /// runs.
        node_id: NodeId = Some(node_id),
        /// The services that the node offers (all but `tone`).
        services: ServiceSet = services.into(),
        /// Version of the node's software (that of this crate).
        version: impl Into<String> = version.into(),
        /// Makes the jitter repeatable; otherwise the system provides a seed.
        seed: u64 = Some(seed),
    }

    /// The languages that the node recognises, repairs and speaks.
    #[must_use]
    pub fn languages(mut self, asr: &[&str], semantic: &[&str], tts: &[&str]) -> Self {
        let owned = |list: &[&str]| Some(list.iter().map(|&lang| lang.to_owned()).collect());
        self.languages.asr_languages = owned(asr);
        self.languages.semantic_languages = owned(semantic);
        self.languages.tts_languages = owned(tts);
        self
    }

    /// The directions that the node translates (any to any).
    #[must_use]
    pub fn nmt_pairs(mut self, pairs: &[(&str, &str)]) -> Self {
        let owned = |&(src, tgt): &(&str, &str)| (src.to_owned(), tgt.to_owned());
        self.languages.nmt_pairs = Some(pairs.iter().map(owned).collect());
        self
    }

    /// Shortest and longest delay before the node connects again (100 ms and 5 s).
    #[must_use]
    pub fn backoff(mut self, min: Duration, max: Duration) -> Self {
        self.backoff = (min, max);
        self
    }

    /// The registration of a node that has this id and this health by now.
    pub(super) fn register(&self, node_id: Option<NodeId>, health: Health) -> Register {
        let capability = CapabilityFields {
            language_capabilities: Some(self.languages.clone()),
            services: Some(self.services),
            max_concurrent_jobs: Some(u64::from(self.slots)),
            accept_public_jobs: Some(self.accept_public_jobs),
            streaming: self.streaming.then_some(true),
            labels: Some(self.labels.clone()).filter(|labels| !labels.is_empty()),
            ..CapabilityFields::default()
        };
        let version = Some(self.version.clone());
        Register { node_id, version, health: Some(health), running: None, capability }
    }

    /// Finds what the scheduler would refuse, before it is asked.
    pub(super) fn check(&self) -> Result<(), NodeRunError> {
        let register = self.register(self.node_id.clone(), self.health);
        register.into_parts().map(drop).map_err(NodeRunError::BadOptions)
    }
}
