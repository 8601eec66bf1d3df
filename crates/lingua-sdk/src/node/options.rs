//! What a node says of itself, and how patient it is.
//!
//! Start at [`NodeOptions::new`]. The bounds that nobody needs to change are constants of the files
//! that keep them.

use std::path::Path;
use std::time::Duration;

use lingua_core::{Health, NodeId, ServiceSet};
use lingua_wire::limits::SLOTS_DEFAULT;
use lingua_wire::node::{CapabilityFields, LanguageLists, Register, ServiceFlags};

use super::error::Error;
use crate::tls::Trust;

/// Shortest and longest wait before a new connection is tried.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How long running jobs may go on after the node was asked to stop.
const GRACE: Duration = Duration::from_secs(30);

/// How long a handler may go on after it was told that nobody waits for it.
const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// How a node is set up.
#[derive(Clone)]
pub struct NodeOptions {
    pub(super) url: String,
    pub(super) token: Option<String>,
    pub(super) trust: Trust,
    pub(super) node_id: Option<NodeId>,
    pub(super) languages: LanguageLists,
    pub(super) services: ServiceFlags,
    pub(super) slots: u16,
    pub(super) accept_public_jobs: bool,
    pub(super) streaming: bool,
    pub(super) health: Health,
    pub(super) version: String,
    pub(super) backoff: (Duration, Duration),
    pub(super) grace: Duration,
    pub(super) cancel_grace: Duration,
    pub(super) seed: Option<u64>,
}

impl NodeOptions {
    /// A node of this scheduler (`ws://host:port/v1/node/ws`, or `wss://`), without languages yet.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token: None,
            trust: Trust::System,
            node_id: None,
            languages: LanguageLists::default(),
            services: ServiceFlags::default(),
            slots: SLOTS_DEFAULT as u16,
            accept_public_jobs: true,
            streaming: false,
            health: Health::Ready,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            backoff: BACKOFF,
            grace: GRACE,
            cancel_grace: CANCEL_GRACE,
            seed: None,
        }
    }

    /// Shows this token to the scheduler.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Trusts the certificates in this PEM file instead of those of this machine.
    pub fn ca(mut self, path: &Path) -> Result<Self, Error> {
        self.trust = Trust::file(path).map_err(|detail| Error::BadCa { detail })?;
        Ok(self)
    }

    /// Its name; the scheduler makes one up otherwise, which is kept for as long as the node runs.
    #[must_use]
    pub fn node_id(mut self, node_id: NodeId) -> Self {
        self.node_id = Some(node_id);
        self
    }

    /// The languages that it recognises, repairs and speaks.
    #[must_use]
    pub fn languages(mut self, asr: &[&str], semantic: &[&str], tts: &[&str]) -> Self {
        let owned = |list: &[&str]| Some(list.iter().map(|&lang| lang.to_owned()).collect());
        self.languages.asr_languages = owned(asr);
        self.languages.semantic_languages = owned(semantic);
        self.languages.tts_languages = owned(tts);
        self
    }

    /// The directions that it translates; any to any if this is not called.
    #[must_use]
    pub fn nmt_pairs(mut self, pairs: &[(&str, &str)]) -> Self {
        let owned = |&(src, tgt): &(&str, &str)| (src.to_owned(), tgt.to_owned());
        self.languages.nmt_pairs = Some(pairs.iter().map(owned).collect());
        self
    }

    /// The services that it has; all but `tone` if this is not called.
    #[must_use]
    pub fn services(mut self, services: ServiceSet) -> Self {
        self.services = services.into();
        self
    }

    /// How many jobs it does at once.
    #[must_use]
    pub fn slots(mut self, slots: u16) -> Self {
        self.slots = slots;
        self
    }

    /// Whether it takes jobs of anybody; it does if this is not called.
    #[must_use]
    pub fn accept_public_jobs(mut self, accept: bool) -> Self {
        self.accept_public_jobs = accept;
        self
    }

    /// Whether it listens along: it gets a job with its first sound, and the rest in
    /// [`Job::stream`](super::Job::stream).
    #[must_use]
    pub fn streaming(mut self, streaming: bool) -> Self {
        self.streaming = streaming;
        self
    }

    /// What it says of its health while nobody asked it to drain.
    #[must_use]
    pub fn health(mut self, health: Health) -> Self {
        self.health = health;
        self
    }

    /// Version of its software.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Shortest and longest wait before a new connection is tried (100 ms and 5 s).
    #[must_use]
    pub fn backoff(mut self, min: Duration, max: Duration) -> Self {
        self.backoff = (min, max);
        self
    }

    /// How long running jobs may go on after the node was asked to stop (30 s).
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long a handler may go on after it was told that nobody waits for it (10 s).
    #[must_use]
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.cancel_grace = grace;
        self
    }

    /// Makes the jitter repeatable; otherwise the system is asked for a seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The registration of a node that has this name and this health by now.
    pub(super) fn register(&self, node_id: Option<NodeId>, health: Health) -> Register {
        let capability = CapabilityFields {
            language_capabilities: Some(self.languages.clone()),
            services: Some(self.services),
            max_concurrent_jobs: Some(u64::from(self.slots)),
            accept_public_jobs: Some(self.accept_public_jobs),
            streaming: self.streaming.then_some(true),
            ..CapabilityFields::default()
        };
        let version = Some(self.version.clone());
        Register { node_id, version, health: Some(health), capability }
    }

    /// Checks what the scheduler would refuse, before it is asked.
    pub(super) fn check(&self) -> Result<(), Error> {
        let register = self.register(self.node_id.clone(), self.health);
        register.into_parts().map(drop).map_err(Error::BadOptions)
    }
}

impl std::fmt::Debug for NodeOptions {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeOptions")
            .field("url", &self.url)
            .field("node_id", &self.node_id)
            .field("languages", &self.languages)
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}
