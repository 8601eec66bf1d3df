//! Which characters are not shown as what they are.

/// Whether a character changes how others are shown: controls, line ends, overrides of the writing
/// direction, and characters that nobody sees. What others wrote must not reach a terminal, a log
/// or a page with it.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{061C}' | '\u{200B}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}'
            | '\u{2060}'..='\u{2069}' | '\u{FEFF}' | '\u{E0000}'..='\u{E007F}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_and_what_disturbs_it_is_not() {
        assert!(!"Ànn, 你好 ÅŁ עברית 👩\u{200d}🚀 {}".chars().any(is_hidden));
        for c in ['\0', '\n', '\u{1b}', '\u{7f}', '\u{9b}', '\u{202e}', '\u{2066}', '\u{e0041}'] {
            assert!(is_hidden(c), "{c:?}");
        }
    }
}
