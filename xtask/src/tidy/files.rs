//! What a source file is called, how it opens, and how long it may be.
//!
//! Invariant: the tests inside a file do not count towards its length, so that nobody saves on
//! them to stay below the limit.

use std::path::Path;

use syn::ItemMod;
use syn::visit::{self, Visit};

use super::Finding;
use super::rust::{RustFile, is_test_only};

/// Longer than this is worth a thought.
const FILE_LINES_GOAL: usize = 300;
/// Longer than this is refused.
const FILE_LINES_MAX: usize = 600;

/// Names that say where code was put, not what it is for.
const EMPTY_NAMES: [&str; 7] = ["utils", "util", "helpers", "helper", "common", "manager", "misc"];

/// A file that is longer than it should be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// Above the goal.
    Long(Finding),
    /// Above the limit.
    TooLong(Finding),
}

/// Checks that the name of a file says what it is for.
pub(super) fn check_name(path: &Path) -> Option<Finding> {
    let stem = path.file_stem()?.to_str()?;
    if stem == "mod" {
        let hint = "name it after its folder: `foo.rs` beside `foo/`";
        return Some(Finding::new(path, 1, "`mod.rs` says nothing in a list of open files", hint));
    }
    if EMPTY_NAMES.contains(&stem) {
        let message = format!("`{stem}` does not say what the file is for");
        return Some(Finding::new(path, 1, message, "name it after the idea it holds"));
    }
    if stem.ends_with("v2") {
        let message = format!("`{stem}` is a second version beside a first");
        return Some(Finding::new(path, 1, message, "replace the old code; git keeps it"));
    }
    None
}

/// Checks that a file opens with what it is for.
pub(super) fn check_opening(path: &Path, text: &str) -> Option<Finding> {
    let opening = text.lines().next().and_then(|line| line.strip_prefix("//!"));
    if opening.is_some_and(|opening| !opening.trim().is_empty()) {
        return None;
    }
    let hint = "start with what it is for, where to start reading, the invariant it keeps";
    Some(Finding::new(path, 1, "the file does not open with `//!` docs", hint))
}

/// Checks the length of a file, without its tests.
pub(super) fn check_length(file: &RustFile<'_>) -> Option<Length> {
    if file.is_test() {
        return None;
    }
    let lines = file.text.lines().count() - test_lines(&file.syntax);
    let finding = |message, hint| Finding::new(file.path, 1, message, hint);
    if lines > FILE_LINES_MAX {
        let message = format!("{lines} lines without tests, {FILE_LINES_MAX} at most");
        Some(Length::TooLong(finding(message, "split it by idea into `foo.rs` and `foo/`")))
    } else if lines > FILE_LINES_GOAL {
        let message = format!("{lines} lines without tests, {FILE_LINES_GOAL} where it can be");
        Some(Length::Long(finding(message, "see whether it holds two ideas")))
    } else {
        None
    }
}

/// The number of lines inside `#[cfg(test)] mod … { }`, attributes and braces included.
fn test_lines(syntax: &syn::File) -> usize {
    let mut modules = TestModules { lines: 0 };
    modules.visit_file(syntax);
    modules.lines
}

struct TestModules {
    lines: usize,
}

impl<'ast> Visit<'ast> for TestModules {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        match (&module.content, module.attrs.first()) {
            // Not visited further: what is inside was counted with it.
            (Some((brace, _)), Some(attribute)) if is_test_only(&module.attrs) => {
                let first = attribute.pound_token.span.start().line;
                self.lines += brace.span.close().end().line - first + 1;
            }
            _ => visit::visit_item_mod(self, module),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length_of(path: &str, text: &str) -> Option<Length> {
        check_length(&RustFile::parse(Path::new(path), text).unwrap())
    }

    fn lines(count: usize) -> String {
        "// line\n".repeat(count)
    }

    #[test]
    fn empty_names_are_refused() {
        for path in [
            "src/mod.rs",
            "src/utils.rs",
            "src/util.rs",
            "src/helpers.rs",
            "tests/it/helper.rs",
            "src/common.rs",
            "src/manager.rs",
            "src/misc.rs",
            "src/queue_v2.rs",
            "src/queuev2.rs",
            "scripts/common.lua",
        ] {
            assert!(check_name(Path::new(path)).is_some(), "{path}");
        }
    }

    #[test]
    fn names_that_only_contain_an_empty_name_are_fine() {
        for path in ["src/model.rs", "src/manager_lease.rs", "src/v2_import.rs", "src/lib.rs"] {
            assert_eq!(check_name(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn a_file_must_open_with_docs_that_say_something() {
        let path = Path::new("src/a.rs");
        for text in
            ["", "fn f() {}\n", "//!\n//! Late.\n", "\n//! Late.\n", "/// Item.\nfn f() {}\n"]
        {
            assert!(check_opening(path, text).is_some(), "{text:?}");
        }
        assert_eq!(check_opening(path, "//! Adds numbers.\n"), None);
    }

    #[test]
    fn the_limits_are_inclusive() {
        assert_eq!(length_of("src/a.rs", &lines(300)), None);
        assert!(matches!(length_of("src/a.rs", &lines(301)), Some(Length::Long(_))));
        assert!(matches!(length_of("src/a.rs", &lines(600)), Some(Length::Long(_))));
        assert!(matches!(length_of("src/a.rs", &lines(601)), Some(Length::TooLong(_))));
    }

    #[test]
    fn test_files_may_be_long() {
        assert_eq!(length_of("crates/a/tests/it/main.rs", &lines(900)), None);
    }

    #[test]
    fn test_modules_do_not_count() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", lines(900));
        assert_eq!(length_of("src/a.rs", &format!("{}{tests}", lines(300))), None);
        let nested = format!("{}mod inner {{\n{tests}}}\n", lines(298));
        assert_eq!(length_of("src/a.rs", &nested), None);
    }

    #[test]
    fn modules_that_ship_do_count() {
        for condition in ["not(test)", "any(test, feature = \"conformance\")"] {
            let text = format!("#[cfg({condition})]\nmod shipped {{\n{}}}\n", lines(598));
            assert!(
                matches!(length_of("src/a.rs", &text), Some(Length::TooLong(_))),
                "{condition}"
            );
        }
    }
}
