//! Installs the programs that the tests need, if they are missing.
//!
//! Start at [`install_missing`]. The tests start their own Redis servers and make their own
//! certificates; `cargo nextest` runs them.
//!
//! Invariant: nothing is installed that is already there, and `sudo` is used only by users that are
//! not root.

use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// A program, and the package that holds it where the names differ.
const PROGRAMS: [&str; 2] = ["redis-server", "openssl"];

/// A package manager: its program, the commands that install packages, and the name of the package
/// with `redis-server`.
struct PackageManager {
    program: &'static str,
    commands: &'static [&'static str],
    redis: &'static str,
    needs_root: bool,
}

const PACKAGE_MANAGERS: [PackageManager; 5] = [
    PackageManager {
        program: "apt-get",
        commands: &["update -qq", "install -y --no-install-recommends"],
        redis: "redis-server",
        needs_root: true,
    },
    PackageManager { program: "dnf", commands: &["install -y"], redis: "redis", needs_root: true },
    PackageManager { program: "apk", commands: &["add"], redis: "redis", needs_root: true },
    PackageManager {
        program: "pacman",
        commands: &["-Sy --noconfirm --needed"],
        redis: "redis",
        needs_root: true,
    },
    PackageManager { program: "brew", commands: &["install"], redis: "redis", needs_root: false },
];

/// Installs what is missing; whether `cargo nextest` can be used.
pub(crate) fn install_missing() -> anyhow::Result<bool> {
    let missing: Vec<&'static str> =
        PROGRAMS.into_iter().filter(|program| !runs(program)).collect();
    if !missing.is_empty() {
        install(&missing)?;
    }
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
    let names = missing.join(" and ");
    let Some(manager) = PACKAGE_MANAGERS.iter().find(|manager| runs(manager.program)) else {
        bail!("{names} missing and no known package manager; install {names}, then try again");
    };
    let packages = missing.iter().map(|program| match *program {
        "redis-server" => manager.redis,
        other => other,
    });
    let packages: Vec<&str> = packages.collect();
    for (command, n) in manager.commands.iter().zip(1..) {
        let mut words = vec![];
        if manager.needs_root && !is_root() {
            words.push("sudo");
        }
        // With RUNLEVEL=1 Debian installs the program but does not start a service.
        words.extend(["env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", manager.program]);
        words.extend(command.split(' '));
        if n == manager.commands.len() {
            words.extend(&packages);
        }
        println!("setup: {names} missing: {}", words.join(" "));
        let status = Command::new(words[0]).args(&words[1..]).status().context(words[0])?;
        if !status.success() {
            bail!("`{}` failed; install {names} yourself, then try again", words.join(" "));
        }
    }
    match missing.iter().find(|program| !runs(program)) {
        Some(program) => bail!("{} installed no `{program}`", manager.program),
        None => Ok(()),
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
