//! How long a function may be.
//!
//! Start at [`list`]. Functions inside macro calls are not seen: their tokens mean what the macro
//! makes of them.
//!
//! Invariant: tests are not measured, wherever they stand.

use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, ItemImpl, ItemMod, ItemTrait, Signature, TraitItemFn};

use super::Finding;
use super::rust::{RustFile, is_test_function, is_test_only};

/// A function that does not fit on a screen does not fit in a head.
const FUNCTION_LINES_MAX: usize = 70;

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    name: String,
    /// The line of its `fn`.
    line: usize,
    /// From `fn` to the closing brace.
    lines: usize,
}

/// The functions of a file that are not tests.
pub(super) fn list(file: &RustFile<'_>) -> Vec<Function> {
    let mut functions = Functions(Vec::new());
    if !file.is_test() {
        functions.visit_file(&file.syntax);
    }
    functions.0
}

/// Checks that no function is longer than allowed.
pub(super) fn check_lengths(path: &Path, functions: &[Function]) -> impl Iterator<Item = Finding> {
    functions.iter().filter(|function| function.lines > FUNCTION_LINES_MAX).map(move |function| {
        let Function { name, line, lines } = function;
        let message = format!("`{name}` has {lines} lines, {FUNCTION_LINES_MAX} at most");
        Finding::new(path, *line, message, "give a part of it a name of its own")
    })
}

struct Functions(Vec<Function>);

impl Functions {
    fn measure(&mut self, signature: &Signature, body: &Block) {
        let line = signature.fn_token.span.start().line;
        let last_line = body.brace_token.span.close().end().line;
        let name = signature.ident.to_string();
        self.0.push(Function { name, line, lines: last_line - line + 1 });
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_trait(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_test_function(&item.attrs) {
            self.measure(&item.sig, &item.block);
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !is_test_function(&item.attrs) {
            self.measure(&item.sig, &item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if !is_test_function(&item.attrs)
            && let Some(body) = &item.default
        {
            self.measure(&item.sig, body);
            visit::visit_trait_item_fn(self, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names and lengths of the functions in `text`.
    fn measured(path: &str, text: &str) -> Vec<(String, usize)> {
        let file = RustFile::parse(Path::new(path), text).unwrap();
        list(&file).into_iter().map(|function| (function.name, function.lines)).collect()
    }

    fn findings(text: &str) -> Vec<Finding> {
        let file = RustFile::parse(Path::new("src/a.rs"), text).unwrap();
        check_lengths(file.path, &list(&file)).collect()
    }

    /// A function of that many lines.
    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn the_limit_is_inclusive() {
        assert_eq!(findings(&function(70)), []);
        let found = findings(&format!("\n\n{}", function(71)));
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].line, found[0].message.as_str()),
            (3, "`long` has 71 lines, 70 at most")
        );
    }

    #[test]
    fn attributes_and_docs_do_not_count() {
        let text = "/// Docs.\n#[must_use]\npub async fn f()\n-> u8\n{\n    1\n}\n";
        assert_eq!(measured("src/a.rs", text), [("f".to_owned(), 5)]);
    }

    #[test]
    fn every_kind_of_function_is_measured() {
        let text = "
            fn free() { fn nested() {} }
            impl A { fn method() {} }
            trait B { fn required(); fn provided() {} }
            mod inner { fn inside() { let _ = || { fn in_closure() {} }; } }
        ";
        let names: Vec<String> =
            measured("src/a.rs", text).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["free", "nested", "method", "provided", "inside", "in_closure"]);
    }

    #[test]
    fn tests_are_not_measured() {
        let text = "
            #[cfg(test)] mod tests { fn f() {} }
            #[cfg(test)] impl A { fn f() {} }
            #[cfg(test)] trait B { fn f() {} }
            #[cfg(test)] fn f() {}
            #[test] fn f() {}
            #[tokio::test(start_paused = true)] async fn f() {}
            #[rstest] fn f() {}
        ";
        assert_eq!(measured("src/a.rs", text), []);
        assert_eq!(measured("src/cell/tests.rs", &function(100)), []);
    }

    #[test]
    fn code_that_ships_is_measured_whatever_its_cfg() {
        let text = "#[cfg(any(test, feature = \"conformance\"))]\nmod suite { fn f() {} }\n";
        assert_eq!(measured("src/a.rs", text), [("f".to_owned(), 1)]);
    }
}
