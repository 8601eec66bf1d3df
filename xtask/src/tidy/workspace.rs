//! What tidy looks at, as plain data: file texts and crate manifests.
//!
//! Start at [`Workspace::load`]. It asks git for the files, so that build products and ignored
//! files are no concern, and cargo for the crates, so that nobody parses manifests by hand.
//!
//! Invariant: all paths are relative to the root of the workspace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

/// Files whose text some rule reads; of all others only the name is known.
const READ_EXTENSIONS: [&str; 4] = ["rs", "lua", "md", "toml"];

/// The files and crates of a workspace.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    /// The text of each file; empty for those that no rule reads.
    files: BTreeMap<PathBuf, String>,
    pub(super) packages: Vec<Package>,
}

/// A crate of the workspace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) name: String,
    /// Its `Cargo.toml`.
    pub(super) manifest: PathBuf,
    pub(super) dependencies: Vec<Dependency>,
}

/// One line of a crate's dependency sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) is_dev: bool,
    /// Whether it lies beside us rather than in a registry.
    pub(super) is_path: bool,
}

impl Workspace {
    /// Reads the workspace at `root`.
    pub(super) fn load(root: &Path) -> anyhow::Result<Self> {
        let mut files = BTreeMap::new();
        for path in list_files(root)? {
            let absolute = root.join(&path);
            // Git still lists a file that was deleted but whose deletion is not yet staged.
            if !absolute.is_file() {
                continue;
            }
            let is_read = READ_EXTENSIONS.iter().any(|extension| has_extension(&path, extension));
            let text = if is_read {
                std::fs::read_to_string(&absolute).with_context(|| path.display().to_string())?
            } else {
                String::new()
            };
            files.insert(path, text);
        }
        Ok(Self { files, packages: parse_packages(&metadata(root)?)? })
    }

    /// The files of one kind, in order of their paths.
    pub(super) fn with_extension<'a>(
        &'a self,
        extension: &'a str,
    ) -> impl Iterator<Item = (&'a Path, &'a str)> {
        self.files
            .iter()
            .filter(move |(path, _)| has_extension(path, extension))
            .map(|(path, text)| (path.as_path(), text.as_str()))
    }

    /// The text of a file, if the workspace has it.
    pub(super) fn text(&self, path: &Path) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether a path is a file of the workspace, or a folder that holds one.
    pub(super) fn contains(&self, path: &Path) -> bool {
        // Paths sort by component, so a folder comes right before what it holds.
        self.files
            .range(path.to_path_buf()..)
            .next()
            .is_some_and(|(next, _)| next.starts_with(path))
    }
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

/// Every file that is tracked, or could be added.
fn list_files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("git")?;
    if !output.status.success() {
        bail!("`git ls-files` failed: tidy needs a git checkout to know which files are sources");
    }
    let listing = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    Ok(listing.split_terminator('\0').map(PathBuf::from).collect())
}

/// What cargo says about the workspace, as JSON.
fn metadata(root: &Path) -> anyhow::Result<String> {
    let base = ["metadata", "--format-version", "1", "--no-deps"];
    let ask = |extra: &[&str], stderr: Stdio| {
        let mut cargo = Command::new("cargo");
        cargo.args(base).args(extra).current_dir(root).stderr(stderr).output().context("cargo")
    };
    let mut output = ask(&["--offline"], Stdio::null())?;
    if !output.status.success() {
        output = ask(&[], Stdio::inherit())?;
    }
    if !output.status.success() {
        bail!("`cargo {}` failed", base.join(" "));
    }
    String::from_utf8(output.stdout).context("cargo metadata is not UTF-8")
}

fn parse_packages(metadata: &str) -> anyhow::Result<Vec<Package>> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata is not JSON")?;
    let root = Path::new(string(&metadata, "workspace_root")?);
    array(&metadata, "packages")?.iter().map(|package| parse_package(package, root)).collect()
}

fn parse_package(package: &Value, root: &Path) -> anyhow::Result<Package> {
    let manifest = Path::new(string(package, "manifest_path")?);
    let dependencies = array(package, "dependencies")?.iter().map(|dependency| {
        Ok(Dependency {
            name: string(dependency, "name")?.to_owned(),
            is_dev: dependency["kind"] == "dev",
            is_path: dependency["path"].is_string(),
        })
    });
    Ok(Package {
        name: string(package, "name")?.to_owned(),
        manifest: manifest.strip_prefix(root).unwrap_or(manifest).to_path_buf(),
        dependencies: dependencies.collect::<anyhow::Result<_>>()?,
    })
}

fn string<'a>(value: &'a Value, field: &str) -> anyhow::Result<&'a str> {
    value[field].as_str().with_context(|| format!("cargo metadata lacks the text `{field}`"))
}

fn array<'a>(value: &'a Value, field: &str) -> anyhow::Result<&'a Vec<Value>> {
    value[field].as_array().with_context(|| format!("cargo metadata lacks the list `{field}`"))
}

#[cfg(test)]
impl Workspace {
    /// A workspace that exists only in a test.
    pub(super) fn for_tests(files: &[(&str, &str)], packages: Vec<Package>) -> Self {
        let files =
            files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
        Self { files, packages }
    }
}

#[cfg(test)]
impl Package {
    /// A crate `crates/<name>` that exists only in a test.
    pub(super) fn for_tests(name: &str, dependencies: &[Dependency]) -> Self {
        Self {
            name: name.to_owned(),
            manifest: Path::new("crates").join(name).join("Cargo.toml"),
            dependencies: dependencies.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_becomes_packages_with_relative_manifests() {
        let metadata = r#"{
            "workspace_root": "/somewhere",
            "packages": [{
                "name": "lingua-store",
                "manifest_path": "/somewhere/crates/lingua-store/Cargo.toml",
                "dependencies": [
                    { "name": "lingua-core", "kind": null, "path": "/somewhere/crates/lingua-core" },
                    { "name": "tokio", "kind": null },
                    { "name": "proptest", "kind": "dev" }
                ]
            }]
        }"#;
        let dependency =
            |name: &str, is_dev, is_path| Dependency { name: name.to_owned(), is_dev, is_path };
        assert_eq!(
            parse_packages(metadata).unwrap(),
            [Package {
                name: "lingua-store".to_owned(),
                manifest: PathBuf::from("crates/lingua-store/Cargo.toml"),
                dependencies: vec![
                    dependency("lingua-core", false, true),
                    dependency("tokio", false, false),
                    dependency("proptest", true, false),
                ],
            }]
        );
    }

    #[test]
    fn metadata_without_packages_is_an_error_not_an_empty_workspace() {
        let error = parse_packages(r#"{ "workspace_root": "/somewhere" }"#).unwrap_err();
        assert_eq!(error.to_string(), "cargo metadata lacks the list `packages`");
    }

    #[test]
    fn contains_files_and_their_folders_only() {
        let workspace =
            Workspace::for_tests(&[("docs-old.md", ""), ("docs/adr/001-a.md", "")], Vec::new());
        for path in ["docs", "docs/adr", "docs/adr/001-a.md", "docs-old.md"] {
            assert!(workspace.contains(Path::new(path)), "{path}");
        }
        for path in ["doc", "docs/ad", "docs/errors", "docs/adr/001-a.md/x", "z"] {
            assert!(!workspace.contains(Path::new(path)), "{path}");
        }
    }
}
