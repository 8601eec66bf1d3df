//! What a job asks of a cell, and why a node does not get it.

use super::policy::Policy;
use crate::capability::{MissingCapability, Needs};
use crate::id::Tenant;
use crate::lang::LangPair;
use crate::node::{NodeState, Resource};
use crate::slot_set::SlotSet;

/// What a job asks of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// The direction of the translation.
    pub pair: LangPair,
    /// The services that the job needs.
    pub needs: Needs,
    /// Only nodes that accept public jobs may get it; if false, only nodes of its own tenant.
    pub public: bool,
    /// Private nodes are chosen only for their own tenant.
    pub tenant: Tenant,
    /// Slots that the job must not go to.
    pub exclude: SlotSet,
    /// How to choose among the nodes that may get it.
    pub policy: Policy,
    /// Whether to leave alone the last free slots of nodes that serve rarer pairs too. Set while
    /// the job can still wait for another slot; only [`Policy::Balanced`] heeds it.
    pub keep_last: bool,
}

impl Query {
    /// A public job from speech to text: any node, default policy, every free slot.
    pub fn new(pair: LangPair) -> Self {
        Self {
            pair,
            needs: Needs::SPEECH_TO_TEXT,
            public: true,
            tenant: Tenant::default(),
            exclude: SlotSet::EMPTY,
            policy: Policy::default(),
            keep_last: false,
        }
    }
}

/// Why a node does not get a job: the first reason found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RejectReason {
    /// The slot is empty.
    #[error("no such node")]
    NoNode,
    /// The job is public and the node takes private ones only.
    #[error("takes private jobs only")]
    PrivateOnly,
    /// The job is private and the node belongs to another tenant.
    #[error("belongs to another tenant")]
    OtherTenant,
    /// The node cannot do the job.
    #[error(transparent)]
    Lacks(MissingCapability),
    /// The node's last heartbeat is too old.
    #[error("no recent heartbeat")]
    Stale,
    /// The node is in a state in which it takes no jobs.
    #[error("{0}")]
    State(NodeState),
    /// The job excludes the node.
    #[error("excluded by the job")]
    Excluded,
    /// The node has too little left of a resource.
    #[error("{0} load at or above the threshold")]
    Overloaded(Resource),
    /// All slots of the node are taken.
    #[error("all slots taken")]
    Full,
    /// The few free slots of this and other flexible nodes are kept for rarer pairs.
    #[error("the last free slots are kept for rarer pairs")]
    KeptForRarerPairs,
    /// The pinned node has registered anew since it was pinned.
    #[error("registered anew since it was pinned")]
    Superseded,
}

impl RejectReason {
    /// Whether the node could never do this job, however long the job waits.
    pub fn is_incapable(self) -> bool {
        matches!(self, Self::NoNode | Self::PrivateOnly | Self::OtherTenant | Self::Lacks(_))
    }
}
