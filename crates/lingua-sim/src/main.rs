//! The command line of the simulations; the only place that prints.
//!
//! Start at [`main`]. `quality` measures how well jobs are placed, `world` looks for faults that
//! are not survived; both end with code 1 if they are not content.

// The lints keep libraries from printing; printing is what this binary is for.
#![allow(clippy::print_stdout)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use lingua_sim::quality::{self, JOBS_DEFAULT, JOBS_MAX, JOBS_MIN, QualityOptions};
use lingua_sim::world::{
    self, PlantedBugCase, RunFile, WorldBatch, WorldKind, WorldProgress, WorldTally,
};

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
    /// Run whole worlds under faults and check the rules S1 to S11.
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
    /// Write to this file what is done, and leave out what the same program has done before: a run
    /// that was stopped goes on.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Plant every known bug (or this one), one after the other, and say which seed and checker
    /// find it.
    #[arg(long, value_name = "BUG", num_args = 0..=1, default_missing_value = "")]
    planted: Option<String>,
    /// Only this world, with everything that happens in it.
    #[arg(long)]
    seed: Option<u64>,
    /// With people who speak in sessions, and the rules S9 and S10.
    #[arg(long)]
    speakers: bool,
    /// With a store that fails over every other second.
    #[arg(long, conflicts_with = "speakers")]
    failovers: bool,
    /// With several tenants, nodes that say little, and small cells.
    #[arg(long, conflicts_with_all = ["speakers", "failovers"])]
    fleets: bool,
}

impl WorldArgs {
    fn kind(&self) -> WorldKind {
        match self {
            Self { speakers: true, .. } => WorldKind::Speakers,
            Self { failovers: true, .. } => WorldKind::Failovers,
            Self { fleets: true, .. } => WorldKind::Fleets,
            _ => WorldKind::Clients,
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
            WorldArgs { seeds, planted: Some(bug), .. } => find_planted(seeds, &bug),
            args => search(&args),
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

fn find_planted(seeds: u64, name: &str) -> bool {
    if !cfg!(planted_bugs) {
        println!("this build has no planted bugs; build with RUSTFLAGS=\"--cfg planted_bugs\"");
        return false;
    }
    let mut all_found = true;
    let is_meant = |plant: &PlantedBugCase| format!("{:?}", plant.bug).contains(name);
    for plant in world::PLANTED_BUGS.into_iter().filter(is_meant) {
        match plant.find(seeds) {
            Some((seed, found)) => {
                let as_expected =
                    plant.found_by.contains(&found.checker) && seed < plant.from + plant.within;
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

/// Seeds of a part of a run. What a part did is printed and kept.
const PART: u64 = 500;

/// After so many broken seeds a run ends early.
const BROKEN_MAX: usize = 20;

#[allow(clippy::disallowed_methods, reason = "people want to know how fast it was")]
fn search(args: &WorldArgs) -> bool {
    let (kind, end) = (args.kind(), args.from.saturating_add(args.seeds));
    let kept = args.keep.as_deref().map(RunFile::open).transpose();
    let Ok(kept) = kept.inspect_err(|error| println!("cannot keep what is done: {error}")) else {
        return false;
    };
    let mut kept = kept.unwrap_or_default();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} worlds  {per_sec}  {eta} left");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = Bar(ProgressBar::new(args.seeds).with_style(style));
    let (mut tally, mut broken) = (WorldTally::default(), vec![]);
    let (mut run_worlds, started) = (0, Instant::now());
    for from in (args.from..end).step_by(PART as usize) {
        let part = from..end.min(from + PART);
        if let Some((known, known_broken)) = kept.find(kind, &part) {
            tally.add(known);
            broken.extend_from_slice(known_broken);
            bar.0.inc(part.end - part.start);
            continue;
        }
        let batch = WorldBatch::run(part.clone(), kind, threads, None, &bar);
        bar.0.suspend(|| show_part(&part, &batch));
        tally.add(&batch.tally);
        run_worlds += batch.tally.worlds;
        broken.extend(batch.failures.iter().map(|failure| failure.seed));
        let is_whole = batch.tally.worlds == part.end - part.start;
        if is_whole && let Err(error) = kept.add(kind, part, &batch) {
            println!("cannot keep what is done: {error}");
        }
        if broken.len() >= BROKEN_MAX {
            break;
        }
    }
    bar.0.finish_and_clear();
    let rate = run_worlds as f64 / started.elapsed().as_secs_f64();
    show_run(&tally, run_worlds, rate, threads);
    println!("{} of {} seeds broke a rule: {broken:?}", broken.len(), tally.worlds);
    broken.is_empty()
}

fn show_part(seeds: &std::ops::Range<u64>, batch: &WorldBatch) {
    for failure in &batch.failures {
        println!("{}", failure.report());
    }
    let (from, until, broken) = (seeds.start, seeds.end, batch.failures.len());
    println!("seeds {from} to {}: {broken} broke a rule", until - 1);
}

fn show_run(tally: &WorldTally, run_worlds: u64, rate: f64, threads: usize) {
    println!("{}", tally.table());
    println!(
        "{} worlds, {} jobs, {} store operations, {:.0} s simulated; {run_worlds} of them now, \
         {rate:.1} worlds a second on {threads} threads",
        tally.worlds,
        tally.jobs(),
        tally.operations,
        tally.sim_ms as f64 / 1000.0,
    );
}
