//! Rules for Rust: sizes of files and functions, line lengths, and one type for each name.
//!
//! Invariant: test code counts neither for sizes nor for names; its lines are short as well.

use std::collections::BTreeMap;
use std::path::Path;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, ImplItemFn, Item, ItemFn, Visibility};

use super::documents::too_long;
use super::{Workspace, finding};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

pub(super) fn check(workspace: &Workspace) -> Vec<String> {
    let mut findings = vec![];
    let mut types: BTreeMap<String, String> = BTreeMap::new();
    for (path, text) in workspace.with_extension("rs") {
        findings.extend(too_long(path, text));
        // rustc reports what does not parse.
        let Ok(syntax) = syn::parse_file(text) else { continue };
        if is_test_path(path) || is_test_only(&syntax.attrs) {
            continue;
        }
        let mut file = SourceFile { path, types: vec![], test_lines: 0, findings: vec![] };
        file.visit_file(&syntax);
        findings.append(&mut file.findings);
        let lines = text.lines().count() - file.test_lines;
        if lines > FILE_LINES_MAX {
            findings.push(finding(path, 1, format!("{lines} lines of {FILE_LINES_MAX}")));
        }
        for (name, line) in file.types.into_iter().filter(|_| is_library(path)) {
            let here = format!("{}:{line}", path.display());
            if let Some(other) = types.insert(name.clone(), here) {
                let message = format!("a second public type `{name}`, see {other}");
                findings.push(finding(path, line, message));
            }
        }
    }
    findings
}

/// Whether a file is part of a crate's library or program.
fn is_library(path: &Path) -> bool {
    path.starts_with("crates") && path.iter().nth(2).is_some_and(|folder| folder == "src")
}

fn is_test_path(path: &Path) -> bool {
    path.iter().any(|part| part == "tests" || part == "benches" || part == "tests.rs")
}

fn is_test_only(attributes: &[Attribute]) -> bool {
    let is_cfg_test = |attribute: &&Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<Ident>().is_ok_and(|name| name == "test")
    };
    attributes.iter().any(|attribute| is_cfg_test(&attribute))
}

/// What was found in one file.
struct SourceFile<'a> {
    path: &'a Path,
    /// Public types with their lines.
    types: Vec<(String, usize)>,
    test_lines: usize,
    findings: Vec<String>,
}

impl SourceFile<'_> {
    fn measure(&mut self, name: &Ident, function: &impl Spanned) {
        let (first, last) = (name.span().start().line, function.span().end().line);
        let lines = last - first + 1;
        if lines > FUNCTION_LINES_MAX {
            let message = format!("`{name}` has {lines} lines of {FUNCTION_LINES_MAX}");
            self.findings.push(finding(self.path, first, message));
        }
    }
}

impl<'ast> Visit<'ast> for SourceFile<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, named): (&[Attribute], _) = match item {
            Item::Struct(item) => (&item.attrs, Some((&item.vis, &item.ident))),
            Item::Enum(item) => (&item.attrs, Some((&item.vis, &item.ident))),
            Item::Trait(item) => (&item.attrs, Some((&item.vis, &item.ident))),
            Item::Type(item) => (&item.attrs, Some((&item.vis, &item.ident))),
            Item::Mod(item) => (&item.attrs, None),
            Item::Impl(item) => (&item.attrs, None),
            _ => (&[], None),
        };
        if is_test_only(attributes) {
            let span = item.span();
            self.test_lines += span.end().line - span.start().line + 1;
            return;
        }
        if let Some((visibility, name)) = named
            && !matches!(visibility, Visibility::Inherited)
        {
            self.types.push((name.to_string(), name.span().start().line));
        }
        visit::visit_item(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.measure(&item.sig.ident, item);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.measure(&item.sig.ident, item);
        visit::visit_impl_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::workspace;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        check(&workspace(files, vec![]))
    }

    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    let _ = 1;\n".repeat(lines - 2))
    }

    #[test]
    fn functions_and_files_have_a_limit_and_tests_have_none() {
        assert!(findings(&[("src/a.rs", &function(70))]).is_empty());
        assert_eq!(
            findings(&[("src/a.rs", &function(71))]),
            ["src/a.rs:1: `f` has 71 lines of 70"]
        );
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(700));
        assert!(findings(&[("src/a.rs", &tests), ("tests/b.rs", &function(700))]).is_empty());
        let file = "const A: u8 = 1;\n".repeat(601);
        assert_eq!(findings(&[("src/a.rs", &file)]), ["src/a.rs:1: 601 lines of 600"]);
    }

    #[test]
    fn lines_end_at_column_100() {
        let (comment, url) = ("x".repeat(98), format!("// https://{}\n", "x".repeat(120)));
        assert_eq!(
            findings(&[("src/a.rs", &format!("// {comment}\n"))]),
            ["src/a.rs:1: 101 columns"]
        );
        assert!(findings(&[("src/a.rs", &url)]).is_empty());
    }

    #[test]
    fn no_two_public_types_have_one_name() {
        let (one, two) = ("pub struct A;\nstruct B;\n", "pub(crate) enum A {}\nstruct B;\n");
        assert_eq!(
            findings(&[("crates/x/src/lib.rs", one), ("crates/y/src/lib.rs", two)]),
            ["crates/y/src/lib.rs:1: a second public type `A`, see crates/x/src/lib.rs:1"]
        );
        let test_only = "#[cfg(test)]\nmod tests {\n    pub struct A;\n}\n";
        assert!(findings(&[("crates/x/src/lib.rs", one), ("xtask/src/a.rs", one)]).is_empty());
        assert!(
            findings(&[("crates/x/src/a.rs", one), ("crates/x/src/b.rs", test_only)]).is_empty()
        );
    }
}
