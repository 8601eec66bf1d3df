//! `lingua-bench`: how many jobs a second a scheduler carries, how long they take, what they cost.
//!
//! | file | what it holds |
//! |---|---|
//! | `args.rs` | the command line |
//! | `compare.rs` | `compare`: several programs, a bare relay and Gearman, measured in turn |
//! | `load.rs` | `load`: one scheduler under one load, with one or more instances |
//! | `recording.rs` | `load --replay`: what the store's server could do, from recorded calls |
//! | `fleet.rs` | `fleet`: many nodes at once |
//! | `sessions.rs` | `sessions`: people who talk at real time |
//! | `broker.rs` | starts what is measured, each in a process of its own |
//! | `tokens.rs` | a configuration with tokens and tenants |
//! | `relay.rs` | the bare relay that a scheduler is compared with |
//! | `gearman.rs` | clients and workers of Gearman |
//! | `nodes.rs`, `raw_client.rs` | nodes and clients that cost little |
//! | `stats.rs`, `timeline.rs` | counts and latencies |
//! | `store_cost.rs` | what the servers of a shared store do for each job |
//! | `machine.rs` | cores, CPU times, memory |
//! | `report.rs`, `output.rs` | the results as a page, as tables |
//!
//! Start at [`run`]. Invariant: clients and nodes run in this process, the scheduler in another,
//! so that the CPU time of the scheduler's process is the scheduler's alone.

// The lints keep libraries from printing; a program prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use serde_json::Value;

mod args;
mod broker;
mod compare;
mod fleet;
mod gearman;
mod load;
mod machine;
mod nodes;
mod output;
mod raw_client;
mod recording;
mod relay;
mod report;
mod sessions;
mod stats;
mod store_cost;
mod timeline;
mod tokens;

use args::{BenchCli, BenchCommand};
use machine::{BenchMachine, CorePins, CpuUsage};
use output::BenchProgress;
use report::ReportPage;

/// The relay has the allocator of the scheduler, so that it does not differ in that.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// If other programs used more of the machine than this, the output says to measure again.
const OTHERS_MAX: f64 = 0.1;

/// The result of a benchmark in each form that a user can ask for.
struct BenchResult {
    text: String,
    json: Value,
    page: ReportPage,
}

/// What every benchmark is given.
struct BenchContext {
    pins: Option<CorePins>,
    progress: BenchProgress,
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime
        .context("cannot start the runtime")
        .and_then(|runtime| runtime.block_on(run(BenchCli::parse().command)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lingua-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: BenchCommand) -> anyhow::Result<()> {
    let common = match &command {
        BenchCommand::Relay(args) => return relay::run(args).await,
        BenchCommand::Compare(args) => args.common.clone(),
        BenchCommand::Load(args) => args.common.clone(),
        BenchCommand::Fleet(args) => args.common.clone(),
        BenchCommand::Sessions(args) => args.common.clone(),
    };
    if let Some(file) = &common.report {
        // A path that cannot be written is an error before the measurement, not after it.
        write_page(file, "")?;
    }
    let machine = BenchMachine::here();
    // The servers of a shared store need a part of a core, too, which is not known beforehand.
    let pins = machine.pins().filter(|_| !common.no_pin && !common.is_shared());
    if let Some(pins) = &pins {
        pins.pin_self()?;
    }
    let context = BenchContext { pins, progress: BenchProgress::new(common.json) };
    let before = CpuUsage::now();
    let result = tokio::select! {
        result = measure(command, &context) => result?,
        stopped = tokio::signal::ctrl_c() => {
            stopped.context("cannot wait for Ctrl-C")?;
            bail!("stopped");
        }
    };
    context.progress.finish();
    let usage = CpuUsage::now().zip(before);
    // The servers of a shared store would count as other programs.
    let others =
        usage.map(|(now, before)| now.others_since(&before)).filter(|_| !common.is_shared());
    let steal = usage.map(|(now, before)| now.steal_since(&before));
    let mut facts = machine.facts(context.pins.as_ref());
    let percent = |share: f64| format!("{:.1} % of all cores", share * 100.0);
    facts.extend(others.map(|share| ("other load", percent(share))));
    facts.extend(steal.map(|share| ("stolen by the host", percent(share))));
    if let Some(file) = &common.report {
        write_page(file, &result.page.html(&facts))?;
    }
    if common.json {
        let mut json = result.json;
        json["machine"] = facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        println!("{json}");
        return Ok(());
    }
    println!("{}", result.text);
    if let Some(share) = others.filter(|share| *share > OTHERS_MAX) {
        let percent = share * 100.0;
        println!(
            "\nOther programs used {percent:.0} % of this machine: repeat it when it is quiet."
        );
    }
    if let Some(file) = &common.report {
        println!("\nreport: {}", file.display());
    }
    Ok(())
}

fn write_page(file: &Path, html: &str) -> anyhow::Result<()> {
    std::fs::write(file, html).with_context(|| {
        format!("cannot write the report to {}; give another file with --report", file.display())
    })
}

async fn measure(command: BenchCommand, context: &BenchContext) -> anyhow::Result<BenchResult> {
    match command {
        BenchCommand::Compare(args) => Ok(compare::run(args.plan()?, context).await?.result()),
        BenchCommand::Load(args) => load::run(args.plan()?, context).await?.result(),
        BenchCommand::Fleet(args) => Ok(fleet::run(args.plan()?, context).await?.result()),
        BenchCommand::Sessions(args) => {
            let (sessions, length) = (args.sessions, args.common.length(args::SECONDS));
            let scheduler = args.common.scheduler()?;
            Ok(sessions::run(sessions, length, scheduler, context).await?.result())
        }
        BenchCommand::Relay(_) => bail!("the relay is no benchmark"),
    }
}
