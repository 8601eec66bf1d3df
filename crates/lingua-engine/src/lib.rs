//! The engine of a scheduler instance: it registers nodes, runs jobs and sessions, and leads if it
//! is elected.
//!
//! | module | what it holds |
//! |---|---|
//! | **entry** | |
//! | [`options`] | [`EngineOptions`]: the settings of an instance |
//! | [`service`] | [`EngineService`]: the background work, made together with its [`Handle`] |
//! | [`handle`] | the calls for clients, nodes and operators |
//! | [`state`] | [`Engine`]: what all parts of an instance share |
//! | **jobs** | |
//! | [`request`] | a job request, its progress and its end |
//! | `job_spec_codec`, `versioned` | the bytes of a job's spec and of other records |
//! | `runner` | runs one job: the core's state machine, its effects, its timers |
//! | `live_jobs` | the jobs that run here: sending them messages, waiting for them |
//! | `queue` | jobs that wait for a slot |
//! | [`byte_budget`] | bounds on what is held in memory, in bytes |
//! | `recent_results` | results with speech, until they were delivered |
//! | [`routes`] | which cell is asked for a slot |
//! | `choice`, `one_way_nodes` | what a job asks of nodes, and which it cannot go to |
//! | [`cost`] | how long a job takes on a node, learned from its reports |
//! | `usage_count` | what tenants have used: jobs, audio, characters |
//! | **nodes** | |
//! | [`node`] | the nodes that are connected here, and the messages to them |
//! | [`tenant_nodes`] | how many node ids each tenant and token has |
//! | `running` | the attempts that a node has |
//! | `mailbox` | messages to nodes without WebSocket, until they poll |
//! | `failover_guard` | nodes that must send a heartbeat before they get jobs |
//! | **instances** | |
//! | `bus` | jobs here on nodes of other instances, and the other way round |
//! | `upkeep` | presence, expired leases, jobs of dead instances |
//! | `reconcile` | jobs without a runner, ends that the store has forgotten |
//! | `leader`, [`table`] | leadership, and the pool table that the leader publishes |
//! | `change_feed` | follows the store's changes |
//! | [`tenants`], [`usage_limit`] | the rules of each tenant, and what each may use |
//! | **sessions** | |
//! | [`session`] | speakers: turns, segments, results in order |
//! | [`speech`] | audio of a speaker who still speaks |
//! | **watching** | |
//! | [`events`], [`metrics`] | events and metrics |
//! | [`last_seen`] | what stays readable while the store does not answer |
//! | [`log_limit`] | keeps one cause from filling the log |
//!
//! Start at [`Engine::submit`], then `runner`. What happens when a node dies is in
//! [`Engine::disconnect`] (its connection closed) and `upkeep` (its heartbeats stopped).
//!
//! Architecture invariants: the engine knows the [`Store`](lingua_store::Store) contract and no
//! store in particular; time comes from a [`Timer`]; it does not know the wire format. A job's
//! state is written to the store before it is acted upon.

mod bus;
pub mod byte_budget;
mod change_feed;
mod choice;
pub mod clock;
pub mod cost;
#[cfg(feature = "decoders")]
pub mod decoders;
pub mod error;
pub mod events;
mod failover_guard;
pub mod handle;
mod job_spec_codec;
pub mod last_seen;
mod leader;
mod live_jobs;
pub mod log_limit;
mod mailbox;
pub mod metrics;
pub mod node;
mod one_way_nodes;
pub mod options;
mod pool_count;
mod queue;
mod recent_results;
mod reconcile;
pub mod request;
pub mod routes;
mod runner;
mod running;
pub mod service;
pub mod session;
pub mod speech;
pub mod state;
pub mod table;
pub mod tenant_nodes;
pub mod tenants;
mod upkeep;
mod usage_count;
pub mod usage_limit;
mod versioned;

pub use clock::{Timer, TokioTimer};
pub use error::{NodeError, SubmitError};
pub use handle::Handle;
pub use options::EngineOptions;
pub use service::EngineService;
pub use state::Engine;
