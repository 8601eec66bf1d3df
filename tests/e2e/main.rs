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
mod session_sdk;
mod session_shared;
mod session_voice;
mod shared;
mod socket;
mod tls;
mod wire;
mod world;
