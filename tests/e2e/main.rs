//! The real program, real sockets: what users see, from the outside.

mod auth;
mod cli;
mod durable;
mod events;
mod faults;
mod long_poll;
mod metrics;
mod routes;
mod socket;
mod tls;
mod world;
