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
    let folders = machine_folders(root);
    let mut findings = check_program(&folders, &program)?;
    findings.extend(named_of(&folders, &bill).map(|path| format!("the bill names {path}")));
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
fn check_program(folders: &[String], program: &Path) -> anyhow::Result<Vec<String>> {
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
    findings.extend(named_of(folders, &bytes).map(|path| format!("it names {path}")));
    let version = Command::new(program).arg("--version").output().context("lingua --version")?;
    print!("release: {}", String::from_utf8_lossy(&version.stdout));
    if !version.status.success() || !version.stdout.starts_with(b"lingua ") {
        findings.push("`--version` fails".to_owned());
    }
    Ok(findings)
}

/// The folders of this machine: what is released runs on others.
fn machine_folders(root: &Path) -> Vec<String> {
    let variables = ["HOME", "CARGO_HOME", "RUSTUP_HOME", "TMPDIR"];
    let of_env = variables.into_iter().filter_map(|name| std::env::var(name).ok());
    let folders = of_env.map(|path| path.trim_end_matches('/').to_owned());
    let mut folders: Vec<String> = folders.filter(|path| path.len() > 1).collect();
    folders.push(root.display().to_string());
    folders.sort();
    folders.dedup();
    folders
}

/// Those of the folders that the bytes name.
fn named_of<'a>(folders: &'a [String], bytes: &[u8]) -> impl Iterator<Item = &'a String> {
    folders.iter().filter(|folder| contains(bytes, format!("{folder}/").as_bytes()))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_names_a_folder_of_this_machine_is_noticed() {
        let folders = machine_folders(Path::new("/somewhere/lingua"));
        assert!(folders.contains(&"/somewhere/lingua".to_owned()));
        let found = |bytes: &[u8]| named_of(&folders, bytes).count();
        assert_eq!(found(b"\x7fELF /somewhere/lingua/crates/lingua/src/main.rs"), 1);
        assert_eq!(found(b"\x7fELF src/main.rs /somewhere/lingua-other/main.rs"), 0);
    }
}
