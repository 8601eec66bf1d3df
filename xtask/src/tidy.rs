//! Rules that neither rustc nor clippy checks.
//!
//! Start at [`check`]: it applies every rule to a [`Workspace`], which is plain data.
//!
//! Invariant: every finding is reported, not only the first.

mod crates;
mod documents;
mod formats;
mod requirements;
mod sources;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crates::Package;

/// The limit for lines in Rust, Lua, TypeScript and Markdown.
const COLUMNS_MAX: usize = 100;

/// How wide a line is on a screen: a Chinese character or sign takes two columns.
fn columns(line: &str) -> usize {
    line.chars().map(|c| if ('\u{2e80}'..='\u{ffef}').contains(&c) { 2 } else { 1 }).sum()
}

/// Describes a broken rule.
fn finding(path: &Path, line: usize, message: impl Display) -> String {
    format!("{}:{line}: {message}", path.display())
}

/// The files and crates of the workspace; paths are relative to its root.
#[derive(Debug, Default)]
struct Workspace {
    /// Files with their text.
    files: BTreeMap<PathBuf, String>,
    packages: Vec<Package>,
}

/// Checks the workspace and prints the findings; whether there are none.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let workspace = Workspace::load(root)?;
    let findings = check(&workspace);
    for finding in &findings {
        println!("{finding}");
    }
    let (files, crates) = (workspace.files.len(), workspace.packages.len());
    println!("tidy: {files} files, {crates} crates, {} findings", findings.len());
    Ok(findings.is_empty())
}

/// Applies every rule.
fn check(workspace: &Workspace) -> Vec<String> {
    let mut findings = crates::check(workspace);
    findings.extend(documents::check(workspace));
    findings.extend(formats::check(workspace));
    findings.extend(requirements::check(workspace));
    findings.extend(sources::check(workspace));
    findings.sort();
    findings
}

impl Workspace {
    fn load(root: &Path) -> anyhow::Result<Self> {
        let mut files = BTreeMap::new();
        let names = output(root, "git", &["ls-files", "-co", "--exclude-standard"])
            .context("tidy asks git which files are sources")?;
        for path in names.lines().map(PathBuf::from) {
            let absolute = root.join(&path);
            // Git still lists a deleted file until the deletion is staged.
            if !absolute.is_file() {
                continue;
            }
            // Files that are not text are only targets of links.
            files.insert(path, std::fs::read_to_string(&absolute).unwrap_or_default());
        }
        let args = ["metadata", "--format-version", "1", "--no-deps", "--locked"];
        let metadata = output(root, "cargo", &args)?;
        Ok(Self { files, packages: crates::parse_metadata(&metadata)? })
    }

    /// The files with this extension, in the order of their paths.
    fn with_extension(&self, extension: &str) -> impl Iterator<Item = (&Path, &str)> {
        let files = self.files.iter();
        files
            .filter(move |(path, _)| path.extension().is_some_and(|found| found == extension))
            .map(|(path, text)| (path.as_path(), text.as_str()))
    }

    /// Whether a path is a file of the workspace, or a folder that holds one.
    fn contains(&self, path: &Path) -> bool {
        self.files.keys().any(|file| file.starts_with(path))
    }
}

fn output(root: &Path, program: &str, args: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    let output = command.args(args).current_dir(root).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| program.to_owned())?;
    if !output.status.success() {
        bail!("`{program} {}` failed", args.join(" "));
    }
    String::from_utf8(output.stdout).with_context(|| format!("the output of {program}"))
}

#[cfg(test)]
fn workspace(files: &[(&str, &str)], packages: Vec<Package>) -> Workspace {
    let files = files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned()));
    Workspace { files: files.collect(), packages }
}
