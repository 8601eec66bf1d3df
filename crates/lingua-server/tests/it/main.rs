//! The server crate over real sockets: an engine on the embedded store, keep-alive connections.

mod access;
mod client;
mod http;
mod log;
mod node_socket;
mod server;
mod stop;
mod timeouts;
