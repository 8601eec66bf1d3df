//! Chores of the workspace: `cargo xtask ci`, `tidy`, `docs`, `sim`, `chaos`, `figures`,
//! `attack`, `fuzz` and `release`.
//!
//! Start at [`ci`] for the steps that a change has to pass, at [`tidy`] for the rules that the
//! compiler cannot check.
//!
//! Invariant: nothing here changes a source file; `docs` writes two pages that the program prints,
//! `fuzz` the inputs that it found.

// The lints keep libraries from printing; printing is what a chore is for.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod attack;
mod ci;
mod fuzz;
mod release;
mod setup;
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
    /// Install what the tests need and run every check, up to the first that fails.
    Ci,
    /// Check sizes, line lengths, type names, crate dependencies, links and requirements.
    Tidy,
    /// Write docs/configuration.md and docs/metrics.md anew.
    Docs,
    /// Run seeded worlds under faults: more than the tests do, or one of them again.
    Sim {
        /// `--seeds N`, `--from N`, `--seed N`, `--speakers`, `--planted`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Kill and pause real instances, nodes and Redis while jobs are done.
    Chaos {
        /// `--seed N`, `--jobs N`, `--nodes N`, `--rate N`, `--fault-every-ms N`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Measure over a Redis and a Cluster of its own, and print tables.
    Figures {
        /// `jobs`, `load`, `instances`, `nodes`, `cluster`; all of them by default.
        parts: Vec<String>,
    },
    /// Attack the program at length: Schemathesis in every role, floods, frames, slow peers.
    Attack(attack::AttackArgs),
    /// Look for inputs that bring a decoder down, and keep those that reach new code.
    Fuzz(fuzz::FuzzArgs),
    /// Check the dependencies, build the program as it is released, and look at what came out.
    Release(release::ReleaseArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let root = workspace_root()?;
    let build = Cargo::new("build --quiet --locked --release --package lingua");
    let program = root.join("target/release/lingua").display().to_string();
    let passed = match args.chore {
        Chore::Ci => ci::run(&root)?,
        Chore::Tidy => tidy::run(&root)?,
        Chore::Docs => write_docs(&root)?,
        Chore::Sim { args } => {
            let cargo = Cargo::new("run --quiet --locked --release --package lingua-sim -- world");
            let is_planted = args.iter().any(|arg| arg == "--planted");
            let cargo = if is_planted { cargo.planted() } else { cargo };
            cargo.args(args).run(&root)?
        }
        Chore::Chaos { args } => {
            let cargo = Cargo::new("run --quiet --locked --release --package lingua-chaos --");
            build.run(&root)? && cargo.args(args).env("TESTED_LINGUA", program).run(&root)?
        }
        Chore::Figures { parts } => {
            let bench = Cargo::new("build --quiet --locked --release --package lingua-bench");
            // The figures only start these two, so they are built as the tests are.
            let figures = "bench --quiet --locked --profile test --package lingua-bench --bench";
            let figures = Cargo::new(&format!("{figures} figures --")).args(parts);
            let figures = figures.env("TESTED_LINGUA", program);
            build.run(&root)? && bench.run(&root)? && figures.run(&root)?
        }
        Chore::Attack(args) => attack::run(&root, &args)?,
        Chore::Fuzz(args) => fuzz::run(&root, &args)?,
        Chore::Release(args) => release::run(&root, &args)?,
    };
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes the pages that the program prints; the end-to-end tests compare them.
fn write_docs(root: &Path) -> anyhow::Result<bool> {
    for (command, page) in [("config", "configuration.md"), ("metrics", "metrics.md")] {
        let run = ["run", "--quiet", "--locked", "--package", "lingua", "--", command, "docs"];
        let printed =
            Command::new("cargo").args(run).current_dir(root).output().context("cargo")?;
        if !printed.status.success() {
            anyhow::bail!("{}", String::from_utf8_lossy(&printed.stderr));
        }
        std::fs::write(root.join("docs").join(page), printed.stdout).context(page)?;
    }
    Ok(true)
}

/// A call of cargo.
#[derive(Debug)]
struct Cargo {
    args: Vec<String>,
    env: Vec<(&'static str, String)>,
}

impl Cargo {
    /// A call with these arguments, separated by spaces.
    fn new(args: &str) -> Self {
        Self { args: args.split(' ').map(str::to_owned).collect(), env: vec![] }
    }

    fn args(mut self, args: Vec<String>) -> Self {
        self.args.extend(args);
        self
    }

    fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// Compiles the planted bugs in, into a target folder of its own.
    fn planted(mut self) -> Self {
        let at = self.args.iter().position(|arg| arg == "--package").unwrap_or(self.args.len());
        let target_dir = ["--target-dir", "target/planted"].map(str::to_owned);
        self.args.splice(at..at, target_dir);
        self.env("RUSTFLAGS", "--cfg planted_bugs")
    }

    /// The call as one would type it.
    fn title(&self) -> String {
        let env: String =
            self.env.iter().map(|(key, value)| format!("{key}=\"{value}\" ")).collect();
        format!("{env}cargo {}", self.args.join(" "))
    }

    /// Runs it; whether it succeeded.
    fn run(&self, root: &Path) -> anyhow::Result<bool> {
        let mut command = Command::new("cargo");
        command.args(&self.args).current_dir(root);
        command.envs(self.env.iter().map(|(key, value)| (key, value)));
        Ok(command.status().context("cargo")?.success())
    }
}

/// The folder of the workspace manifest.
///
/// Read at run time, not compiled in: two checkouts may share one target folder.
fn workspace_root() -> anyhow::Result<PathBuf> {
    let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
        .context("CARGO_MANIFEST_DIR is not set; run this as `cargo xtask`")?;
    let root = Path::new(&manifest_dir).parent().context("xtask lies in no workspace")?;
    Ok(root.to_path_buf())
}
