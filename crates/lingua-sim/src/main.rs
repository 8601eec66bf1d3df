//! The command line of the simulations; the only place that prints.
//!
//! Start at [`main`]. `quality` measures how well jobs are placed and ends with code 1 if a goal is
//! missed.

// The lints keep libraries from printing; printing is what this binary is for.
#![allow(clippy::print_stdout)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lingua_sim::quality::{self, JOBS_DEFAULT, JOBS_MAX, JOBS_MIN, Options};

/// Simulations of Lingua.
#[derive(Debug, Parser)]
#[command(name = "lingua-sim")]
struct Args {
    #[command(subcommand)]
    simulation: Simulation,
}

#[derive(Debug, Subcommand)]
enum Simulation {
    /// Measure how well jobs are placed and check the goals.
    Quality {
        /// Jobs in each run; the first tenth warms up and is not counted. Much shorter runs than the
        /// default may miss a goal by chance.
        #[arg(long, default_value_t = JOBS_DEFAULT,
              value_parser = clap::value_parser!(u32).range(JOBS_MIN..=JOBS_MAX))]
        jobs: u32,
        /// The first of the seeds.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Print JSON instead of tables.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let Simulation::Quality { jobs, seed, json } = Args::parse().simulation;
    let report = quality::measure(Options { jobs, seed });
    match json {
        true => println!("{}", report.to_json()),
        false => println!("{report}"),
    }
    match report.all_goals_met() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
