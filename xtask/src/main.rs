//! Chores of the workspace: `cargo xtask tidy`, `ci`, `sim`, `chaos` and `figures`.
//!
//! Start at [`tidy`] for the rules that the compiler cannot check, at [`ci`] for the steps that a
//! change has to pass.
//!
//! Invariant: nothing here changes a source file.

// The lints keep libraries from printing; printing is what a chore is for.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod ci;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context;
use clap::{Parser, Subcommand};

/// Chores of the Lingua workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Check sizes, names, crate arrows and documents.
    Tidy {
        /// Also name the files that are longer than they should be, but still allowed.
        #[arg(long)]
        verbose: bool,
    },
    /// Run every check, in order, up to the first that fails.
    Ci,
    /// Run seeded worlds under faults; more than the tests do, or one of them again.
    Sim {
        /// What to run: `--seeds N`, `--seed N`, `--planted`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Kill and pause real instances, nodes and Redis while jobs are done.
    Chaos {
        /// How: `--seed N`, `--jobs N`, `--nodes N`, `--rate N`, `--fault-every-ms N`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Measure over a Redis and a Cluster of its own, and print tables.
    Figures {
        /// Which: `jobs`, `load`, `instances`, `nodes`, `cluster`; all of them, unless it is said.
        parts: Vec<String>,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let root = workspace_root()?;
    let passed = match args.chore {
        Chore::Tidy { verbose } => tidy::run(&root, verbose)?,
        Chore::Ci => ci::run(&root)?,
        Chore::Sim { args } => simulate(&root, &args)?,
        Chore::Chaos { args } => rage(&root, &args)?,
        Chore::Figures { parts } => figures(&root, &parts)?,
    };
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Hands over to the simulation, built for speed.
fn simulate(root: &Path, args: &[String]) -> anyhow::Result<bool> {
    let status = Command::new("cargo")
        .args(["run", "--quiet", "--locked", "--release", "--package", "lingua-sim", "--", "world"])
        .args(args)
        .current_dir(root)
        .status()
        .context("cargo")?;
    Ok(status.success())
}

/// Builds the program and lets a storm loose on it.
fn rage(root: &Path, args: &[String]) -> anyhow::Result<bool> {
    let storm = ["run", "--quiet", "--locked", "--release", "--package", "lingua-chaos", "--"];
    Ok(build(root)? && cargo(root, &storm, args)?)
}

/// Builds the program and measures it. What asks it to measure need not be fast: it is built as the tests are.
fn figures(root: &Path, parts: &[String]) -> anyhow::Result<bool> {
    let ask = ["bench", "--quiet", "--locked", "--profile", "test", "--package", "lingua"];
    let ask = [ask.as_slice(), &["--bench", "figures", "--"]].concat();
    Ok(build(root)? && cargo(root, &ask, parts)?)
}

/// Builds the program for speed.
fn build(root: &Path) -> anyhow::Result<bool> {
    cargo(root, &["build", "--quiet", "--locked", "--release", "--package", "lingua"], &[])
}

fn cargo(root: &Path, words: &[&str], more: &[String]) -> anyhow::Result<bool> {
    let mut command = Command::new("cargo");
    command.args(words).args(more).current_dir(root);
    // Where the storm looks, too.
    command.env("LINGUA_BIN", root.join("target/release/lingua"));
    Ok(command.status().context("cargo")?.success())
}

/// The folder of the workspace manifest.
///
/// Asked at run time, not compiled in: two checkouts may share one target folder.
fn workspace_root() -> anyhow::Result<PathBuf> {
    let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
        .context("CARGO_MANIFEST_DIR is not set; run this as `cargo xtask`")?;
    let root = Path::new(&manifest_dir).parent().context("xtask lies in no workspace")?;
    Ok(root.to_path_buf())
}
