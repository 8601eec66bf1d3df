//! The core's rules, from the outside.

mod bad_input;
mod documents;
mod fixture;
