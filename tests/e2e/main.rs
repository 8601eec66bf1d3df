//! The real program, real sockets: what users see, from the outside.

mod auth;
mod chaos;
mod cli;
mod durable;
mod events;
mod faults;
mod half_open;
mod instances;
mod leader;
mod long_poll;
mod memory;
mod metrics;
mod outage;
mod redis;
mod routes;
mod say;
mod session;
mod session_limits;
mod session_shared;
mod shared;
mod socket;
mod tls;
mod world;
