//! What documents promise: ARCHITECTURE.md knows every crate, and links lead somewhere.
//!
//! Invariant: a link counts as good only if its target is part of the repository, not if it
//! happens to exist on one machine.

use std::path::{Component, Path, PathBuf};

use super::Finding;
use super::workspace::Workspace;

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// Checks that ARCHITECTURE.md names every crate.
pub(super) fn check_architecture(workspace: &Workspace) -> Vec<Finding> {
    let path = Path::new(ARCHITECTURE);
    let Some(text) = workspace.text(path) else {
        let hint = "write the map of the crates";
        return vec![Finding::new(path, 1, "the file is missing", hint)];
    };
    let is_named = |name: &str| text.contains(&format!("`{name}`"));
    let unnamed = workspace.packages.iter().filter(|package| !is_named(&package.name));
    unnamed
        .map(|package| {
            let message = format!("the crate `{}` is not named", package.name);
            Finding::new(path, 1, message, "say in the code map what it is for")
        })
        .collect()
}

/// Checks that the relative links of a Markdown file lead to files of the workspace.
pub(super) fn check_links(path: &Path, text: &str, workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, target) in relative_links(text) {
        let is_there = resolve(path, &target).is_some_and(|resolved| workspace.contains(&resolved));
        if !is_there {
            let message = format!("the link `{target}` leads nowhere");
            let hint = "correct the path (relative to this file) or add the target";
            findings.push(Finding::new(path, line, message, hint));
        }
    }
    findings
}

/// The targets of `](target)` outside of code, with their lines and without their anchors.
fn relative_links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut open_fence: Option<&str> = None;
    for (index, line) in text.lines().enumerate() {
        let fence = fence_of(line.trim());
        match open_fence {
            None if fence.is_some() => open_fence = fence,
            None => links.extend(links_of_line(line).into_iter().map(|link| (index + 1, link))),
            // Closed by a run of the same mark, at least as long, with no name behind it.
            Some(open) if fence == Some(line.trim()) && line.trim().starts_with(open) => {
                open_fence = None;
            }
            Some(_) => {}
        }
    }
    links
}

/// The run of backticks or tildes that opens or closes a code block.
fn fence_of(line: &str) -> Option<&str> {
    let mark = line.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let (run, name) = line.split_at(line.len() - line.trim_start_matches(mark).len());
    // A backtick after the run makes it inline code.
    (run.len() >= 3 && !name.contains('`')).then_some(run)
}

fn links_of_line(line: &str) -> Vec<String> {
    let line = without_inline_code(line);
    let mut targets = Vec::new();
    let mut rest = line.as_str();
    while let Some((_, after)) = rest.split_once("](") {
        let (target, tail) = after.split_once(')').unwrap_or((after, ""));
        targets.extend(relative_path(target).map(str::to_owned));
        rest = tail;
    }
    targets
}

/// A line without its `code`: what a run of backticks opens, the next such run closes.
fn without_inline_code(line: &str) -> String {
    let mut prose = String::new();
    let mut rest = line;
    while let Some(start) = rest.find('`') {
        let (before, code) = rest.split_at(start);
        let (run, after) = code.split_at(code.len() - code.trim_start_matches('`').len());
        prose.push_str(before);
        rest = after.split_once(run).map_or(after, |(_, after_code)| after_code);
    }
    prose + rest
}

/// The path part of a link target, if the target lies in this repository.
fn relative_path(target: &str) -> Option<&str> {
    let target = target.trim();
    let target = match target.strip_prefix('<') {
        Some(bracketed) => bracketed.split('>').next()?,
        // What follows a space is the title.
        None => target.split_whitespace().next()?,
    };
    let path = target.split('#').next()?;
    let has_scheme = path.split('/').next()?.contains(':') || path.starts_with("//");
    (!path.is_empty() && !has_scheme).then_some(path)
}

/// The workspace path that a link in `document` means; `None` if it leaves the workspace.
fn resolve(document: &Path, target: &str) -> Option<PathBuf> {
    let mut resolved = match target.strip_prefix('/') {
        Some(_) => PathBuf::new(),
        None => document.parent()?.to_path_buf(),
    };
    for component in Path::new(target).components() {
        match component {
            Component::Normal(name) => resolved.push(name),
            Component::ParentDir => {
                if !resolved.pop() {
                    return None;
                }
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Some(resolved)
}

#[cfg(test)]
mod tests {
    use super::super::workspace::Package;
    use super::*;

    fn architecture_findings(files: &[(&str, &str)]) -> Vec<String> {
        let packages = ["lingua", "lingua-core"].map(|name| Package::for_tests(name, &[]));
        let workspace = Workspace::for_tests(files, packages.into());
        check_architecture(&workspace).into_iter().map(|finding| finding.message).collect()
    }

    /// The lines of the broken links of a document at `docs/guide.md`.
    fn broken_links(text: &str) -> Vec<usize> {
        let files = [("README.md", ""), ("docs/guide.md", text), ("docs/adr/001-a.md", "")];
        let workspace = Workspace::for_tests(&files, Vec::new());
        let findings = check_links(Path::new("docs/guide.md"), text, &workspace);
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_missing_architecture_is_one_finding() {
        assert_eq!(architecture_findings(&[]), ["the file is missing"]);
    }

    #[test]
    fn every_crate_is_named_in_backticks() {
        let named = [("ARCHITECTURE.md", "`lingua` starts `lingua-core`.")];
        assert!(architecture_findings(&named).is_empty());
        let unnamed = [("ARCHITECTURE.md", "lingua starts `lingua-core`.")];
        assert_eq!(architecture_findings(&unnamed), ["the crate `lingua` is not named"]);
    }

    #[test]
    fn broken_links_are_found_at_their_lines() {
        let text =
            "[a](adr/002-b.md)\n\n![b](gone.png) and [c](../gone.md#part)\n[d](../../README.md)\n";
        assert_eq!(broken_links(text), [1, 3, 3, 4]);
    }

    #[test]
    fn good_links_are_quiet() {
        let text =
            "[a](adr/001-a.md), [b](../README.md#start \"title\"), [c](./adr/), [d](/README.md),
            [e](<adr/001-a.md>), [f](#part), [g](https://example.org/x), [h](mailto:a@example.org)";
        assert!(broken_links(text).is_empty());
    }

    #[test]
    fn code_has_no_links() {
        for text in [
            "`[a](gone)` and ``[b](`gone)``",
            "```md\n[a](gone)\n~~~\n[b](gone)\n```",
            "~~~~\n```\n[a](gone)\n~~~\n[b](gone)\n~~~~",
            "```\n```rust\n[a](gone)\n```",
        ] {
            assert!(broken_links(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn links_after_code_are_seen() {
        assert_eq!(broken_links("`code` [a](gone)"), [1]);
        assert_eq!(broken_links("a lone ` and [a](gone)"), [1]);
        assert_eq!(broken_links("```inline``` [a](gone)"), [1]);
        assert_eq!(broken_links("```\ncode\n```\n[a](gone)"), [4]);
    }
}
