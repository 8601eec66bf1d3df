//! Every Lua script opens with its contract.
//!
//! A script runs inside the store, where no type checks its callers: the header is all they have.

use std::path::Path;

use super::Finding;

/// What a header has to tell.
const HEADER_WORDS: [&str; 4] = ["KEYS", "ARGV", "RETURNS", "WHY ATOMIC"];

/// The folder of parts that are put in front of scripts: they have no callers of their own, and need to
/// say no more than what they are for.
const PARTS: &str = "prelude";

/// Checks that the leading comment of a script has every header word.
pub(super) fn check(path: &Path, text: &str) -> Option<Finding> {
    let header = leading_comment(text);
    if path.components().any(|part| part.as_os_str() == PARTS) && !header.trim().is_empty() {
        return None;
    }
    let missing: Vec<&str> =
        HEADER_WORDS.into_iter().filter(|word| !header.contains(word)).collect();
    if missing.is_empty() {
        return None;
    }
    let message = format!("the leading comment lacks {}", missing.join(", "));
    Some(Finding::new(path, 1, message, "say it in a comment above the code"))
}

/// The comments and empty lines before the first line of code.
fn leading_comment(text: &str) -> String {
    let mut is_in_block = false;
    let is_header = |line: &&str| {
        let line = line.trim();
        let opens_block = line.starts_with("--[[");
        let was_in_block = is_in_block || opens_block;
        is_in_block = was_in_block && !line.contains("]]");
        was_in_block || line.is_empty() || line.starts_with("--")
    };
    text.lines().take_while(is_header).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Option<String> {
        check(Path::new("scripts/reserve.lua"), text).map(|finding| finding.message)
    }

    #[test]
    fn a_full_header_is_fine() {
        let lines = "-- KEYS    1 cell\n-- ARGV    1 now\n\n-- RETURNS ok\n-- WHY ATOMIC one slot\nreturn 1";
        assert_eq!(message(lines), None);
        let block = "--[[\nKEYS 1 cell\nARGV 1 now\nRETURNS ok\nWHY ATOMIC one slot\n]]\nreturn 1";
        assert_eq!(message(block), None);
    }

    #[test]
    fn a_shared_part_says_what_it_is_for() {
        let part = |text| check(Path::new("scripts/prelude/clock.lua"), text);
        assert!(part("-- What every script begins with.\nlocal now = 1\n").is_none());
        assert!(part("local now = 1\n").is_some());
    }

    #[test]
    fn missing_words_are_named() {
        assert_eq!(
            message("-- KEYS 1 cell\n-- RETURNS ok\nreturn 1\n").as_deref(),
            Some("the leading comment lacks ARGV, WHY ATOMIC")
        );
    }

    #[test]
    fn words_in_the_code_do_not_count() {
        let text = "local cell = KEYS[1] -- ARGV, RETURNS, WHY ATOMIC\n";
        assert_eq!(
            message(text).as_deref(),
            Some("the leading comment lacks KEYS, ARGV, RETURNS, WHY ATOMIC")
        );
        let late = "--[[ KEYS ARGV ]]\nreturn 1\n-- RETURNS\n-- WHY ATOMIC\n";
        assert_eq!(message(late).as_deref(), Some("the leading comment lacks RETURNS, WHY ATOMIC"));
    }
}
