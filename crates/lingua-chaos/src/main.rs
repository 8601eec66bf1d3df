//! `cargo xtask chaos`: a chaos run of any length.

// The lints keep libraries from printing; printing is what this program is for.
#![allow(clippy::print_stdout)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use lingua_chaos::{ChaosOptions, run};

/// Kills and pauses instances, nodes and Redis while jobs run, and checks every rule.
#[derive(Debug, Parser)]
struct Args {
    /// Decides which faults are injected and when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of jobs.
    #[arg(long, default_value_t = 5_000)]
    jobs: usize,
    /// The number of nodes.
    #[arg(long, default_value_t = 60)]
    nodes: usize,
    /// Jobs per second.
    #[arg(long, default_value_t = 60.0)]
    rate: f64,
    /// Mean time between two faults, in milliseconds.
    #[arg(long, default_value_t = 700)]
    fault_every_ms: u64,
    /// The program under test.
    #[arg(long, default_value = "target/release/lingua")]
    program: PathBuf,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let Args { seed, jobs, nodes, rate, fault_every_ms, program } = Args::parse();
    let report = run(&ChaosOptions { program, seed, jobs, nodes, rate, fault_every_ms }).await?;
    println!("{report}");
    Ok(if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
