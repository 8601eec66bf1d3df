//! Rules for Markdown, Lua and TypeScript: links lead somewhere, lines are short, Lua scripts state
//! their contract.

use std::path::{Component, Path, PathBuf};

use super::{COLUMNS_MAX, Workspace, columns, finding};

/// What the leading comment of a script has to say.
const LUA_HEADER: [&str; 4] = ["KEYS", "ARGV", "RETURNS", "WHY ATOMIC"];

/// Other files with short lines.
const SCRIPTS: [&str; 3] = ["html", "mjs", "ts"];

pub(super) fn check(workspace: &Workspace) -> Vec<String> {
    let mut findings = vec![];
    for (path, text) in workspace.with_extension("md") {
        findings.extend(markdown(path, text, workspace));
    }
    for (path, text) in workspace.with_extension("lua") {
        findings.extend(lua(path, text));
    }
    for extension in SCRIPTS {
        for (path, text) in workspace.with_extension(extension) {
            findings.extend(too_long(path, text));
        }
    }
    findings
}

fn markdown(path: &Path, text: &str, workspace: &Workspace) -> Vec<String> {
    let mut findings = vec![];
    let mut is_code = false;
    for (line, number) in text.lines().zip(1..) {
        is_code ^= line.trim_start().starts_with("```");
        let columns = columns(line);
        if columns > COLUMNS_MAX && !line.trim_start().starts_with('|') && can_be_wrapped(line) {
            findings.push(finding(path, number, format!("{columns} columns")));
        }
        let targets = if is_code { vec![] } else { link_targets(line) };
        for target in targets {
            if !resolve(path, &target).is_some_and(|file| workspace.contains(&file)) {
                findings.push(finding(path, number, format!("broken link `{target}`")));
            }
        }
    }
    findings
}

/// Whether a line has a space outside links and code spans, apart from its list mark.
fn can_be_wrapped(line: &str) -> bool {
    let text = line.trim_start().trim_start_matches(['-', '*', '>', '#']).trim_start();
    let (mut is_code, mut brackets) = (false, 0);
    text.chars().any(|c| {
        match c {
            '`' => is_code = !is_code,
            '[' | '(' => brackets += 1,
            ']' | ')' => brackets -= 1,
            _ => {}
        }
        c == ' ' && !is_code && brackets <= 0
    })
}

/// The local targets of the links of a line, without anchors.
fn link_targets(line: &str) -> Vec<String> {
    // What stands between an odd and an even backtick is code.
    let prose: Vec<&str> = line.split('`').step_by(2).collect();
    let prose = prose.join("");
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next());
    targets
        .filter(|target| !target.is_empty() && !target.contains("://"))
        .map(str::to_owned)
        .collect()
}

/// The path that a link in `document` leads to; `None` if it leaves the workspace.
fn resolve(document: &Path, target: &str) -> Option<PathBuf> {
    let mut path = document.parent()?.to_path_buf();
    for component in Path::new(target).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::ParentDir if path.pop() => {}
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(path)
}

fn lua(path: &Path, text: &str) -> Vec<String> {
    let mut findings = too_long(path, text);
    let header: Vec<&str> = text.lines().take_while(|line| line.starts_with("--")).collect();
    let header = header.join("\n");
    // Parts that are put in front of other scripts have no callers of their own.
    let is_part = path.components().any(|part| part.as_os_str() == "prelude");
    for word in LUA_HEADER {
        if !is_part && !header.contains(word) {
            findings.push(finding(path, 1, format!("the leading comment lacks {word}")));
        }
    }
    findings
}

/// The lines that are too long; a comment that is one URL is allowed.
pub(super) fn too_long(path: &Path, text: &str) -> Vec<String> {
    let is_url = |line: &str| line.contains("://") && line.split_whitespace().count() <= 2;
    let lines = text.lines().map(|line| (line, columns(line))).zip(1..);
    lines
        .filter(|((line, columns), _)| *columns > COLUMNS_MAX && !is_url(line))
        .map(|((_, columns), number)| finding(path, number, format!("{columns} columns")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::workspace;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let findings = check(&workspace(&[(path, text), ("docs/here.md", "")], vec![]));
        findings
            .iter()
            .map(|finding| finding.splitn(3, ':').last().unwrap().trim().into())
            .collect()
    }

    #[test]
    fn local_links_lead_to_files() {
        let good = "[a](here.md#top) [b](../docs/here.md) [c](https://a.example/x) `[d](gone.md)`\n\
                    ```\n[e](gone.md)\n```\n";
        assert!(findings("docs/a.md", good).is_empty());
        assert_eq!(findings("docs/a.md", "[a](gone.md)\n"), ["broken link `gone.md`"]);
        assert_eq!(findings("a.md", "[a](../x.md)\n"), ["broken link `../x.md`"]);
    }

    #[test]
    fn markdown_lines_end_at_column_100_if_they_can() {
        let (word, long) = ("x".repeat(60), "x".repeat(120));
        assert_eq!(findings("a.md", &format!("{word} {word}\n")), ["121 columns"]);
        assert_eq!(findings("a.md", &format!("a {}\n", "字".repeat(50))), ["102 columns"]);
        for allowed in [
            format!("| {word} | {word} |\n"),
            format!("- `{word} {word}`\n"),
            format!("[a b](https://{long})\n"),
        ] {
            assert!(findings("a.md", &allowed).is_empty(), "{allowed}");
        }
    }

    #[test]
    fn a_script_states_its_contract() {
        let header = "-- KEYS 1\n-- ARGV 1\n-- RETURNS 1\n-- WHY ATOMIC: one write\nreturn 1\n";
        assert!(findings("scripts/a.lua", header).is_empty());
        assert!(findings("scripts/prelude/a.lua", "-- A part.\n").is_empty());
        let late = "-- ARGV\n-- RETURNS\n-- WHY ATOMIC\nlocal a = 1\n-- KEYS\n";
        assert_eq!(findings("scripts/a.lua", late), ["the leading comment lacks KEYS"]);
        let long = format!("{header}local a = '{}'\n", "x".repeat(100));
        assert_eq!(findings("scripts/a.lua", &long), ["112 columns"]);
        assert_eq!(findings("sdk/a.ts", &"x".repeat(101)), ["101 columns"]);
    }
}
