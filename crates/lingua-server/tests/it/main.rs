//! The server crate over real sockets: an engine on the embedded store, keep-alive connections.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod access;
mod client;
mod http;
mod log;
mod node_socket;
mod server;
mod stop;
mod timeouts;
