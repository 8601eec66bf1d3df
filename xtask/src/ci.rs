//! Runs what a change has to pass, in the order in which it is cheapest to fail.
//!
//! Start at [`steps`]: the list is data, so that a test can read it.
//!
//! Invariant: the first step that fails ends the run.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::tidy;

/// One heading of the run.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// A call of cargo with these arguments and environment variables.
    Cargo { args: Vec<&'static str>, env: Option<(&'static str, &'static str)> },
    /// The tidy check, inside this process.
    Tidy,
}

/// Runs all steps; whether all of them passed.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let has_nextest = has_nextest();
    if !has_nextest {
        println!("cargo-nextest is not installed: the tests run with `cargo test` instead");
    }
    run_in_order(&steps(has_nextest), |step| match step {
        Step::Cargo { args, env } => call_cargo(root, args, *env),
        Step::Tidy => tidy::run(root, false),
    })
}

/// What to run, always with the locked dependencies; only `cargo fmt` has no flag for it.
fn steps(has_nextest: bool) -> Vec<Step> {
    let cargo = |line: &'static str| Step::Cargo { args: line.split(' ').collect(), env: None };
    vec![
        cargo("fmt --all -- --check"),
        cargo("clippy --locked --workspace --all-targets --all-features -- -D warnings"),
        Step::Tidy,
        if has_nextest {
            cargo("nextest run --locked --workspace --all-features")
        } else {
            cargo("test --locked --workspace --all-features")
        },
        cargo("test --doc --locked --workspace --all-features"),
        Step::Cargo {
            args: "doc --locked --workspace --no-deps --all-features".split(' ').collect(),
            env: Some(("RUSTDOCFLAGS", "-D warnings")),
        },
    ]
}

/// Hands each step to `perform` until one does not pass.
fn run_in_order(
    steps: &[Step],
    mut perform: impl FnMut(&Step) -> anyhow::Result<bool>,
) -> anyhow::Result<bool> {
    let mut total = Duration::ZERO;
    for step in steps {
        let title = step.title();
        println!("\n==> {title}");
        let (passed, took) = timed(|| perform(step));
        total += took;
        if !passed? {
            println!("<== FAILED after {:.1} s: {title}", took.as_secs_f64());
            return Ok(false);
        }
        println!("<== {:.1} s", took.as_secs_f64());
    }
    println!("\nci: {} steps in {:.1} s: ok", steps.len(), total.as_secs_f64());
    Ok(true)
}

impl Step {
    /// The step as one would type it.
    fn title(&self) -> String {
        match self {
            Self::Cargo { args, env: None } => format!("cargo {}", args.join(" ")),
            Self::Cargo { args, env: Some((name, value)) } => {
                format!("{name}=\"{value}\" cargo {}", args.join(" "))
            }
            Self::Tidy => "cargo xtask tidy".to_owned(),
        }
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "people want to know which step is slow; no logic depends on it"
)]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

fn call_cargo(root: &Path, args: &[&str], env: Option<(&str, &str)>) -> anyhow::Result<bool> {
    let status =
        Command::new("cargo").args(args).envs(env).current_dir(root).status().context("cargo")?;
    Ok(status.success())
}

fn has_nextest() -> bool {
    Command::new("cargo")
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_run_in_the_documented_order() {
        let titles: Vec<String> = steps(true).iter().map(Step::title).collect();
        assert_eq!(
            titles,
            [
                "cargo fmt --all -- --check",
                "cargo clippy --locked --workspace --all-targets --all-features -- -D warnings",
                "cargo xtask tidy",
                "cargo nextest run --locked --workspace --all-features",
                "cargo test --doc --locked --workspace --all-features",
                "RUSTDOCFLAGS=\"-D warnings\" \
                 cargo doc --locked --workspace --no-deps --all-features",
            ]
        );
    }

    #[test]
    fn without_nextest_only_the_test_runner_changes() {
        let (with, without) = (steps(true), steps(false));
        let changed: Vec<String> = with
            .iter()
            .zip(&without)
            .filter(|(with, without)| with != without)
            .map(|(_, without)| without.title())
            .collect();
        assert_eq!(with.len(), without.len());
        assert_eq!(changed, ["cargo test --locked --workspace --all-features"]);
    }

    #[test]
    fn first_failure_ends_the_run() {
        let mut performed = 0;
        let passed = run_in_order(&steps(true), |_| {
            performed += 1;
            Ok(performed < 3)
        });
        assert!(!passed.unwrap());
        assert_eq!(performed, 3);
    }

    #[test]
    fn passes_only_after_every_step() {
        let mut performed = 0;
        let passed = run_in_order(&steps(true), |_| {
            performed += 1;
            Ok(true)
        });
        assert!(passed.unwrap());
        assert_eq!(performed, steps(true).len());
    }
}
