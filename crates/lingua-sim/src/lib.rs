//! Seeded worlds in which Lingua's own code is put to the test.
//!
//! | module | what |
//! |---|---|
//! | [`world`] | what survives which faults: the whole engine, simulated faults, checkers |
//! | [`quality`] | how well jobs are placed: a discrete-event simulation of nodes under load |
//!
//! Start at [`world::run`] and [`quality::measure`]. The binary, `cargo run -p lingua-sim --release
//! -- quality` or `-- world`, prints what they give back.
//!
//! Architecture invariant: the code under test is used as it is, never copied; chance comes from a
//! seed and time is virtual, so that the same seed gives the same numbers on every machine.

pub mod quality;
pub mod world;
