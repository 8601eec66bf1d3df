//! Chores of the workspace: `cargo xtask tidy` and `cargo xtask ci`.
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
use std::process::ExitCode;

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
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let root = workspace_root()?;
    let passed = match args.chore {
        Chore::Tidy { verbose } => tidy::run(&root, verbose)?,
        Chore::Ci => ci::run(&root)?,
    };
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
