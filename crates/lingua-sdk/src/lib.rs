//! Write a node or a client of Lingua in a few lines.
//!
//! | module | what it holds |
//! |---|---|
//! | [`node`] | [`Node`]: registers, runs jobs, reconnects, resends results until confirmed |
//! | [`client`] | [`Client`]: every HTTP route as a typed call |
//! | [`session`] | [`Session`]: send speech, receive the translation in the order spoken |
//!
//! Start at [`Node::run`] and [`Client::dispatch`]; `examples/node.rs` is a complete node.
//!
//! Architecture invariant: the SDK shares only the wire with the scheduler. It knows no engine and
//! no store, so a node cannot depend on what the contract does not say.

pub mod client;
mod connect;
pub mod node;
pub mod session;
mod tls;

pub use client::{Client, ClientError};
pub use connect::ConnectionError;
pub use node::{
    Context, Failure, Handler, Job, Node, NodeOptions, NodeRunError, Output, Sound, SoundStream,
    Stats,
};
pub use session::{Session, SessionSettings};
