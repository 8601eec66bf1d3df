//! `cargo xtask ci`: everything that a change has to pass, on a machine that has only Rust and a
//! package manager.
//!
//! Start at [`run`]. Cheap steps come first. The end-to-end tests start the program as it ships: it
//! is built alone, because a build of the workspace adds the features that other crates' tests
//! need. The planted bugs of the simulation need another build, which has a target folder of its
//! own.
//!
//! Invariant: the first step that fails ends the run.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::{Cargo, setup, tidy};

/// The program with the features and dependencies that it ships with; the tests' optimisation.
const BUILD_PROGRAM: &str = "build --locked --profile test --package lingua";

/// The checks of the SDKs in other languages: format, lints, types, tests with the real program.
const SDK_CHECKS: [&str; 2] =
    ["node sdk/typescript/scripts/check.mjs", "python3 sdk/python/tools/check.py"];

/// Runs all steps; whether all of them passed.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let has_nextest = setup::install_missing()?;
    println!("\n==> cargo xtask tidy");
    if !tidy::run(root)? {
        return Ok(false);
    }
    let program = root.join("target/shipped/lingua");
    let shipped = program.display().to_string();
    let mut total = Duration::ZERO;
    for step in steps(has_nextest, &shipped) {
        if !run_step(&step.title(), &mut total, || step.run(root))? {
            return Ok(false);
        }
        if step.args == Cargo::new(BUILD_PROGRAM).args {
            // The build of the tests puts another program in its place.
            fs::create_dir_all(root.join("target/shipped"))?;
            fs::copy(root.join("target/debug/lingua"), &program).context("target/debug/lingua")?;
        }
    }
    for script in SDK_CHECKS {
        if !run_step(script, &mut total, || run_script(root, script, &shipped))? {
            return Ok(false);
        }
    }
    println!("\nci: passed in {:.0} s", total.as_secs_f64());
    Ok(true)
}

/// Runs a step and shows how long it took; whether it passed.
fn run_step(
    title: &str,
    total: &mut Duration,
    step: impl FnOnce() -> anyhow::Result<bool>,
) -> anyhow::Result<bool> {
    println!("\n==> {title}");
    let (passed, took) = timed(step);
    *total += took;
    let passed = passed?;
    let outcome = if passed { "<==" } else { "<== FAILED after" };
    println!("{outcome} {:.0} s", took.as_secs_f64());
    Ok(passed)
}

/// Runs a check, a program with an argument, against this program; whether it succeeded.
fn run_script(root: &Path, script: &str, program: &str) -> anyhow::Result<bool> {
    let (interpreter, file) = script.split_once(' ').unwrap_or((script, ""));
    let mut command = Command::new(interpreter);
    let status = command.arg(file).env("TESTED_LINGUA", program).current_dir(root).status();
    Ok(status.with_context(|| format!("cannot run {interpreter}"))?.success())
}

/// The calls of cargo, in order.
fn steps(has_nextest: bool, program: &str) -> [Cargo; 6] {
    let test = if has_nextest { "nextest run" } else { "test" };
    [
        Cargo::new("fmt --all -- --check"),
        Cargo::new("clippy --locked --workspace --all-targets -- -D warnings"),
        Cargo::new(BUILD_PROGRAM),
        Cargo::new(&format!("{test} --locked --workspace")).env("TESTED_LINGUA", program),
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
