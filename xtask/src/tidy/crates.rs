//! Which crate may use which.
//!
//! Start at [`MAY_USE`]. Cargo refuses cycles; it does not refuse an engine that knows Redis.
//!
//! Invariant: no dependency of `lingua-core` reads a clock, draws random numbers or waits.

use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use super::{Workspace, finding};

/// Each crate with the crates of the workspace that it may use outside its tests.
const MAY_USE: [(&str, &str); 14] = [
    ("lingua-core", ""),
    ("lingua-wire", "core"),
    ("lingua-store", "core"),
    ("lingua-redis", "core store"),
    ("lingua-engine", "core store"),
    ("lingua-server", "core store wire engine"),
    ("lingua-sdk", "core wire"),
    ("lingua", "core store wire engine server redis sdk"),
    ("lingua-bench", "core store wire engine server redis sdk"),
    ("lingua-sim", "core store engine"),
    ("lingua-chaos", "core wire sdk"),
    ("lingua-threads", "core store engine"),
    ("lingua-fuzz", "core store wire engine server redis"),
    ("xtask", ""),
];

/// Starts of names of crates that bring time, chance or waiting.
const FORBIDDEN_IN_CORE: [&str; 7] =
    ["tokio", "async-", "futures", "rand", "chrono", "jiff", "time"];

/// A crate of the workspace.
#[derive(Debug)]
pub(super) struct Package {
    name: String,
    /// Names of what it uses outside its tests.
    dependencies: Vec<String>,
}

/// Reads the output of `cargo metadata --no-deps`.
pub(super) fn parse_metadata(json: &str) -> anyhow::Result<Vec<Package>> {
    let metadata: Value = serde_json::from_str(json)?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let parsed = packages.iter().map(|package| {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let dependencies = dependencies.filter(|dependency| dependency["kind"] != "dev");
        Package { name: name(package), dependencies: dependencies.map(name).collect() }
    });
    Ok(parsed.collect())
}

/// Checks the dependencies of each crate, and that ARCHITECTURE.md names it.
pub(super) fn check(workspace: &Workspace) -> Vec<String> {
    let mut findings = vec![];
    let architecture = Path::new("ARCHITECTURE.md");
    let text = workspace.files.get(architecture).map_or("", String::as_str);
    for Package { name, dependencies } in &workspace.packages {
        if !text.contains(&format!("`{name}`")) {
            findings.push(finding(architecture, 1, format!("does not name `{name}`")));
        }
        let manifest = Path::new("crates").join(name).join("Cargo.toml");
        for used in dependencies {
            if !may_use(name, used) {
                findings.push(finding(&manifest, 1, format!("may not use `{used}`")));
            }
        }
    }
    findings
}

fn may_use(user: &str, used: &str) -> bool {
    if used == "lingua" || used.starts_with("lingua-") {
        let allowed = MAY_USE.iter().find(|(name, _)| *name == user);
        let short = used.trim_start_matches("lingua-");
        return allowed.is_some_and(|(_, allowed)| allowed.split(' ').any(|name| name == short));
    }
    user != "lingua-core" || !FORBIDDEN_IN_CORE.iter().any(|start| used.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::workspace;

    #[test]
    fn only_the_arrows_of_the_table_are_allowed() {
        assert!(may_use("lingua-engine", "lingua-store") && may_use("lingua-engine", "tokio"));
        for (user, used) in [
            ("lingua-engine", "lingua-redis"),
            ("lingua-engine", "lingua"),
            ("lingua-core", "lingua-wire"),
            ("lingua-core", "tokio"),
            ("lingua-core", "rand_chacha"),
            ("lingua-unknown", "lingua-core"),
        ] {
            assert!(!may_use(user, used), "{user} → {used}");
        }
    }

    #[test]
    fn every_crate_is_named_and_only_its_tests_may_use_anything() {
        let metadata = r#"{"packages": [{"name": "lingua-store", "dependencies": [
            {"name": "lingua-redis", "kind": null}, {"name": "lingua-sdk", "kind": "dev"}]}]}"#;
        let packages = parse_metadata(metadata).unwrap();
        let findings = check(&workspace(&[("ARCHITECTURE.md", "lingua-store")], packages));
        assert_eq!(
            findings,
            [
                "ARCHITECTURE.md:1: does not name `lingua-store`",
                "crates/lingua-store/Cargo.toml:1: may not use `lingua-redis`"
            ]
        );
    }
}
