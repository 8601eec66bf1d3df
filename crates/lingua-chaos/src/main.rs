//! `cargo xtask chaos`: a storm, as long as one likes.

// The lints keep libraries from printing; printing is what this program is for.
#![allow(clippy::print_stdout)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use lingua_chaos::{Options, run};

/// Kills and pauses everything while jobs are done, and judges from the outside.
#[derive(Debug, Parser)]
struct Args {
    /// What goes wrong and when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many jobs are asked for.
    #[arg(long, default_value_t = 5_000)]
    jobs: usize,
    /// How many nodes there are.
    #[arg(long, default_value_t = 60)]
    nodes: usize,
    /// How many jobs are asked for in a second.
    #[arg(long, default_value_t = 60.0)]
    rate: f64,
    /// Mean time between two faults.
    #[arg(long, default_value_t = 700)]
    fault_every_ms: u64,
    /// The program under test.
    #[arg(long, default_value = "target/release/lingua")]
    program: PathBuf,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let Args { seed, jobs, nodes, rate, fault_every_ms, program } = Args::parse();
    let report = run(&Options { program, seed, jobs, nodes, rate, fault_every_ms }).await?;
    println!("{report}");
    Ok(if report.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
