//! Write a node or a client of Lingua in a few lines.
//!
//! | module | what |
//! |---|---|
//! | [`node`] | [`Node`]: registers, takes jobs, survives lost connections, reports what came of them |
//! | [`client`] | [`Client`]: every HTTP route as a typed call |
//! | [`session`] | [`Session`]: speak, and hear the translation in the order spoken |
//!
//! Start at [`Node::run`] and [`Client::dispatch`]; `examples/node.rs` is a complete node.
//!
//! Architecture invariant: only the wire is shared with the scheduler. Nothing here knows an engine
//! or a store, so a node cannot depend on what the contract does not say.

pub mod client;
pub mod node;
pub mod session;
mod socket;
mod tls;

pub use client::{Client, ClientError};
pub use node::{
    Context, Failure, Handler, Job, Node, NodeOptions, Output, Sound, SoundStream, Stats,
};
pub use session::{Session, SessionOptions};
