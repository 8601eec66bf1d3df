//! Cleans what others wrote before a terminal or a log shows it.
//!
//! Start at [`clean`]. Nodes and clients choose texts, reasons and names: an escape sequence in
//! them would change the terminal, a line end would forge a line, and an override of the writing
//! direction would show another text than is there.
//!
//! Invariant: of what stands in a value, only characters that can be seen reach the screen.

use std::borrow::Cow;
use std::io::{self, Write};

use lingua_core::is_hidden;

fn replaced(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_clean = |c: char| !is_hidden(c) || is_kept(c);
    if text.chars().all(is_clean) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match is_clean(c) {
            true => clean.push(c),
            false => clean.extend(c.escape_default()),
        }
    }
    Cow::Owned(clean)
}

/// A value on one line; what cannot be shown is written as in a program: `\u{1b}`, `\n`.
pub(crate) fn clean(value: &str) -> Cow<'_, str> {
    replaced(value, |_| false)
}

/// A text of several lines.
pub(crate) fn clean_lines(text: &str) -> Cow<'_, str> {
    replaced(text, |c| c == '\n' || c == '\t')
}

/// JSON that means the same: what cannot be shown can only stand in strings, where it has another
/// form.
pub(crate) fn clean_json(json: &str) -> Cow<'_, str> {
    let is_form = |c: char| matches!(c, '\n' | '\r' | '\t');
    if json.chars().all(|c| !is_hidden(c) || is_form(c)) {
        return Cow::Borrowed(json);
    }
    let mut clean = String::with_capacity(json.len());
    for c in json.chars() {
        match is_hidden(c) && !is_form(c) {
            false => clean.push(c),
            true => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    clean.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    Cow::Owned(clean)
}

/// A log whose lines hold no hidden characters but their colours. Each write is one line.
pub(crate) struct CleanLog<W>(pub(crate) W);

impl<W: Write> Write for CleanLog<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.write_all(line).map(|()| line.len())
    }

    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        // The log itself escapes what others put before its colours.
        let text = String::from_utf8_lossy(line);
        let (inner, end) = match text.strip_suffix('\n') {
            Some(inner) => (inner, "\n"),
            None => (&*text, ""),
        };
        let clean = replaced(inner, |c| c == '\u{1b}' || c == '\t');
        self.0.write_all(clean.as_bytes())?;
        self.0.write_all(end.as_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_shown_as_what_they_are() {
        assert_eq!(clean("你好 hello"), "你好 hello");
        assert_eq!(clean("\u{1b}[2Jx"), "\\u{1b}[2Jx");
        assert_eq!(clean("a\nb\u{202e}c\u{9b}d\u{7f}"), "a\\nb\\u{202e}c\\u{9b}d\\u{7f}");
        assert_eq!(clean_lines("a\n\tb\r"), "a\n\tb\\r");
    }

    #[test]
    fn clean_json_means_the_same() {
        let value = serde_json::json!({"text": "a\u{202e}b\u{9b}\u{e0001}\u{1b}"});
        let (json, shown) = (value.to_string(), clean_json(&value.to_string()).into_owned());
        assert_ne!(json, shown);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        assert!(shown.is_ascii(), "{shown}");
    }

    #[test]
    fn a_log_line_stays_one_line() {
        let mut log = CleanLog(vec![]);
        log.write_all("INFO reason=\u{202e}x\nERROR forged\n".as_bytes()).unwrap();
        assert_eq!(log.0, b"INFO reason=\\u{202e}x\\nERROR forged\n");
    }
}
