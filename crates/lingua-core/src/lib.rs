//! The rules of Lingua: which nodes can do a job, which node gets it, how a job proceeds.
//!
//! | module | what it holds |
//! |---|---|
//! | [`id`] | names and numbers of nodes, jobs, attempts, epochs, fences, cells, slots |
//! | [`lang`] | languages and directed pairs |
//! | [`capability`] | what a node can do, and what a job needs |
//! | [`node`] | profile, health, load, thresholds |
//! | [`slot_set`] | a set of a cell's slots |
//! | [`roster`] | a cell's nodes: choosing one (`roster/select.rs`), explaining the choice |
//! | [`job`] | the state machine of a job: attempts, retries, exactly one end |
//! | [`session`] | turns, segments, and the order of their results |
//! | [`fair_share`] | which tenant gets the next free slot |
//! | [`tenant_rules`] | weight, limits and retention of a tenant |
//! | [`planted`] | deliberate bugs for the simulation's tests (`--cfg planted_bugs`) |
//!
//! Start at [`roster::Roster::choose`] and [`job::JobMachine::apply`].
//!
//! Architecture invariant: no IO, no clock, no random number generator and nothing asynchronous.
//! Time and random numbers come in as arguments.

pub mod capability;
pub mod fair_share;
mod hidden;
pub mod id;
pub mod job;
pub mod label;
pub mod lang;
mod named;
pub mod node;
pub mod planted;
pub mod roster;
pub mod session;
pub mod slot_set;
pub mod tenant_rules;

pub use capability::{
    Capabilities, CapabilityError, LangSet, MissingCapability, Needs, Nmt, SemanticRule, Service,
    ServiceSet,
};
pub use hidden::is_hidden;
pub use id::{
    Attempt, CELL_NODES_MAX, CELLS_MAX, CellId, Epoch, Fence, InstanceId, JobId, NodeId, Slot,
    Tenant, Term, TokenName,
};
pub use label::{LabelSet, NodeLabel, RequiredLabels};
pub use lang::{Lang, LangError, LangPair, Source};
pub use node::{Health, Load, NodeState, Profile, Resource, Rules, Thresholds};
pub use roster::{Choice, Policy, Query, RejectReason, Roster};
pub use slot_set::SlotSet;
pub use tenant_rules::{TenantRules, UsageLimits};
