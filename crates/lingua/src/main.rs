//! The `lingua` program: the scheduler, simulated nodes, and commands for operators.
//!
//! Start at [`Command`]; each command has a file of its own. Exit codes: 0 ok, 1 failed, 2 usage,
//! 64 bad configuration. Results go to stdout, errors to stderr, and every error says what to do.

// The lints keep libraries from printing; a program prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

#[cfg(planted_bugs)]
compile_error!("planted bugs are for the tests of lingua-sim and not for the program");

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use lingua_sdk::ClientError;

mod admin;
mod api;
mod bench;
mod clean;
mod config;
mod demo;
mod explain;
mod grant;
mod inspect;
mod instances;
mod jobs;
mod metrics;
mod node;
mod nodes;
mod pools;
mod reload;
mod say;
mod screen;
mod serve;
mod simulated;
mod store;
mod token;

/// A job makes a few dozen small allocations and frees them on the same thread, which jemalloc does
/// faster than the system allocator.
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
    /// Run a scheduler with simulated nodes and live traffic.
    Demo(demo::DemoArgs),
    /// Send a sound file or a text, and print the translation.
    Say(say::SayArgs),
    /// Run simulated nodes.
    Node(node::NodeArgs),
    /// List nodes, or show one.
    Nodes(api::ListArgs<lingua_core::NodeId>),
    /// List pools (language pairs; *:en is for speech in an unknown language), or show one.
    Pools(api::ListArgs<String>),
    /// List jobs, or show one.
    Jobs(jobs::JobsArgs),
    /// List scheduler instances, or show one.
    Instances(api::ListArgs<lingua_core::InstanceId>),
    /// Give a node no new jobs; its running jobs go on.
    Drain(admin::NodeAdminArgs),
    /// Give a drained node jobs again.
    Resume(admin::NodeAdminArgs),
    /// Take a node offline; its running jobs are retried on other nodes at once.
    Offline(admin::NodeAdminArgs),
    /// Cancel a job.
    Cancel(admin::CancelArgs),
    /// Show why each node would or would not get a job now.
    Explain(explain::ExplainArgs),
    /// Read a shared store itself: a cell, a node with its leases, a job.
    Inspect(inspect::InspectArgs),
    /// Put a load on a running scheduler and measure it.
    Bench(bench::BenchArgs),
    /// Make tokens for nodes, clients and admins.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Sign grants, which let users of an app open sessions for a while.
    #[command(subcommand)]
    Grant(grant::GrantCommand),
    /// Check or print the configuration.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print the reference of the metrics.
    #[command(subcommand)]
    Metrics(metrics::MetricsCommand),
    /// Print a script for command completion in a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = error.downcast_ref().map_or("", ClientError::code);
            let text = format!("{error:#}");
            eprintln!("lingua: {}{}", clean::clean_lines(&text), api::advice(code));
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
        // A log would disturb the display.
        Command::Demo(args) => block_on("off", demo::run(args)),
        Command::Say(args) => block_on("warn", say::run(args)),
        Command::Node(args) => block_on("warn", node::run(args)),
        Command::Nodes(args) => block_on("off", nodes::run(args)),
        Command::Pools(args) => block_on("off", pools::run(args)),
        Command::Jobs(args) => block_on("off", jobs::run(args)),
        Command::Instances(args) => block_on("off", instances::run(args)),
        Command::Drain(args) => block_on("off", admin::drain(args)),
        Command::Resume(args) => block_on("off", admin::resume(args)),
        Command::Offline(args) => block_on("off", admin::offline(args)),
        Command::Cancel(args) => block_on("off", admin::cancel(args)),
        Command::Explain(args) => block_on("off", explain::run(args)),
        Command::Inspect(args) => block_on("off", inspect::run(args)),
        Command::Bench(args) => block_on("error", bench::run(args)),
        Command::Token(command) => token::run(command),
        Command::Grant(command) => grant::run(command),
        Command::Config(command) => config::run(command),
        Command::Metrics(command) => metrics::run(command),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "lingua", &mut script);
            screen::print_text(&String::from_utf8_lossy(&script));
            Ok(())
        }
    }
}

/// Runs a command on one thread, and logs at this level.
fn block_on(
    log_level: &str,
    command: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    serve::start_logging(log_level, "text");
    serve::runtime(1)?.block_on(command)
}

/// The environment variables that flags read.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_variables_of_flags_are_known() {
        let known = known_variables();
        for name in ["LINGUA_URL", "LINGUA_TOKEN", "LINGUA_CA"] {
            assert!(known.contains(&name.to_owned()), "{name}: {known:?}");
        }
    }
}
