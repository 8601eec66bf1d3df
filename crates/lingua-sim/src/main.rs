//! The command line of the simulations; the only place that prints.
//!
//! Start at [`main`]. `quality` measures how well jobs are placed, `world` looks for faults that
//! are not survived; both end with code 1 if they are not content.

// The lints keep libraries from printing; printing is what this binary is for.
#![allow(clippy::print_stdout)]

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use lingua_sim::quality::{self, JOBS_DEFAULT, JOBS_MAX, JOBS_MIN, QualityOptions};
use lingua_sim::world::{self, WorldBatch, WorldKind, WorldProgress};

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
        /// Jobs in each run; the first tenth warms up and is not counted. Much shorter runs than
        /// the default may miss a goal by chance.
        #[arg(long, default_value_t = JOBS_DEFAULT,
              value_parser = clap::value_parser!(u32).range(JOBS_MIN..=JOBS_MAX))]
        jobs: u32,
        /// The first of the seeds.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Print JSON instead of tables.
        #[arg(long)]
        json: bool,
        /// Only the goals for fleets that change.
        #[arg(long)]
        fleets: bool,
    },
    /// Run whole worlds under faults and check the rules S1 to S8, with speakers also S9 and S10.
    World(WorldArgs),
}

#[derive(Debug, clap::Args)]
struct WorldArgs {
    /// How many worlds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Plant every known bug, one after the other, and say which seed and checker find it.
    #[arg(long)]
    planted: bool,
    /// Only this world, with everything that happens in it.
    #[arg(long)]
    seed: Option<u64>,
    /// With people who speak in sessions, and the rules S9 and S10.
    #[arg(long)]
    speakers: bool,
    /// With a store that fails over every other second.
    #[arg(long, conflicts_with = "speakers")]
    failovers: bool,
}

impl WorldArgs {
    fn kind(&self) -> WorldKind {
        match (self.speakers, self.failovers) {
            (true, _) => WorldKind::Speakers,
            (false, true) => WorldKind::Failovers,
            (false, false) => WorldKind::Clients,
        }
    }
}

fn main() -> ExitCode {
    let passed = match Args::parse().simulation {
        Simulation::Quality { jobs, seed, json, fleets } => {
            measure(QualityOptions { jobs, seed }, json, fleets)
        }
        Simulation::World(args) => match args {
            WorldArgs { seed: Some(seed), .. } => replay(seed, args.kind()),
            WorldArgs { seeds, planted: true, .. } => find_planted(seeds),
            WorldArgs { seeds, from, .. } => search(from, seeds, args.kind()),
        },
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure(options: QualityOptions, json: bool, fleets: bool) -> bool {
    let report = match fleets {
        true => quality::measure_fleets(options),
        false => quality::measure(options),
    };
    match json {
        true => println!("{}", report.to_json()),
        false => println!("{report}"),
    }
    report.all_goals_met()
}

fn replay(seed: u64, kind: WorldKind) -> bool {
    let outcome = world::run(seed, kind, None);
    print!("{}", outcome.trace);
    println!("{}", outcome.report());
    outcome.violation.is_none()
}

fn find_planted(seeds: u64) -> bool {
    if !cfg!(planted_bugs) {
        println!("this build has no planted bugs; build with RUSTFLAGS=\"--cfg planted_bugs\"");
        return false;
    }
    let mut all_found = true;
    for plant in world::PLANTED_BUGS {
        match plant.find(seeds) {
            Some((seed, found)) => {
                let as_expected = plant.found_by.contains(&found.checker) && seed <= plant.within;
                all_found &= as_expected;
                let mark = if as_expected { "ok" } else { "UNEXPECTED" };
                println!(
                    "{mark} {:?}: seed {seed}, {}: {:.120}",
                    plant.bug, found.checker, found.text
                );
            }
            None => {
                all_found = false;
                println!("MISSED {:?}: not in {seeds} seeds", plant.bug);
            }
        }
    }
    all_found
}

struct Bar(ProgressBar);

impl WorldProgress for Bar {
    fn one_more(&self) {
        self.0.inc(1);
    }
}

#[allow(clippy::disallowed_methods, reason = "people want to know how fast it was")]
fn search(from: u64, seeds: u64, kind: WorldKind) -> bool {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} worlds  {per_sec}  {eta} left");
    let bar =
        Bar(ProgressBar::new(seeds)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let started = Instant::now();
    let batch = WorldBatch::run(from..from.saturating_add(seeds), kind, threads, None, &bar);
    bar.0.finish_and_clear();
    for failure in &batch.failures {
        println!("{}", failure.report());
    }
    let tally = &batch.tally;
    let took_s = started.elapsed().as_secs_f64();
    let simulated_s = tally.sim_ms as f64 / 1000.0;
    println!("{}", tally.table());
    println!(
        "{} worlds, {} jobs, {} store operations, {simulated_s:.0} s simulated in {took_s:.1} s \
         on {threads} threads: {:.0} times real time for each",
        tally.worlds,
        tally.jobs(),
        tally.operations,
        simulated_s / took_s / threads as f64,
    );
    println!("{} of {} seeds broke a rule", batch.failures.len(), tally.worlds);
    batch.failures.is_empty()
}
