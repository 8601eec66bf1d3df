//! The messages, from the outside.

mod bad_dispatch;
mod bad_node;
mod capability;
mod codes;
mod frames;
mod golden;
mod languages;
mod never_panics;
mod schema;
mod session;
mod values;
