//! The rules of the house that neither rustc nor clippy checks.
//!
//! Start at [`check`]: it goes over a [`Workspace`], which is plain data, and each rule is a pure
//! function in a file of its own below `tidy/`. Only `tidy/workspace.rs` touches the disk.
//!
//! Invariant: every finding is reported, not only the first.

mod arrows;
mod docs;
mod files;
mod functions;
mod lua;
mod rust;
mod tokens;
mod workspace;

use std::fmt;
use std::path::{Path, PathBuf};

use rust::RustFile;
use workspace::Workspace;

/// A broken rule: where, what, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: PathBuf,
    line: usize,
    message: String,
    hint: &'static str,
}

/// What a run saw.
#[derive(Debug, Default)]
struct Report {
    findings: Vec<Finding>,
    /// Worth a thought, but no failure.
    advice: Vec<Finding>,
    files_count: usize,
    functions_count: usize,
    crates_count: usize,
}

/// Checks the workspace and prints the result; whether it is tidy.
pub(crate) fn run(root: &Path, verbose: bool) -> anyhow::Result<bool> {
    let report = check(&Workspace::load(root)?);
    if verbose {
        for advice in &report.advice {
            println!("advice: {advice}");
        }
    }
    for finding in &report.findings {
        println!("{finding}");
    }
    if report.findings.is_empty() {
        println!("{report}: ok");
    } else {
        eprintln!("{report}: {} findings", report.findings.len());
    }
    Ok(report.findings.is_empty())
}

/// Applies every rule to the workspace.
fn check(workspace: &Workspace) -> Report {
    let mut report = Report { crates_count: workspace.packages.len(), ..Report::default() };
    for (path, text) in workspace.with_extension("rs") {
        check_rust(path, text, &mut report);
    }
    for (path, text) in workspace.with_extension("lua") {
        report.findings.extend(files::check_name(path));
        report.findings.extend(lua::check(path, text));
    }
    for (path, text) in workspace.with_extension("md") {
        report.findings.extend(docs::check_links(path, text, workspace));
    }
    report.findings.extend(arrows::check(workspace));
    report.findings.extend(docs::check_architecture(workspace));
    report.findings.sort();
    report.advice.sort();
    report
}

fn check_rust(path: &Path, text: &str, report: &mut Report) {
    report.files_count += 1;
    report.findings.extend(files::check_name(path));
    report.findings.extend(files::check_opening(path, text));
    // A file that does not parse has no known functions; what it breaks otherwise shows later.
    let file = match RustFile::parse(path, text) {
        Ok(file) => file,
        Err(finding) => return report.findings.push(finding),
    };
    match files::check_length(&file) {
        Some(files::Length::TooLong(finding)) => report.findings.push(finding),
        Some(files::Length::Long(advice)) => report.advice.push(advice),
        None => {}
    }
    let functions = functions::list(&file);
    report.functions_count += functions.len();
    report.findings.extend(functions::check_lengths(path, &functions));
    report.findings.extend(tokens::check(&file));
}

impl Finding {
    fn new(path: &Path, line: usize, message: impl Into<String>, hint: &'static str) -> Self {
        Self { path: path.to_path_buf(), line, message: message.into(), hint }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}; {}", self.path.display(), self.line, self.message, self.hint)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "tidy: {} files, {} functions, {} crates",
            self.files_count, self.functions_count, self.crates_count
        )
    }
}

#[cfg(test)]
mod tests {
    use super::workspace::Package;
    use super::*;

    const ARCHITECTURE: (&str, &str) = ("ARCHITECTURE.md", "`lingua-core` is pure.\n");

    fn workspace(files: &[(&str, &str)]) -> Workspace {
        Workspace::for_tests(files, vec![Package::for_tests("lingua-core", &[])])
    }

    #[test]
    fn a_tidy_workspace_has_no_findings() {
        let report = check(&workspace(&[
            ARCHITECTURE,
            ("src/lib.rs", "//! Adds.\n\nfn add() {}\n\nfn twice() {}\n"),
        ]));
        assert_eq!(report.findings, []);
        assert_eq!(report.to_string(), "tidy: 1 files, 2 functions, 1 crates");
    }

    #[test]
    fn every_kind_of_file_reaches_its_rules() {
        let report = check(&workspace(&[
            ("README.md", "[gone](gone.md)\n"),
            ("scripts/reserve.lua", "return 1\n"),
            ("src/broken.rs", "//! Breaks.\n\nfn {\n"),
            ("src/utils.rs", "fn f() { todo!() }\n"),
        ]));
        let places: Vec<String> = report
            .findings
            .iter()
            .map(|finding| format!("{}:{}", finding.path.display(), finding.line))
            .collect();
        assert_eq!(
            places,
            [
                "ARCHITECTURE.md:1",     // missing
                "README.md:1",           // broken link
                "scripts/reserve.lua:1", // no header
                "src/broken.rs:3",       // does not parse
                "src/utils.rs:1",        // name
                "src/utils.rs:1",        // no opening docs
                "src/utils.rs:1",        // todo!
            ]
        );
    }

    #[test]
    fn long_files_are_advice_until_they_break_the_limit() {
        let text = format!("//! Long.\n{}", "// line\n".repeat(400));
        let report = check(&workspace(&[ARCHITECTURE, ("src/long.rs", &text)]));
        assert_eq!(report.findings, []);
        assert_eq!(report.advice.len(), 1);
    }

    #[test]
    fn a_finding_reads_as_place_message_hint() {
        let finding = Finding::new(Path::new("src/a.rs"), 7, "too long", "split it");
        assert_eq!(finding.to_string(), "src/a.rs:7: too long; split it");
    }
}
