//! Installs the programs that the build and the tests need, if they are missing.
//!
//! Start at [`install_missing`]. The tests start their own Redis servers and browsers, make their
//! own certificates and send signals, and ask `promtool` about the alerts; the allocator is built
//! with `make`; tidy asks `git`.
//!
//! A program that is there may not be enough: Python needs `ensurepip`, for virtual environments,
//! and Node a version that runs TypeScript's tools.
//!
//! Invariant: nothing is installed that is already there, and `sudo` is used only by users that are
//! not root.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::Cargo;

const PROGRAMS: [&str; 10] = [
    "redis-server",
    "openssl",
    "kill",
    "make",
    "git",
    "chromium",
    "node",
    "npm",
    "python3",
    "promtool",
];

/// Package managers with the commands that install packages.
const PACKAGE_MANAGERS: [(&str, &[&str]); 5] = [
    ("apt-get", &["update -qq", "install -y --no-install-recommends"]),
    ("dnf", &["install -y"]),
    ("apk", &["add"]),
    ("pacman", &["-Sy --noconfirm --needed"]),
    ("brew", &["install"]),
];

/// Programs of crates.io that chores use, in the versions that they were written for.
const CARGO_TOOLS: [(&str, &str); 4] = [
    ("auditable2cdx", "0.1.0"),
    ("cargo-auditable", "0.7.7"),
    ("cargo-deny", "0.20.2"),
    ("cargo-fuzz", "0.13.2"),
];

/// Installs these programs into `target/tools` if they are missing; gives the folder.
pub(crate) fn cargo_tools(root: &Path, names: &[&str]) -> anyhow::Result<PathBuf> {
    let bin = root.join("target/tools/bin");
    for (name, version) in CARGO_TOOLS.iter().filter(|(name, _)| names.contains(name)) {
        if bin.join(name).exists() {
            continue;
        }
        println!("setup: {name} is missing");
        let install = format!("install {name} --version {version} --locked --root target/tools");
        if !Cargo::new(&install).run(root)? {
            bail!("{name} cannot be installed");
        }
    }
    Ok(bin)
}

/// The search path with this folder in front.
pub(crate) fn path_with(bin: &Path) -> anyhow::Result<String> {
    Ok(format!("{}:{}", bin.display(), std::env::var("PATH").context("PATH")?))
}

/// The package that holds a program.
fn package(manager: &str, program: &'static str) -> &'static str {
    match (manager, program) {
        ("apt-get", "redis-server") => "redis-server",
        (_, "redis-server") => "redis",
        ("apt-get" | "apk", "kill") => "procps",
        (_, "kill") => "procps-ng",
        ("brew", "node" | "npm") => "node",
        (_, "node") => "nodejs",
        // Debian keeps virtual environments in a package of their own; it needs the interpreter.
        ("apt-get", "python3") => "python3-venv",
        ("pacman", "python3") => "python",
        ("dnf", "promtool") => "golang-github-prometheus",
        (_, "promtool") => "prometheus",
        (_, other) => other,
    }
}

/// Installs what is missing; whether `cargo nextest` can be used.
pub(crate) fn install_missing() -> anyhow::Result<bool> {
    let missing: Vec<&'static str> = PROGRAMS.into_iter().filter(|name| !works(name)).collect();
    if !missing.is_empty() {
        install(&missing)?;
    }
    check_node()?;
    if !has_nextest() {
        println!("setup: cargo-nextest is missing: cargo install cargo-nextest --locked");
        let install = Command::new("cargo").args(["install", "cargo-nextest", "--locked"]).status();
        if !install.is_ok_and(|status| status.success()) {
            println!("setup: it cannot be installed; the tests run with `cargo test` instead");
        }
    }
    Ok(has_nextest())
}

fn install(missing: &[&'static str]) -> anyhow::Result<()> {
    let names = missing.join(", ");
    let manager = PACKAGE_MANAGERS.iter().find(|(manager, _)| runs(manager));
    let Some((manager, commands)) = manager else {
        bail!("missing: {names}, and no known package manager; install them, then try again");
    };
    for (command, n) in commands.iter().zip(1..) {
        let mut words = vec![];
        if *manager != "brew" && !is_root() {
            words.push("sudo");
        }
        // With RUNLEVEL=1 Debian installs a server without starting it.
        words.extend(["env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", manager]);
        words.extend(command.split(' '));
        if n == commands.len() {
            words.extend(missing.iter().map(|program| package(manager, program)));
        }
        println!("setup: missing: {names}: {}", words.join(" "));
        let status = Command::new(words[0]).args(&words[1..]).status().context(words[0])?;
        if !status.success() {
            bail!("`{}` failed; install {names} yourself, then try again", words.join(" "));
        }
    }
    match missing.iter().find(|program| !works(program)) {
        Some(program) => bail!("`{program}` is still missing; install it, then try again"),
        None => Ok(()),
    }
}

/// The SDK for TypeScript is built and tested with this version of Node or a later one.
const NODE_MAJOR_MIN: u32 = 20;

fn check_node() -> anyhow::Result<()> {
    let output = Command::new("node").arg("--version").output().context("node")?;
    let version = String::from_utf8_lossy(&output.stdout);
    let major = version.trim_start_matches('v').split('.').next().and_then(|n| n.parse().ok());
    if major.is_none_or(|major: u32| major < NODE_MAJOR_MIN) {
        let version = version.trim();
        bail!(
            "node is {version}, and the checks need {NODE_MAJOR_MIN} or later; install one from \
             https://nodejs.org/en/download (or `nvm install {NODE_MAJOR_MIN}`), then try again"
        );
    }
    Ok(())
}

/// Whether a program can be used as the checks do.
fn works(program: &str) -> bool {
    // Debian has an interpreter that cannot make virtual environments.
    let probe = ["-c", "import ensurepip"];
    let silent = |command: &mut Command| command.stderr(Stdio::null()).status();
    match program {
        "python3" => silent(Command::new(program).args(probe)).is_ok_and(|status| status.success()),
        _ => runs(program),
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.starts_with(b"0\n"))
}

fn has_nextest() -> bool {
    let mut version = Command::new("cargo");
    version.args(["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

/// Whether a program can be started.
fn runs(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok()
}
