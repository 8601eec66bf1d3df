//! The edge of an instance: HTTP and WebSocket.
//!
//! | module | what |
//! |---|---|
//! | [`options`] | how it is set up |
//! | [`auth`] | tokens and what they allow |
//! | [`limit`] | how often one caller may ask |
//! | `listen` | connections: timeouts, graceful stop |
//! | `request` | what every request passes: its id, its span, its body |
//! | `guard` | whether a caller may use a route |
//! | [`tls`] | certificate and key |
//! | `metrics` | what is counted here |
//! | `app` | what all routes share |
//! | `table` | the table of routes |
//! | `openapi`, `docs` | its description, for machines and for people |
//! | `routes` | one file for each kind of caller |
//! | `socket` | the node WebSocket |
//! | `session` | the session WebSocket |
//! | `convert` | between the wire's words and the engine's |
//! | `reply` | answers and errors |
//!
//! Start at [`Server::serve`], then `app`.
//!
//! Architecture invariant: only this crate speaks HTTP; nothing here decides anything about jobs.

#[cfg(planted_bugs)]
compile_error!("planted bugs are for the tests of lingua-sim and not for the server");

mod app;
pub mod auth;
mod convert;
mod docs;
mod guard;
pub mod limit;
mod listen;
mod metrics;
mod openapi;
pub mod options;
mod reply;
mod request;
mod routes;
mod session;
mod socket;
mod table;
pub mod tls;

pub use app::Server;
pub use options::ServerOptions;
