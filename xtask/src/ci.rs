//! `cargo xtask ci`: everything that a change has to pass, on a machine that has only Rust and a
//! package manager.
//!
//! Start at [`run`]. Cheap steps come first. The tests run the workspace with default features, so
//! the end-to-end tests start the program as it ships. The planted bugs of the simulation need
//! another build, which has a target folder of its own.
//!
//! Invariant: the first step that fails ends the run.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::{Cargo, setup, tidy};

/// Runs all steps; whether all of them passed.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let has_nextest = setup::install_missing()?;
    println!("\n==> cargo xtask tidy");
    if !tidy::run(root)? {
        return Ok(false);
    }
    let mut total = Duration::ZERO;
    for step in steps(has_nextest) {
        let title = step.title();
        println!("\n==> {title}");
        let (passed, took) = timed(|| step.run(root));
        total += took;
        if !passed? {
            println!("<== FAILED after {:.0} s: {title}", took.as_secs_f64());
            return Ok(false);
        }
        println!("<== {:.0} s", took.as_secs_f64());
    }
    println!("\nci: passed in {:.0} s", total.as_secs_f64());
    Ok(true)
}

/// The calls of cargo, in order.
fn steps(has_nextest: bool) -> [Cargo; 5] {
    let test = if has_nextest { "nextest run" } else { "test" };
    [
        Cargo::new("fmt --all -- --check"),
        Cargo::new("clippy --locked --workspace --all-targets -- -D warnings"),
        Cargo::new(&format!("{test} --locked --workspace")),
        Cargo::new(&format!("{test} --locked --package lingua-sim planted")).planted(),
        Cargo::new("doc --locked --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings"),
    ]
}

#[allow(clippy::disallowed_methods, reason = "shows which step is slow; no logic depends on it")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}
