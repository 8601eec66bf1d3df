//! `cargo xtask release`: checks the dependencies, builds the program as it is released, and looks
//! at what came out.
//!
//! Start at [`run`]. The program is installed as a user would do it, with the list of its
//! dependencies inside (cargo-auditable), from which the bill of materials is made.
//!
//! Invariant: what is released names no path of the machine that built it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::{Cargo, setup};

/// The largest program, in bytes.
const PROGRAM_BYTES_MAX: u64 = 30 << 20;

/// What to check beside the program.
#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    /// A clone of an advisory database; without one, advisories are not checked.
    #[arg(long)]
    advisories: Option<PathBuf>,
}

/// Makes and checks a release; whether all is well.
pub(crate) fn run(root: &Path, args: &ReleaseArgs) -> anyhow::Result<bool> {
    let tools = ["cargo-deny", "cargo-auditable", "auditable2cdx"];
    let bin = setup::cargo_tools(root, &tools)?;
    let path = setup::path_with(&bin)?;
    let out = root.join("target/release-files");
    std::fs::create_dir_all(&out)?;
    let deny = Cargo::new("deny --locked check bans licenses sources").env("PATH", &path);
    if !deny.run(root)? {
        return Ok(false);
    }
    match &args.advisories {
        Some(database) if !check_advisories(root, &out, database, &path)? => return Ok(false),
        Some(_) => {}
        None => println!("release: advisories are not checked; name a database"),
    }
    let install = "auditable install --path crates/lingua --locked --force --root";
    let install = Cargo::new(&format!("{install} {} --target-dir target", out.display()));
    if !install.env("PATH", &path).run(root)? {
        return Ok(false);
    }
    let program = out.join("bin/lingua");
    let bill = bill_of_materials(&bin, &program)?;
    std::fs::write(out.join("lingua.cdx.json"), &bill)?;
    let mut findings = check_program(root, &program)?;
    findings.extend(machine_paths(root, &bill).map(|path| format!("the bill names {path}")));
    findings.iter().for_each(|finding| println!("release: {finding}"));
    println!("release: {} findings; the files are in {}", findings.len(), out.display());
    Ok(findings.is_empty())
}

/// Checks advisories of a database on this machine, without asking the network.
fn check_advisories(root: &Path, out: &Path, database: &Path, path: &str) -> anyhow::Result<bool> {
    let database = database.canonicalize().context("the advisory database")?;
    let config = std::fs::read_to_string(root.join("deny.toml"))?;
    let fetched = out.join("advisories");
    let advisories = format!(
        "\n[advisories]\ndb-path = {:?}\ndb-urls = [\"file://{}\"]\n",
        fetched.display().to_string(),
        database.display()
    );
    let with_database = out.join("deny.toml");
    std::fs::write(&with_database, config + &advisories)?;
    let check = format!("deny --locked check --config {} advisories", with_database.display());
    Cargo::new(&check).env("PATH", path).run(root)
}

/// The dependencies of a program as CycloneDX.
fn bill_of_materials(bin: &Path, program: &Path) -> anyhow::Result<Vec<u8>> {
    let read = Command::new(bin.join("auditable2cdx")).arg(program).output();
    let read = read.context("auditable2cdx")?;
    if !read.status.success() {
        bail!("{}", String::from_utf8_lossy(&read.stderr));
    }
    Ok(read.stdout)
}

/// What is wrong with the program.
fn check_program(root: &Path, program: &Path) -> anyhow::Result<Vec<String>> {
    let bytes = std::fs::read(program).context("the program")?;
    let mut findings = vec![];
    let size = bytes.len() as u64;
    println!("release: the program has {:.1} MiB", size as f64 / f64::from(1 << 20));
    if size > PROGRAM_BYTES_MAX {
        findings.push(format!("it has {size} bytes, more than {PROGRAM_BYTES_MAX}"));
    }
    if contains(&bytes, b"\0.symtab\0") {
        findings.push("it is not stripped".to_owned());
    }
    findings.extend(machine_paths(root, &bytes).map(|path| format!("it names {path}")));
    let version = Command::new(program).arg("--version").output().context("lingua --version")?;
    print!("release: {}", String::from_utf8_lossy(&version.stdout));
    if !version.status.success() || !version.stdout.starts_with(b"lingua ") {
        findings.push("`--version` fails".to_owned());
    }
    Ok(findings)
}

/// The folders of this machine that the bytes name.
fn machine_paths(root: &Path, bytes: &[u8]) -> impl Iterator<Item = String> {
    let of_env = |name: &str| std::env::var(name).ok().filter(|path| path.len() > 1);
    let folders = [Some(root.display().to_string()), of_env("HOME"), of_env("CARGO_HOME")];
    let named = move |folder: &String| contains(bytes, format!("{folder}/").as_bytes());
    folders.into_iter().flatten().filter(named)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
