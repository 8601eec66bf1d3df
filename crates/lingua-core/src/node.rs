//! A node as the scheduler sees it: its profile, its health, its load.
//!
//! Start at [`Profile`] (what a registration says) and [`NodeState`] (what follows from the node's
//! own health and the operator's command). Load is kept in thousandths so that every store computes
//! with the same whole numbers.

use crate::capability::{Capabilities, SemanticRule};
use crate::id::{Tenant, TokenName};
use crate::{named_enum, with_defaults};

/// Most slots that one node may offer.
pub const SLOTS_MAX: u16 = 1024;

/// Highest cost of a job, in milliseconds: one hour; higher ones count as this. It keeps every
/// score below 2⁵³, where numbers of a Lua script are still exact.
pub const COST_MS_MAX: u32 = 3_600_000;

/// Cost of a job on a node that has not finished any yet, in milliseconds.
pub const COST_MS_UNKNOWN: u32 = 1000;

named_enum! {
    /// How a node reports itself. A health has the name of the state that it puts a node in.
    #[derive(Default)]
    pub enum Health {
        /// Alive and not draining: it gets jobs.
        #[default]
        Ready = "ready",
        /// Still loading its models.
        Registering = "registering",
        /// Alive, but wants no new jobs for now.
        Degraded = "degraded",
        /// Finishes its jobs, then leaves.
        Draining = "draining",
    }
}

named_enum! {
    /// What follows from a node's health, the operator's commands and the node's presence.
    pub enum NodeState {
        /// Still loading its models.
        Registering = "registering",
        /// May be chosen.
        Ready = "ready",
        /// Alive, but wants no new jobs for now.
        Degraded = "degraded",
        /// Finishes its jobs and takes no new ones: by its own wish or on command.
        Draining = "draining",
        /// Signed off; it has to register again.
        Offline = "offline",
    }
}

impl NodeState {
    /// The state of a registered node. An operator's drain command outlives the node's own reports
    /// and its reconnects: only a resume command ends it.
    pub fn of(health: Health, is_draining: bool) -> Self {
        match health {
            _ if is_draining => Self::Draining,
            Health::Registering => Self::Registering,
            Health::Ready => Self::Ready,
            Health::Degraded => Self::Degraded,
            Health::Draining => Self::Draining,
        }
    }

    /// The health that puts a node into this state; `None` if the node is gone.
    pub fn health(self) -> Option<Health> {
        Health::from_name(self.as_str())
    }
}

named_enum! {
    /// Something that a node can run out of.
    pub enum Resource {
        /// Share of the processor that is busy.
        Cpu = "cpu",
        /// Share of the accelerator that is busy.
        Gpu = "gpu",
        /// Share of the main memory that is used.
        Memory = "memory",
    }
}

/// A load outside 0…1.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{resource} load is {value}; it must be a number from 0 to 1")]
pub struct LoadError {
    /// The resource whose load is wrong.
    pub resource: Resource,
    /// The value that was given.
    pub value: f64,
}

impl LoadError {
    /// The error code that users see.
    pub fn code(&self) -> &'static str {
        "INVALID_REQUEST"
    }
}

/// How busy a node is, in thousandths of each resource. A node without a GPU reports 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Load {
    permille: [u16; 3],
}

impl Load {
    /// From fractions of one.
    pub fn new(cpu: f64, gpu: f64, memory: f64) -> Result<Self, LoadError> {
        let mut permille = [0; 3];
        for ((resource, value), out) in
            Resource::ALL.into_iter().zip([cpu, gpu, memory]).zip(&mut permille)
        {
            if !(0.0..=1.0).contains(&value) {
                return Err(LoadError { resource, value });
            }
            *out = (value * 1000.0).round() as u16;
        }
        Ok(Self { permille })
    }

    /// This load with other fractions where they are given.
    pub fn changed(self, fractions: [Option<f64>; 3]) -> Result<Self, LoadError> {
        let before = self.permille.map(|permille| f64::from(permille) / 1000.0);
        let value = |at: usize| fractions[at].unwrap_or(before[at]);
        Self::new(value(0), value(1), value(2))
    }

    /// Thousandths of this resource in use.
    pub fn permille(self, resource: Resource) -> u16 {
        self.permille[resource as usize]
    }
}

/// From which load on a node gets no new jobs, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Thresholds(Load);

impl Thresholds {
    /// From fractions of one.
    pub fn new(cpu: f64, gpu: f64, memory: f64) -> Result<Self, LoadError> {
        Load::new(cpu, gpu, memory).map(Self)
    }

    /// Whether this much of the resource in use is too much.
    pub fn exceeded(self, load: Load, resource: Resource) -> bool {
        load.permille(resource) >= self.0.permille(resource)
    }
}

impl Default for Thresholds {
    fn default() -> Self {
        Self(Load { permille: [900; 3] })
    }
}

with_defaults! {
    /// The rules that nodes are chosen by; every instance has the same.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Rules {
        /// What semantic repair must cover.
        pub semantic: SemanticRule = SemanticRule::default(),
        /// When a node is overloaded.
        pub thresholds: Thresholds = Thresholds::default(),
        /// How long a node that signed off or lost its connection still counts as capable: jobs
        /// wait for it.
        pub gone_ms: u64 = 15_000,
    }
}

/// What a registration says about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    capabilities: Capabilities,
    slots_max: u16,
    accepts_public: bool,
    tenant: Tenant,
    token: Option<TokenName>,
}

/// The number of slots is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("max_concurrent_jobs is {0}; it must be a number from 1 to {SLOTS_MAX}")]
pub struct SlotsError(pub u64);

impl SlotsError {
    /// The error code that users see.
    pub fn code(&self) -> &'static str {
        "INVALID_REQUEST"
    }
}

impl Profile {
    /// Checks that the number of slots is from 1 to [`SLOTS_MAX`].
    pub fn new(
        capabilities: Capabilities,
        slots_max: u64,
        accepts_public: bool,
    ) -> Result<Self, SlotsError> {
        let fits = u16::try_from(slots_max).ok().filter(|n| (1..=SLOTS_MAX).contains(n));
        let slots_max = fits.ok_or(SlotsError(slots_max))?;
        let (tenant, token) = (Tenant::default(), None);
        Ok(Self { capabilities, slots_max, accepts_public, tenant, token })
    }

    /// The same node as one of this tenant.
    #[must_use]
    pub fn owned_by(self, tenant: Tenant) -> Self {
        Self { tenant, ..self }
    }

    /// The same node, registered with this token.
    #[must_use]
    pub fn registered_by(self, token: Option<TokenName>) -> Self {
        Self { token, ..self }
    }

    /// The same node, with the tenant and the token of another one.
    #[must_use]
    pub fn owned_like(self, other: &Self) -> Self {
        self.owned_by(other.tenant).registered_by(other.token.clone())
    }

    /// The token that the node's id belongs to; `None` without tokens.
    pub fn token(&self) -> Option<&TokenName> {
        self.token.as_ref()
    }

    /// Who runs the node. Private jobs go to nodes of their own tenant only.
    pub fn tenant(&self) -> Tenant {
        self.tenant
    }

    /// The languages and services of the node.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// How many jobs the node runs at once.
    pub fn slots_max(&self) -> u16 {
        self.slots_max
    }

    /// Whether the node takes public jobs, or private ones only.
    pub fn accepts_public(&self) -> bool {
        self.accepts_public
    }

    /// Whether a job may go to this node, as far as it depends on who owns both: public jobs to
    /// nodes that accept them, private ones to nodes of their own tenant.
    pub fn admits(&self, is_public: bool, tenant: Tenant) -> bool {
        if is_public { self.accepts_public } else { self.tenant == tenant }
    }

    /// How many different pairs the node serves, on a scale that adds 10 for each doubling.
    /// Selection prefers the less flexible of two equal nodes, so that the others stay free for
    /// rarer pairs.
    pub fn flexibility(&self, rule: SemanticRule) -> u8 {
        let pairs = self.capabilities.pair_count(rule).max(1);
        (10.0 * (pairs as f64).log2()).round() as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::{LangSet, Nmt, ServiceSet};
    use crate::lang::Lang;

    fn profile(langs: &[&str], slots: u64) -> Result<Profile, SlotsError> {
        let set = || langs.iter().map(|tag| Lang::new(tag).unwrap()).collect::<LangSet>();
        let caps = Capabilities::new(set(), set(), set(), Nmt::AnyToAny, ServiceSet::ALL).unwrap();
        Profile::new(caps, slots, true)
    }

    #[test]
    fn zero_and_absurd_slots_are_refused() {
        assert_eq!(profile(&["zh"], 0), Err(SlotsError(0)));
        assert_eq!(profile(&["zh"], 1025), Err(SlotsError(1025)));
        assert_eq!(profile(&["zh"], u64::MAX), Err(SlotsError(u64::MAX)));
        assert_eq!(profile(&["zh"], 1024).unwrap().slots_max(), 1024);
    }

    #[test]
    fn loads_outside_zero_to_one_are_refused() {
        for bad in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            let error = Load::new(0.5, 0.5, bad).unwrap_err();
            assert_eq!(error.resource, Resource::Memory);
            assert!(error.to_string().starts_with("memory load is"));
        }
    }

    #[test]
    fn a_threshold_is_exceeded_once_reached() {
        let at =
            |cpu| Thresholds::default().exceeded(Load::new(cpu, 0.0, 0.0).unwrap(), Resource::Cpu);
        assert!(!at(0.899) && at(0.90) && at(1.0));
    }

    #[test]
    fn a_drain_command_outlives_the_nodes_own_reports() {
        for health in Health::ALL {
            assert_eq!(NodeState::of(health, true), NodeState::Draining);
        }
        assert_eq!(NodeState::of(Health::Ready, false), NodeState::Ready);
        assert_eq!(NodeState::of(Health::Draining, false), NodeState::Draining);
    }

    #[test]
    fn flexibility_adds_ten_for_each_doubling_of_pairs() {
        let flexibility =
            |langs: &[&str]| profile(langs, 1).unwrap().flexibility(SemanticRule::Source);
        assert_eq!(flexibility(&["zh"]), 0);
        assert_eq!(flexibility(&["zh", "en"]), 20);
        assert_eq!(flexibility(&["zh", "en", "ja", "fr"]), 40);
    }
}
