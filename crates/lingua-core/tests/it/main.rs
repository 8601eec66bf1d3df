//! The core's rules, from the outside.

mod bad_input;
mod fixture;
mod pools;
