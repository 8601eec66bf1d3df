//! What a scheduler instance does: it keeps nodes, runs jobs, lets them wait, and leads if it must.
//!
//! | module | what |
//! |---|---|
//! | [`options`] | how it is set up |
//! | [`service`] | [`EngineService`]: the background work; made together with its [`Handle`] |
//! | [`handle`] | [`Handle`]: what the edge calls for nodes, clients and operators |
//! | [`request`] | what a job asks for, and what came of it |
//! | `job_spec_codec` | the bytes of a job's spec, with a version |
//! | [`node`] | the nodes that are connected here |
//! | `runner` | one job's life: the core's state machine, its effects, its timers |
//! | `live_jobs` | the jobs that run here: sending them messages, and waiting for them |
//! | `queue` | jobs that wait for a slot |
//! | `routes` | which cells to ask first |
//! | [`bus`] | jobs here on nodes of other instances, and the other way round |
//! | `amends` | jobs that nobody runs, ends that the store forgot |
//! | `doubt` | nodes that have to report before they get jobs |
//! | [`session`] | people who speak: turns, segments, results in order |
//! | [`speech`] | what is being said, while it is being said |
//! | `one_way_nodes` | nodes that serve only one direction of a two-way session |
//! | [`table`] | the pool table that the leader publishes |
//! | [`events`] | what happens, for whoever wants to watch |
//! | [`metrics`] | what is counted |
//!
//! Start at [`handle::Handle::submit`], then `runner`.
//!
//! Architecture invariants: the engine knows the [`Store`](lingua_store::Store) contract and no store
//! in particular; time comes from a [`Timer`]; the wire format is the edge's business. A job's state is
//! written to the store before it is acted upon.

mod binding;
pub mod bus;
pub mod clock;
mod cost;
pub mod error;
pub mod events;
mod failover_guard;
pub mod handle;
mod job_spec_codec;
mod live_jobs;
pub mod metrics;
pub mod node;
mod one_way_nodes;
pub mod options;
mod queue;
mod reconcile;
pub mod request;
mod routes;
mod runner;
pub mod service;
pub mod session;
pub mod speech;
mod state;
pub mod table;
mod upkeep;

pub use clock::{Timer, TokioTimer};
pub use error::{NodeError, SubmitError};
pub use handle::Handle;
pub use options::EngineOptions;
pub use service::EngineService;
