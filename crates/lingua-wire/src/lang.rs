//! Language tags in any spelling, made canonical.
//!
//! Start at [`language`], [`source`] and [`pool`]. `zh_CN`, `ZH-cn` and `cmn-CN` are one language,
//! `zh-CN`; the core only ever sees that form. Deprecated codes become their successors (`iw` is
//! `he`), three letters become two where two exist (`eng` is `en`), and extensions that do not name
//! a language (`-u-` calendars and the like) are dropped.
//!
//! Invariant: two spellings of one language give equal [`Lang`]s; a canonical tag stays as it is.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use icu_locale::{Locale, LocaleCanonicalizer};
use lingua_core::lang::AUTO;
use lingua_core::{Lang, LangError, LangPair, Source};

use crate::error::{ErrorCode, RequestError, shown};

/// Longest tag that is parsed, in bytes. Leaves room for extensions that are dropped.
const SPELLING_BYTES_MAX: usize = 64;

/// The canonical tags of two letters: nearly all two-letter tags, and nearly all of the traffic.
static CANONICAL_PAIRS: LazyLock<[[bool; 26]; 26]> = LazyLock::new(|| {
    let mut table = [[false; 26]; 26];
    for (first, row) in (b'a'..).zip(&mut table) {
        for (second, is_canonical) in (b'a'..).zip(row) {
            let tag = [first, second].map(char::from).iter().collect::<String>();
            *is_canonical = spell(&tag).is_ok_and(|spelling| spelling == tag);
        }
    }
    table
});

/// The language that a field names.
pub fn language(field: impl fmt::Display, text: &str) -> Result<Lang, RequestError> {
    canonical(text).map_err(|why| {
        let tag = shown(text);
        let what = match why {
            LangError::Malformed { .. } => {
                format!("{tag} is not a BCP-47 language tag; use one such as 'zh' or 'pt-BR'")
            }
            _ => format!("{tag} is refused: {why}"),
        };
        RequestError::of_core(why.code(), &field.to_string(), &what)
    })
}

/// The source language of a job, which may be `auto`.
pub fn source(field: &str, text: &str) -> Result<Source, RequestError> {
    match text.eq_ignore_ascii_case(AUTO) {
        true => Ok(Source::Auto),
        false => language(field, text).map(Source::Known),
    }
}

/// The pool of this name: `zh:en`, or `*:en` (also `auto:en`) for the mixed one.
pub fn pool(field: &str, text: &str) -> Result<LangPair, RequestError> {
    let Some((src, tgt)) = text.split_once(':') else {
        let what = format!("{} is not a pool; write it as 'zh:en' or '*:en'", shown(text));
        return Err(RequestError::new(ErrorCode::InvalidLanguage, field, &what));
    };
    let src = if src == "*" { Source::Auto } else { source(field, src)? };
    Ok(LangPair { src, tgt: language(field, tgt)? })
}

/// The language that a tag names, in any spelling.
fn canonical(text: &str) -> Result<Lang, LangError> {
    if let &[first @ b'a'..=b'z', second @ b'a'..=b'z'] = text.as_bytes()
        && CANONICAL_PAIRS[usize::from(first - b'a')][usize::from(second - b'a')]
    {
        return Lang::new(text);
    }
    if text.len() > SPELLING_BYTES_MAX {
        return Err(LangError::TooLong { bytes: text.len() });
    }
    if text.is_empty() || text.eq_ignore_ascii_case(AUTO) {
        return Lang::new(text);
    }
    Lang::new(&spell(text)?)
}

/// The canonical spelling of a tag, as far as it names a language.
fn spell(text: &str) -> Result<String, LangError> {
    let malformed = || LangError::Malformed { text: text.to_owned() };
    let dashed = match text.contains('_') {
        true => Cow::Owned(text.replace('_', "-")),
        false => Cow::Borrowed(text),
    };
    let mut locale = Locale::try_from_str(&dashed).map_err(|_| malformed())?;
    // Cheap to create: it only points to data inside the program.
    LocaleCanonicalizer::new_common().canonicalize(&mut locale);
    // `und` means that the language is unknown.
    if locale.id.language.is_unknown() {
        return Err(malformed());
    }
    locale.extensions.unicode.clear();
    locale.extensions.transform.clear();
    locale.extensions.other.clear();
    Ok(locale.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_two_letter_tags_agrees_with_the_parser() {
        let mut changed = Vec::new();
        for first in b'a'..=b'z' {
            for second in b'a'..=b'z' {
                let tag: String = [first, second].map(char::from).iter().collect();
                let long = spell(&tag).and_then(|spelling| Lang::new(&spelling));
                assert_eq!(canonical(&tag), long, "{tag}");
                if long.is_ok_and(|lang| lang.as_str() != tag) {
                    changed.push(tag);
                }
            }
        }
        assert!(changed.len() < 20, "{changed:?}");
        assert!(changed.contains(&"iw".to_owned()));
    }
}
