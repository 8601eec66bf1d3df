//! Which crate may use which.
//!
//! Start at [`MAY_USE`]: the layers of the workspace, as a table. Cargo refuses circles; it does
//! not refuse an engine that knows Redis.
//!
//! Invariant: nothing that `lingua-core` uses reads a clock, rolls dice or waits.

use super::Finding;
use super::workspace::{Dependency, Package, Workspace};

const CORE: &str = "lingua-core";

/// Each crate with the crates of the workspace that it may use.
const MAY_USE: [(&str, &[&str]); 13] = [
    (CORE, &[]),
    ("lingua-wire", &[CORE]),
    ("lingua-store", &[CORE]),
    ("lingua-redis", &["lingua-store", CORE]),
    ("lingua-engine", &["lingua-store", CORE]),
    ("lingua-server", &["lingua-engine", "lingua-wire", "lingua-store", CORE]),
    ("lingua-sdk", &["lingua-wire", CORE]),
    (
        "lingua",
        &[
            "lingua-server",
            "lingua-redis",
            "lingua-sdk",
            "lingua-chaos",
            "lingua-engine",
            "lingua-store",
            "lingua-wire",
            CORE,
        ],
    ),
    ("lingua-sim", &["lingua-engine", "lingua-store", CORE]),
    ("lingua-chaos", &["lingua-sdk", "lingua-wire", CORE]),
    ("lingua-threads", &["lingua-engine", "lingua-store", CORE]),
    ("lingua-e2e", &["lingua-sdk", "lingua-wire", CORE]),
    ("xtask", &[]),
];

/// Crates that would bring time, chance or waiting into the core; `*` stands for any ending.
const FORBIDDEN_IN_CORE: [&str; 12] = [
    "tokio*",
    "smol*",
    "async-*",
    "futures*",
    "rand",
    "rand_*",
    "fastrand",
    "getrandom",
    "chrono*",
    "jiff*",
    "time",
    "time-*",
];

/// Checks the dependencies of every crate.
pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let names: Vec<&str> = workspace.packages.iter().map(|package| package.name.as_str()).collect();
    let mut findings = Vec::new();
    for Package { name: user, manifest, dependencies } in &workspace.packages {
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| name == user) else {
            let message = format!("the crate `{user}` has no layer");
            let hint = "add it to the table in xtask/src/tidy/arrows.rs and to ARCHITECTURE.md";
            findings.push(Finding::new(manifest, 1, message, hint));
            continue;
        };
        let text = workspace.text(manifest).unwrap_or_default();
        for dependency in dependencies {
            let is_ours = dependency.is_path && names.contains(&dependency.name.as_str());
            let refusal = if is_ours {
                refuse_arrow(user, dependency, allowed)
            } else {
                refuse_external(user, dependency)
            };
            if let Some((message, hint)) = refusal {
                findings.push(Finding::new(manifest, line_of(dependency, text), message, hint));
            }
        }
    }
    findings
}

/// Why a crate may not use another of the workspace, and what to do; `None` if it may.
fn refuse_arrow(
    user: &str,
    dependency: &Dependency,
    allowed: &[&str],
) -> Option<(String, &'static str)> {
    let used = dependency.name.as_str();
    if dependency.is_dev {
        let message = format!("`{user}` may not use `{used}`, not even in tests");
        let hint = "test the core alone, or move the test to the other crate";
        // A crate may name itself, to switch on a feature for its tests.
        return (user == CORE && used != CORE).then_some((message, hint));
    }
    let hint = "move the code to a layer that may, or change the design and then the table in \
                xtask/src/tidy/arrows.rs";
    (!allowed.contains(&used)).then(|| (format!("`{user}` may not use `{used}`"), hint))
}

/// Why a crate may not use one from a registry, and what to do; `None` if it may.
fn refuse_external(user: &str, dependency: &Dependency) -> Option<(String, &'static str)> {
    let used = dependency.name.as_str();
    let is_forbidden = FORBIDDEN_IN_CORE.iter().any(|pattern| matches(pattern, used));
    (user == CORE && !dependency.is_dev && is_forbidden).then(|| {
        let message = format!("forbidden external dependency: `{user}` may not use `{used}`");
        (message, "take time and randomness as arguments, and leave waiting to the engine")
    })
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

/// The line of a manifest that names the dependency; the first if a rename hides it.
fn line_of(dependency: &Dependency, manifest: &str) -> usize {
    let mut is_in_section = false;
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        // `[dependencies]`, `[target.'cfg(unix)'.dependencies]`, `[dependencies.name]`
        if let Some(section) = line.strip_prefix('[') {
            is_in_section = section.contains("dependencies")
                && section.contains("dev-dependencies") == dependency.is_dev;
            if is_in_section && section.ends_with(&format!("dependencies.{}]", dependency.name)) {
                return index + 1;
            }
        }
        let key = line.split(['.', '=', ' ']).next().unwrap_or_default();
        if is_in_section && key.trim_matches('"') == dependency.name {
            return index + 1;
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(name: &str) -> Dependency {
        Dependency { name: name.to_owned(), is_dev: false, is_path: name.starts_with("lingua") }
    }

    fn tests_use(name: &str) -> Dependency {
        Dependency { is_dev: true, ..uses(name) }
    }

    /// Findings of a workspace that has every crate of the table, `user` with one dependency.
    fn messages(user: &str, dependency: &Dependency) -> Vec<String> {
        let packages = MAY_USE.iter().map(|(name, _)| {
            let dependencies = if *name == user { vec![dependency.clone()] } else { Vec::new() };
            Package::for_tests(name, &dependencies)
        });
        let findings = check(&Workspace::for_tests(&[], packages.collect()));
        findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn arrows_of_the_table_are_allowed_and_all_others_refused() {
        for (user, allowed) in MAY_USE {
            for (used, _) in MAY_USE.into_iter().filter(|(used, _)| used.starts_with("lingua")) {
                let is_refused = !messages(user, &uses(used)).is_empty();
                assert_eq!(is_refused, !allowed.contains(&used), "{user} → {used}");
            }
        }
    }

    #[test]
    fn the_engine_never_knows_redis() {
        assert_eq!(
            messages("lingua-engine", &uses("lingua-redis")),
            ["`lingua-engine` may not use `lingua-redis`"]
        );
    }

    #[test]
    fn the_table_has_no_circles_and_leaves_nothing_out() {
        for (user, allowed) in MAY_USE {
            for used in allowed {
                let (_, below) = MAY_USE.iter().find(|(name, _)| name == used).unwrap();
                assert!(!below.contains(&user), "{user} ⇄ {used}");
                let missing = below.iter().find(|name| !allowed.contains(name));
                assert_eq!(missing, None, "{user} may use {used}, so what {used} shows, too");
            }
        }
    }

    #[test]
    fn a_crate_that_is_not_in_the_table_is_a_finding() {
        let package = Package::for_tests("lingua-new", &[]);
        let findings = check(&Workspace::for_tests(&[], vec![package]));
        assert_eq!(findings.len(), 1);
        assert_eq!(
            findings[0].to_string(),
            "crates/lingua-new/Cargo.toml:1: the crate `lingua-new` has no layer; \
             add it to the table in xtask/src/tidy/arrows.rs and to ARCHITECTURE.md"
        );
    }

    #[test]
    fn tests_may_use_anything_but_the_core_only_itself() {
        assert!(messages("lingua-engine", &tests_use("lingua-redis")).is_empty());
        assert!(messages("lingua-core", &tests_use("lingua-core")).is_empty());
        assert!(messages("lingua-core", &tests_use("proptest")).is_empty());
        assert_eq!(
            messages("lingua-core", &tests_use("lingua-store")),
            ["`lingua-core` may not use `lingua-store`, not even in tests"]
        );
    }

    #[test]
    fn the_core_has_no_time_no_chance_no_waiting() {
        for name in [
            "tokio",
            "tokio-util",
            "rand",
            "rand_chacha",
            "futures",
            "futures-util",
            "async-trait",
            "chrono",
            "jiff",
            "time",
        ] {
            assert_eq!(
                messages("lingua-core", &uses(name)),
                [format!("forbidden external dependency: `lingua-core` may not use `{name}`")]
            );
            assert!(messages("lingua-engine", &uses(name)).is_empty(), "{name}");
        }
        for name in ["thiserror", "hashbrown", "timeless"] {
            assert!(messages("lingua-core", &uses(name)).is_empty(), "{name}");
        }
    }

    #[test]
    fn a_finding_points_at_the_line_of_its_section() {
        let manifest = "[package]\nname = \"a\"\n[dev-dependencies]\ntokio.workspace = true\n\
                        [dependencies]\ntokio-util = \"1\"\ntokio = \"1\"\n[dependencies.rand]\n";
        assert_eq!(line_of(&uses("tokio"), manifest), 7);
        assert_eq!(line_of(&tests_use("tokio"), manifest), 4);
        assert_eq!(line_of(&uses("rand"), manifest), 8);
        assert_eq!(line_of(&uses("renamed"), manifest), 1);
    }
}
