//! The real program, real sockets: what users see, from the outside.

mod auth;
mod cli;
mod durable;
mod faults;
mod long_poll;
mod routes;
mod shared;
mod socket;
mod world;
