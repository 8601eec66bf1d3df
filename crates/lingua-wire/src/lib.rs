//! The JSON of nodes, clients and admins: the only place that knows how messages look.
//!
//! | module | what it holds |
//! |---|---|
//! | [`message`] | reading ([`parse`]) and writing ([`to_json`]) |
//! | [`node`] | messages of nodes: registration, heartbeats, reports about jobs |
//! | [`scheduler`] | messages of the scheduler to nodes |
//! | [`client`] | requests of clients, and the short responses |
//! | [`session`] | messages of a session's socket |
//! | [`view`] | jobs, nodes, pools and the cluster as people and tools see them |
//! | [`lang`] | language tags in any spelling, made canonical |
//! | [`audio`] | audio inside or beside a message |
//! | [`error`] | every error code, and what is wrong with a request |
//! | [`limits`] | how much of everything a message may carry |
//! | [`raw`] | JSON that is passed on unread |
//! | [`schema`] | the JSON Schema of every message |
//! | [`names`] | the name of every message |
//!
//! Start at [`NodeMessage::parse`](node::NodeMessage::parse) and
//! [`Dispatch::into_spec`](client::Dispatch::into_spec). The types are the JSON, field by field;
//! methods such as [`Register::into_parts`](node::Register::into_parts) check them and give the
//! core's values. `golden/` has every message as a file.
//!
//! Architecture invariant: there is no IO here and nothing asynchronous, and the core knows nothing
//! of JSON. No input panics; every refusal names the field and says what to do.

pub mod audio;
pub mod client;
pub mod error;
mod json;
mod labels;
pub mod lang;
pub mod limits;
pub mod message;
pub mod names;
pub mod node;
pub mod raw;
pub mod scheduler;
pub mod schema;
pub mod session;
pub mod view;
mod wire_types;

pub use error::{ErrorBody, ErrorCode, RequestError};
pub use message::{Message, parse, parse_text, to_json, write_json};
pub use raw::RawJson;
