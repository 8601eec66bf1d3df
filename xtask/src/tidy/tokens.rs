//! What must not be written anywhere: tests that are switched off, and code that is not there.
//!
//! Invariant: the rules read tokens, not items, so that they see inside macro calls (a
//! `proptest!` block has tests, too) and are not fooled by comments or texts.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::Finding;
use super::rust::RustFile;

/// Macros that stand for missing code.
const UNFINISHED_MACROS: [&str; 2] = ["todo", "unimplemented"];

/// Checks all tokens of a file.
pub(super) fn check(file: &RustFile<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    scan(file, file.tokens.clone(), &mut findings);
    findings
}

fn scan(file: &RustFile<'_>, tokens: TokenStream, findings: &mut Vec<Finding>) {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let mut rest = trees.as_slice();
    while let [first, tail @ ..] = rest {
        if is_ignored_test(rest) {
            let line = first.span().start().line;
            let hint = "repair the test or delete it";
            findings.push(Finding::new(file.path, line, "`#[ignore]` switches a test off", hint));
        }
        if let Some(name) = unfinished_macro(rest) {
            let message = format!("`{name}!` stands for code that is not there");
            let hint = "write it, or return an error";
            findings.push(Finding::new(file.path, first.span().start().line, message, hint));
        }
        if let TokenTree::Group(group) = first {
            scan(file, group.stream(), findings);
        }
        rest = tail;
    }
}

/// Whether the tokens start with an attribute that ignores a test.
fn is_ignored_test(tokens: &[TokenTree]) -> bool {
    matches!(
        tokens,
        [TokenTree::Punct(hash), TokenTree::Group(attribute), ..]
            if hash.as_char() == '#'
                && attribute.delimiter() == Delimiter::Bracket
                && is_ignore(&attribute.stream().into_iter().collect::<Vec<_>>())
    )
}

/// Whether the inside of an attribute is `ignore`, be it behind a `cfg_attr`.
fn is_ignore(attribute: &[TokenTree]) -> bool {
    match attribute {
        [TokenTree::Ident(name), ..] if name == "ignore" => true,
        [TokenTree::Ident(name), TokenTree::Group(group), ..] if name == "cfg_attr" => {
            let parts: Vec<TokenTree> = group.stream().into_iter().collect();
            let is_comma =
                |tree: &TokenTree| matches!(tree, TokenTree::Punct(p) if p.as_char() == ',');
            // The first part is the condition, the others are the attributes.
            parts.split(is_comma).skip(1).any(is_ignore)
        }
        _ => false,
    }
}

/// The name of the macro that the tokens start with, if it stands for missing code.
fn unfinished_macro(tokens: &[TokenTree]) -> Option<&'static str> {
    match tokens {
        [TokenTree::Ident(name), TokenTree::Punct(bang), TokenTree::Group(_), ..]
            if bang.as_char() == '!' =>
        {
            UNFINISHED_MACROS.into_iter().find(|unfinished| name == unfinished)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let file = RustFile::parse(Path::new("tests/it/main.rs"), text).unwrap();
        check(&file).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn ignored_tests_are_found() {
        for attribute in [
            "#[ignore]",
            "#[ignore = \"slow\"]",
            "#[cfg_attr(miri, ignore)]",
            "#[cfg_attr(all(unix, miri), test, ignore = \"slow\")]",
            "#[cfg_attr(unix, cfg_attr(miri, ignore))]",
        ] {
            assert_eq!(lines(&format!("#[test]\n{attribute}\nfn f() {{}}\n")), [2], "{attribute}");
        }
    }

    #[test]
    fn other_uses_of_the_word_are_fine() {
        let text = "
            //! Never `#[ignore]` a test, never leave a `todo!()`.
            #[derive(A)]
            #[serde(ignore)]
            #[cfg_attr(unix, serde(ignore))]
            struct S { ignore: bool }
            fn ignore() -> &'static str { \"#[ignore] todo!()\" }
        ";
        assert!(lines(text).is_empty());
    }

    #[test]
    fn unfinished_code_is_found() {
        let text = "fn f() {\n    todo!()\n}\n\nfn g() {\n    std::unimplemented!(\"later\")\n}\n";
        assert_eq!(lines(text), [2, 6]);
    }

    #[test]
    fn a_variable_may_be_called_todo() {
        assert!(lines("fn f(todo: u8) -> bool { todo != (1) && todo!= (2) }\n").is_empty());
    }

    #[test]
    fn macro_calls_hide_nothing() {
        let text = "proptest! {\n    #[test]\n    #[ignore]\n    fn f(a in 0..9) { todo!() }\n}\n";
        assert_eq!(lines(text), [3, 4]);
    }
}
