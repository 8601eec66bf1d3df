//! The `lingua` program: the scheduler, simulated nodes, and tools for people.
//!
//! Start at [`Command`]; each command has a file of its own. Exit codes: 0 ok, 1 failed, 2 usage,
//! 64 bad configuration. What people read goes to stdout, errors to stderr, and every error says
//! what to do.

// The lints keep libraries from printing; a program prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

#[cfg(planted_bugs)]
compile_error!("planted bugs are for the tests of lingua-sim and not for the program");

use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};

mod api;
mod background;
mod backing;
mod bench;
mod config;
mod demo;
mod explain;
mod inspect;
mod instances;
mod jobs;
mod node;
mod nodes;
mod orders;
mod pools;
mod say;
mod screen;
mod serve;
mod simulated;
mod token;

/// A job is a few dozen small allocations on one thread, freed on the same: jemalloc is made for
/// it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A scheduler for live speech translation.
#[derive(Debug, Parser)]
#[command(name = "lingua", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the scheduler.
    Serve(serve::ServeArgs),
    /// See it all at once: a scheduler, a simulated fleet and live traffic.
    Demo(demo::DemoArgs),
    /// Speak a file or a text, and see what comes back.
    Say(say::SayArgs),
    /// Run simulated nodes.
    Node(node::NodeArgs),
    /// List nodes, or show one.
    Nodes(nodes::NodesArgs),
    /// List pools (directions of translation), or show one.
    Pools(pools::PoolsArgs),
    /// List jobs, or show one.
    Jobs(jobs::JobsArgs),
    /// List scheduler instances, or show one.
    Instances(instances::InstancesArgs),
    /// Give a node no new jobs; it finishes what it has.
    Drain(orders::NodeOrderArgs),
    /// Give a drained node jobs again.
    Resume(orders::NodeOrderArgs),
    /// Cancel a job.
    Cancel(orders::CancelArgs),
    /// Say why each node would or would not get a job now.
    Explain(explain::ExplainArgs),
    /// Look into a shared store itself: a cell, a node with its leases, a job.
    Inspect(inspect::InspectArgs),
    /// Measure how many jobs a second a scheduler carries.
    Bench(bench::BenchArgs),
    /// Make tokens for nodes, clients and admins.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Look at the configuration.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print a script that completes commands in a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lingua: {error:#}");
            match error.downcast_ref::<config::BadConfig>() {
                Some(_) => ExitCode::from(64),
                None => ExitCode::FAILURE,
            }
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve(args) => serve::run(args),
        Command::Demo(args) => {
            // A log would tear the picture.
            serve::start_logging_at("off");
            ask(demo::run(args))
        }
        Command::Node(args) => {
            serve::start_logging_at("warn");
            ask(node::run(args))
        }
        Command::Say(args) => {
            serve::start_logging_at("warn");
            ask(say::run(args))
        }
        Command::Nodes(args) => ask(nodes::run(args)),
        Command::Pools(args) => ask(pools::run(args)),
        Command::Jobs(args) => ask(jobs::run(args)),
        Command::Instances(args) => ask(instances::run(args)),
        Command::Drain(args) => ask(orders::drain(args)),
        Command::Resume(args) => ask(orders::resume(args)),
        Command::Cancel(args) => ask(orders::cancel(args)),
        Command::Explain(args) => ask(explain::run(args)),
        Command::Inspect(args) => ask(inspect::run(args)),
        Command::Bench(args) => {
            serve::start_logging_at("error");
            ask(bench::run(args))
        }
        Command::Token(command) => token::run(command),
        Command::Config(command) => config::run(command),
        Command::Completions { shell } => {
            let mut command = Cli::command();
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "lingua", &mut script);
            screen::put(&String::from_utf8_lossy(&script));
            Ok(())
        }
    }
}

/// The environment variables that commands read by themselves.
fn known_variables() -> Vec<String> {
    fn gather(command: &clap::Command, names: &mut Vec<String>) {
        let given = command.get_arguments().filter_map(|argument| argument.get_env());
        names.extend(given.filter_map(|name| Some(name.to_str()?.to_owned())));
        command.get_subcommands().for_each(|inner| gather(inner, names));
    }
    let mut names = vec![];
    gather(&Cli::command(), &mut names);
    names
}

/// Runs a command that asks a scheduler and ends: one thread is plenty.
fn ask(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn variables_of_commands_are_known() {
        let known = known_variables();
        for name in ["LINGUA_URL", "LINGUA_TOKEN", "LINGUA_CA"] {
            assert!(known.contains(&name.to_owned()), "{name}: {known:?}");
        }
    }
}
