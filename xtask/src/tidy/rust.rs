//! A Rust source file, and which part of it is test code.
//!
//! Start at [`RustFile::parse`]. Limits on size hold for the code that ships; a long table of
//! cases in a test is no harm.
//!
//! Invariant: code counts as test code only if no build without `cfg(test)` contains it, or if it
//! is marked as a test itself.

use std::path::Path;

use proc_macro2::TokenStream;
use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token};

use super::Finding;

/// Attributes that make a function a test, by their last segment: `#[tokio::test]` is one.
const TEST_ATTRIBUTES: [&str; 5] = ["test", "rstest", "proptest", "bench", "test_case"];

/// A source file that parsed.
pub(super) struct RustFile<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
    /// All of it, the inside of macro calls included.
    pub(super) tokens: TokenStream,
    /// The same as items; the inside of macro calls stays closed.
    pub(super) syntax: syn::File,
}

impl<'a> RustFile<'a> {
    /// Parses a file; one that does not parse is a finding.
    pub(super) fn parse(path: &'a Path, text: &'a str) -> Result<Self, Finding> {
        let parsed = text.parse::<TokenStream>().map_err(syn::Error::from).and_then(|tokens| {
            let syntax = syn::parse2(tokens.clone())?;
            Ok(Self { path, text, tokens, syntax })
        });
        parsed.map_err(|error| {
            let line = error.span().start().line;
            Finding::new(path, line, format!("does not parse: {error}"), "make it compile first")
        })
    }

    /// Whether the whole file is test code.
    pub(super) fn is_test(&self) -> bool {
        is_test_path(self.path) || is_test_only(&self.syntax.attrs)
    }
}

/// Whether a file holds only test code, judged by where it lies.
fn is_test_path(path: &Path) -> bool {
    let in_test_folder = path
        .parent()
        .is_some_and(|folder| folder.iter().any(|it| it == "tests" || it == "benches"));
    in_test_folder || path.file_name().is_some_and(|name| name == "tests.rs")
}

/// Whether the attributes leave their item out of every build without `cfg(test)`.
pub(super) fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        attribute.parse_args::<Meta>().is_ok_and(|condition| implies_test(&condition))
    })
}

/// Whether the attributes make their function a test.
pub(super) fn is_test_function(attributes: &[Attribute]) -> bool {
    is_test_only(attributes)
        || attributes.iter().any(|attribute| {
            let name = attribute.path().segments.last().map(|segment| &segment.ident);
            name.is_some_and(|name| TEST_ATTRIBUTES.iter().any(|test| name == test))
        })
}

/// Whether a `cfg` condition can only hold in a test build.
fn implies_test(condition: &Meta) -> bool {
    let list = match condition {
        Meta::Path(path) => return path.is_ident("test"),
        Meta::NameValue(_) => return false,
        Meta::List(list) => list,
    };
    let Ok(parts) = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated) else {
        return false;
    };
    if list.path.is_ident("all") {
        parts.iter().any(implies_test)
    } else if list.path.is_ident("any") {
        !parts.is_empty() && parts.iter().all(implies_test)
    } else {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_files_are_known_by_their_place() {
        for path in ["crates/a/tests/it/main.rs", "crates/a/benches/b.rs", "src/cell/tests.rs"] {
            assert!(is_test_path(Path::new(path)), "{path}");
        }
        for path in ["crates/a/src/lib.rs", "src/contests.rs", "src/testing/world.rs"] {
            assert!(!is_test_path(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn only_conditions_that_need_a_test_build_make_test_code() {
        let is_test = |condition: &str| implies_test(&syn::parse_str(condition).unwrap());
        for condition in ["test", "all(test, unix)", "any(test)", "any(test, all(test, unix))"] {
            assert!(is_test(condition), "{condition}");
        }
        for condition in
            ["not(test)", "any(test, feature = \"conformance\")", "any()", "unix", "test = \"a\""]
        {
            assert!(!is_test(condition), "{condition}");
        }
    }

    #[test]
    fn an_inner_attribute_makes_the_whole_file_test_code() {
        let path = Path::new("src/fake.rs");
        assert!(RustFile::parse(path, "//! Fakes.\n#![cfg(test)]\n").unwrap().is_test());
        assert!(!RustFile::parse(path, "//! Fakes.\n#![allow(unused)]\n").unwrap().is_test());
    }

    #[test]
    fn a_file_that_does_not_parse_is_a_finding_at_its_line() {
        for (text, line) in [("//! A.\nfn f() {\n", 2), ("//! A.\n\nfn 1() {}\n", 3)] {
            let finding = RustFile::parse(Path::new("src/a.rs"), text).err().unwrap();
            assert_eq!(finding.line, line, "{finding}");
        }
    }
}
