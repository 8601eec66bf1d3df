//! The real program, real sockets: what users see, from the outside.

mod alerts;
mod answers;
mod audit;
mod auth;
mod bounds;
mod browser_page;
mod browsers;
mod callers;
mod canary;
mod capable_nodes;
mod cells;
mod chaos;
mod cli;
mod closing;
mod config;
mod durable;
mod events;
mod failover;
mod fair_share;
mod faults;
mod first_hour;
mod fleet;
mod floods;
mod foreign_nodes;
mod foreign_records;
mod formats;
mod grants;
mod half_open;
mod hostile_http;
mod hosts;
mod http;
mod idempotency;
mod instances;
mod job_ends;
mod job_lists;
mod json_socket;
mod kept;
mod labels;
mod leader;
mod long_poll;
mod memory;
mod metrics;
mod node_owners;
mod operators;
mod outage;
mod pins;
mod policies;
mod pools;
mod private_jobs;
mod proxy;
mod raw_frames;
mod raw_node;
mod redis;
mod regional;
mod reservations;
mod retries;
mod revocation;
mod routes;
mod say;
mod scheduler;
mod session;
mod session_limits;
mod session_notices;
mod session_sdk;
mod session_shared;
mod session_voice;
mod shared;
mod silence;
mod slow_peers;
mod socket;
mod speech;
mod tenants;
mod tls;
mod usage;

// The servers that the store's own tests start; not all that those need is needed here.
#[allow(dead_code, clippy::unwrap_used, reason = "the store's own tests use the rest")]
#[path = "../../crates/lingua-redis/tests/it/clustered.rs"]
mod clustered;
#[allow(dead_code, clippy::unwrap_used, reason = "the store's own tests use the rest")]
#[path = "../../crates/lingua-redis/tests/it/servers.rs"]
mod servers;
#[allow(dead_code, clippy::unwrap_used, reason = "the store's own tests use the rest")]
#[path = "../../crates/lingua-redis/tests/it/watched.rs"]
mod watched;
