//! The HTTP and WebSocket edge of an instance.
//!
//! | module | what it holds |
//! |---|---|
//! | [`options`] | the options of the server |
//! | [`auth`] | tokens, grants, and what they allow |
//! | [`audit`] | who was refused, and what administrators did |
//! | [`limit`] | the rate limit |
//! | [`tls`] | certificate and key |
//! | `listen` | accepts connections: timeouts, graceful stop |
//! | [`caller_address`] | who calls, behind proxies |
//! | `connections` | how many connections there are, and peers that do not read |
//! | `app` | the server, the state that routes share, the router |
//! | `request` | what every request passes: its id, its span, the limits of its body |
//! | `guard` | whether a caller may use a route |
//! | [`audio_ref`] | which references to audio nodes are sent |
//! | `cors` | what web pages of the allowed origins may call |
//! | `reply` | responses and errors |
//! | `route_table` | the table of routes |
//! | `openapi` | the OpenAPI document, made from the table |
//! | `routes` | the routes of clients, nodes and operators |
//! | `event_streams` | server-sent events |
//! | `frames`, `pace` | what both WebSockets share, and how fast their peers may send |
//! | `socket` | the node WebSocket |
//! | `session` | the session WebSocket |
//! | `convert` | between wire and engine types |
//! | `metrics`, `process` | the metrics of the server and of its process |
//!
//! Start at [`Server::serve`], then `app`.
//!
//! Architecture invariant: only this crate speaks HTTP; nothing here decides anything about jobs.

#[cfg(planted_bugs)]
compile_error!("planted bugs are for the tests of lingua-sim and not for a server");

mod app;
pub mod audio_ref;
pub mod audit;
pub mod auth;
pub mod caller_address;
mod connections;
mod convert;
mod cors;
#[cfg(feature = "decoders")]
pub mod decoders;
mod event_streams;
mod frames;
mod guard;
pub mod limit;
mod linger;
mod listen;
pub mod metrics;
mod openapi;
pub mod options;
mod pace;
mod process;
mod reply;
mod request;
mod route_table;
mod routes;
mod session;
mod socket;
pub mod tls;

pub use app::Server;
pub use options::ServerOptions;
