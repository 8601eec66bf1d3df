//! `cargo xtask attack`: what the end-to-end tests do to the server in short, at length.
//!
//! Start at [`run`]. Schemathesis makes requests from `/openapi.json` and checks the answers, as
//! every role. The tests of floods, frames and slow peers run with more rounds.
//!
//! Invariant: only a server that was started here, on the loopback, is asked.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::Cargo;

/// The version whose checks the server passes.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";

/// Roles of tokens; without any, everybody may do everything.
const ROLES: [&str; 4] = ["node", "client", "viewer", "admin"];

/// The tests that take more rounds.
const TESTS: [&str; 5] = ["floods", "hostile_http", "memory", "raw_frames", "slow_peers"];

/// How much to attack.
#[derive(Debug, clap::Args)]
pub(crate) struct AttackArgs {
    /// Requests of each kind for each route, in each role.
    #[arg(long, default_value_t = 50)]
    examples: u32,
    /// Seconds for each role.
    #[arg(long, default_value_t = 300)]
    seconds: u32,
    /// Where random requests start.
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Rounds of the end-to-end tests, where one is usual.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Only one role: `anyone`, `node`, `client`, `viewer` or `admin`; no other tests.
    #[arg(long)]
    role: Option<String>,
}

/// Attacks the program; whether it withstood.
pub(crate) fn run(root: &Path, args: &AttackArgs) -> anyhow::Result<bool> {
    // The program is built with them, and as `cargo xtask ci` builds it.
    let tests = "test --locked --workspace --test e2e";
    if !Cargo::new(&format!("{tests} --quiet --no-run")).run(root)? {
        return Ok(false);
    }
    let program = root.join("target/debug/lingua");
    let schemathesis = install_schemathesis(root)?;
    let mut failed = vec![];
    for role in ["anyone"].into_iter().chain(ROLES) {
        if args.role.as_deref().is_some_and(|only| only != role) {
            continue;
        }
        println!("\n==> Schemathesis as {role}");
        if !check_schema(root, &program, &schemathesis, role, args)? {
            failed.push(role);
        }
    }
    println!("\nattack: {} roles with failures {failed:?}", failed.len());
    if args.role.is_some() {
        return Ok(failed.is_empty());
    }
    let tests = Cargo::new(&format!("{tests} --"));
    let tests = tests.args(TESTS.map(|name| format!("{name}::")).into());
    let bad_inputs = (u64::from(args.rounds) * 10_000).to_string();
    let tests = tests.env("LINGUA_BAD_INPUTS", bad_inputs);
    let passed = tests.env("LINGUA_ATTACK_ROUNDS", args.rounds.to_string()).run(root)?;
    Ok(passed && failed.is_empty())
}

/// Installs it into a Python environment of its own; gives its path.
fn install_schemathesis(root: &Path) -> anyhow::Result<PathBuf> {
    let venv = root.join("target/attack/venv");
    let program = venv.join("bin/schemathesis");
    if program.exists() {
        return Ok(program);
    }
    let make = Command::new("python3").args(["-m", "venv"]).arg(&venv).status();
    let install = ["-m", "pip", "install", "--quiet", SCHEMATHESIS];
    let is_made = make.context("python3")?.success();
    let install = || Command::new(venv.join("bin/python")).args(install).status();
    if !is_made || !install()?.success() {
        bail!("{SCHEMATHESIS} cannot be installed; it needs Python with venv and pip");
    }
    Ok(program)
}

/// A process that is killed when this is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Starts a server, and nodes that do jobs; checks its answers as this role.
fn check_schema(
    root: &Path,
    program: &Path,
    schemathesis: &Path,
    role: &str,
    args: &AttackArgs,
) -> anyhow::Result<bool> {
    let folder = root.join("target/attack");
    let tokens = folder.join("tokens.toml");
    let mut serve = Command::new(program);
    let mut shown = None;
    if role != "anyone" {
        let (secrets, file) = make_tokens(program)?;
        std::fs::write(&tokens, file)?;
        serve.env("LINGUA_AUTH__TOKENS_FILE", &tokens);
        let of = |role: &str| ROLES.iter().position(|known| *known == role);
        let secret = |role: &str| of(role).map(|n| secrets[n].clone());
        shown = Some((secret(role).context("no such role")?, secret("node").unwrap_or_default()));
    }
    let (_server, address) = start_server(&mut serve, &folder)?;
    let mut node = Command::new(program);
    node.args(["node", "--count", "2", "--work-ms", "1"]);
    node.args(["--url", &format!("ws://{address}/v1/node/ws")]);
    node.stdout(Stdio::null()).stderr(Stdio::null());
    let mut check = Command::new(schemathesis);
    if let Some((secret, of_node)) = &shown {
        node.env("LINGUA_TOKEN", of_node);
        check.args(["--header", &format!("Authorization: Bearer {secret}")]);
    }
    let _nodes = Process(node.spawn().context("nodes")?);
    // Before the subcommand stand the options of the program, after it those of a run.
    let options = std::mem::replace(&mut check, Command::new(schemathesis));
    check.arg("--config-file").arg(root.join("xtask/src/attack/schemathesis.toml"));
    check.args(["run", &format!("http://{address}/openapi.json")]).args(options.get_args());
    check.args(["--max-examples", &args.examples.to_string(), "--no-color"]);
    check.args(["--max-time", &args.seconds.to_string(), "--seed", &args.seed.to_string()]);
    // Streams of events do not end, and a long poll takes its time; tests of their own read them.
    for path in ["/v1/events", "/v1/node/{id}/jobs"] {
        check.args(["--exclude-path", path]);
    }
    check.args(["--suppress-health-check", "all", "--continue-on-failure"]);
    let passed = check.current_dir(&folder).status().context("schemathesis")?.success();
    Ok(passed)
}

/// A token of each role, and the file that makes them known.
fn make_tokens(program: &Path) -> anyhow::Result<(Vec<String>, String)> {
    let (mut secrets, mut file) = (vec![], String::new());
    for role in ROLES {
        let mut new = Command::new(program);
        new.args(["token", "new", "--role", role, "--name", role]);
        let made = new.output().context("lingua token new")?;
        let said = String::from_utf8(made.stderr)?;
        let secret = said.split_whitespace().find(|word| word.starts_with("lingua_"));
        secrets.push(secret.with_context(|| format!("no token in {said:?}"))?.to_owned());
        file += &String::from_utf8(made.stdout)?;
    }
    Ok((secrets, file))
}

/// Starts a server whose waits are short; gives its address.
fn start_server(serve: &mut Command, folder: &Path) -> anyhow::Result<(Process, String)> {
    serve.args(["serve", "--listen", "127.0.0.1:0"]).current_dir(folder);
    serve.env("LINGUA_LOG__FORMAT", "json").env("LINGUA_SCHEDULER__WAIT_MS", "20");
    serve.env("LINGUA_LIMITS__OPEN_REQUESTS_PER_SECOND", "100000");
    let child = serve.stderr(Stdio::piped()).spawn().context("the server")?;
    let mut server = Process(child);
    let mut log = BufReader::new(server.0.stderr.take().context("its log")?).lines();
    for line in log.by_ref() {
        let line: Value = serde_json::from_str(&line?).unwrap_or_default();
        if line["fields"]["message"] == "listening" {
            let address = line["fields"]["address"].as_str().context("no address")?.to_owned();
            // Without a reader of its log it would stop at a full pipe.
            std::thread::spawn(move || log.for_each(drop));
            return Ok((server, address));
        }
    }
    bail!("the server ended")
}
