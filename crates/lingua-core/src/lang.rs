//! Languages and directed pairs.
//!
//! Start at [`Lang`]: a BCP-47 tag in canonical case, held inline so that it copies like a number.
//! The server resolves aliases (`cmn` for `zh`, `eng` for `en`) and `_` before it makes one.
//! [`LangPair`] is directed: `zh:en` is not `en:zh`. Its source may be unknown ([`Source::Auto`]),
//! which names the mixed pool `*:en`.
//!
//! Invariant: equal languages are equal bytes.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::id::is_text;

/// Longest tag, in bytes. The longest that a speech model names today (`ja-Latn-hepburn`) has 15.
pub const LANG_BYTES_MAX: usize = 23;

/// Most subtags that a lookup removes from a tag.
const SUBTAGS_REMOVED_MAX: usize = 3;

/// The name of a source language that the node detects itself.
pub const AUTO: &str = "auto";

/// A language, as a BCP-47 tag in canonical case (`zh`, `pt-BR`, `zh-Hant-TW`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lang {
    // The tag, zero-padded, and its length: comparing the array compares the tags.
    bytes: [u8; LANG_BYTES_MAX + 1],
}

impl Hash for Lang {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Three words instead of 24 bytes: languages are looked up for every job.
        for word in self.bytes.as_chunks::<8>().0 {
            state.write_u64(u64::from_le_bytes(*word));
        }
    }
}

/// Why a text is not a valid language.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum LangError {
    /// The text is empty.
    #[error("the language is empty; give a BCP-47 tag such as 'zh' or 'pt-BR'")]
    Empty,
    /// Longer than [`LANG_BYTES_MAX`].
    #[error("the language has {bytes} bytes; at most {LANG_BYTES_MAX} are allowed")]
    TooLong { bytes: usize },
    /// `auto` was given where the language must be known.
    #[error("'auto' is only allowed as the source language of a job")]
    Auto,
    /// The text is not a tag.
    #[error("{text:?} is not a BCP-47 language tag such as 'zh' or 'pt-BR'")]
    Malformed { text: String },
}

impl LangError {
    /// The error code that users see.
    pub fn code(&self) -> &'static str {
        "INVALID_LANGUAGE"
    }
}

impl Lang {
    /// Checks the shape of a tag and puts it into canonical case.
    pub fn new(text: &str) -> Result<Self, LangError> {
        if text.is_empty() {
            return Err(LangError::Empty);
        }
        if text.len() > LANG_BYTES_MAX {
            return Err(LangError::TooLong { bytes: text.len() });
        }
        if text.eq_ignore_ascii_case(AUTO) {
            return Err(LangError::Auto);
        }
        let mut bytes = [0; LANG_BYTES_MAX + 1];
        bytes[LANG_BYTES_MAX] = text.len() as u8;
        let mut at = 0;
        for (position, subtag) in text.split('-').enumerate() {
            if !is_subtag(position, subtag) {
                return Err(LangError::Malformed { text: text.to_owned() });
            }
            if position > 0 {
                bytes[at] = b'-';
                at += 1;
            }
            for (i, byte) in subtag.bytes().enumerate() {
                bytes[at + i] = canonical_case(position, subtag.len(), i, byte);
            }
            at += subtag.len();
        }
        Ok(Self { bytes })
    }

    /// The tag in canonical case.
    pub fn as_str(&self) -> &str {
        let len = usize::from(self.bytes[LANG_BYTES_MAX]);
        std::str::from_utf8(&self.bytes[..len]).expect("a tag is ASCII")
    }

    /// The tag without its last `subtags` (RFC 4647 §3.4): `zh` for `zh-CN`. A single letter that
    /// only introduced what was removed goes with it.
    fn without_last(&self, subtags: usize) -> Option<Self> {
        let mut tag = self.as_str();
        if subtags == 0 {
            return Some(*self);
        }
        for _ in 0..subtags {
            tag = tag.rsplit_once('-')?.0;
            if let Some((rest, letter)) = tag.rsplit_once('-')
                && letter.len() == 1
            {
                tag = rest;
            }
        }
        Self::new(tag).ok()
    }
}

fn is_subtag(position: usize, subtag: &str) -> bool {
    let letters = subtag.bytes().all(|b| b.is_ascii_alphabetic());
    let alphanumeric = subtag.bytes().all(|b| b.is_ascii_alphanumeric());
    match position {
        0 => letters && (2..=8).contains(&subtag.len()),
        _ => alphanumeric && (1..=8).contains(&subtag.len()),
    }
}

/// BCP-47 §2.1.1: language lower, script in title case, region upper, the rest lower.
fn canonical_case(position: usize, subtag_len: usize, i: usize, byte: u8) -> u8 {
    match (position, subtag_len, i) {
        (0, _, _) => byte.to_ascii_lowercase(),
        (_, 2, _) | (1, 4, 0) => byte.to_ascii_uppercase(),
        _ => byte.to_ascii_lowercase(),
    }
}

is_text!(Lang, LangError);

/// The source language of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A language that the client names.
    Known(Lang),
    /// Whatever the node detects.
    Auto,
}

impl Source {
    fn without_last(&self, subtags: usize) -> Option<Self> {
        match self {
            Self::Known(lang) => lang.without_last(subtags).map(Self::Known),
            Self::Auto => (subtags == 0).then_some(Self::Auto),
        }
    }
}

impl FromStr for Source {
    type Err = LangError;

    /// Takes a tag, or `auto` (on the wire) or `*` (in a pool's name) for [`Source::Auto`].
    fn from_str(text: &str) -> Result<Self, LangError> {
        match text {
            "*" => Ok(Self::Auto),
            _ if text.eq_ignore_ascii_case(AUTO) => Ok(Self::Auto),
            _ => Lang::new(text).map(Self::Known),
        }
    }
}

/// A direction of translation; also the name of the pool that serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LangPair {
    /// The language that is spoken.
    pub src: Source,
    /// The language that it is translated to.
    pub tgt: Lang,
}

impl LangPair {
    /// From one known language to another.
    pub fn known(src: Lang, tgt: Lang) -> Self {
        Self { src: Source::Known(src), tgt }
    }

    /// The pairs that can serve a job of this pair, the best first: itself, then with fewer
    /// subtags. `zh-CN:en` is served by `zh-CN:en`, else by `zh:en`.
    pub fn lookups(self) -> impl Iterator<Item = Self> {
        (0..=2 * SUBTAGS_REMOVED_MAX).flat_map(move |removed| {
            (0..=removed).filter_map(move |of_src| {
                let of_tgt = removed - of_src;
                if of_src.max(of_tgt) > SUBTAGS_REMOVED_MAX {
                    return None;
                }
                let src = self.src.without_last(of_src)?;
                Some(Self { src, tgt: self.tgt.without_last(of_tgt)? })
            })
        })
    }

    /// The opposite direction; `None` if the source is not known.
    pub fn reversed(self) -> Option<Self> {
        match self.src {
            Source::Known(src) => Some(Self::known(self.tgt, src)),
            Source::Auto => None,
        }
    }

    /// From a source that the node detects: a mixed pool.
    pub fn auto(tgt: Lang) -> Self {
        Self { src: Source::Auto, tgt }
    }
}

impl fmt::Display for LangPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.src {
            Source::Known(src) => write!(f, "{src}:{}", self.tgt),
            Source::Auto => write!(f, "*:{}", self.tgt),
        }
    }
}

impl FromStr for LangPair {
    type Err = LangError;

    fn from_str(text: &str) -> Result<Self, LangError> {
        let bounded = text.len() <= 2 * LANG_BYTES_MAX + 1;
        let (src, tgt) = text.split_once(':').filter(|_| bounded).ok_or_else(|| {
            LangError::Malformed { text: text.chars().take(2 * LANG_BYTES_MAX).collect() }
        })?;
        Ok(Self { src: src.parse()?, tgt: tgt.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("zh", "zh")]
    #[case("ZH", "zh")]
    #[case("zh-cn", "zh-CN")]
    #[case("ZH-hANT-tw", "zh-Hant-TW")]
    #[case("es-419", "es-419")]
    #[case("yue", "yue")]
    #[case("ca-es-VALENCIA", "ca-ES-valencia")]
    #[case("ja-Latn-hepburn", "ja-Latn-hepburn")]
    fn a_tag_gets_its_canonical_case(#[case] given: &str, #[case] canonical: &str) {
        assert_eq!(Lang::new(given).unwrap().as_str(), canonical);
        assert_eq!(Lang::new(given), Lang::new(canonical));
    }

    #[rstest]
    #[case("z")]
    #[case("zh_CN")]
    #[case("zh-")]
    #[case("-zh")]
    #[case("zh--CN")]
    #[case("中文")]
    #[case("z1")]
    #[case("*")]
    #[case("zh:en")]
    #[case("zh en")]
    #[case("verylonglanguage")]
    fn a_malformed_tag_is_named_in_the_error(#[case] given: &str) {
        assert_eq!(Lang::new(given), Err(LangError::Malformed { text: given.to_owned() }));
    }

    #[test]
    fn empty_auto_and_huge_languages_are_refused() {
        assert_eq!(Lang::new(""), Err(LangError::Empty));
        assert_eq!(Lang::new("auto"), Err(LangError::Auto));
        let huge = "a".repeat(10 * 1024 * 1024);
        assert_eq!(Lang::new(&huge), Err(LangError::TooLong { bytes: huge.len() }));
        let Err(LangError::Malformed { text }) = huge.parse::<LangPair>() else { panic!() };
        assert!(text.len() < 64, "the error does not repeat a huge text");
    }

    #[rstest]
    #[case("zh:en", "zh:en")]
    #[case("*:en-US", "*:en-US *:en")]
    #[case("zh-CN:en-US", "zh-CN:en-US zh-CN:en zh:en-US zh:en")]
    #[case("zh-Hant-TW:en", "zh-Hant-TW:en zh-Hant:en zh:en")]
    #[case("de-x-abc:en", "de-x-abc:en de:en")]
    fn a_lookup_removes_subtags_from_the_end(#[case] asked: &str, #[case] served: &str) {
        let pairs = asked.parse::<LangPair>().unwrap().lookups();
        assert_eq!(pairs.map(|pair| pair.to_string()).collect::<Vec<_>>().join(" "), served);
    }

    #[test]
    fn a_lookup_is_bounded() {
        let long = Lang::new("aa-b1-c1-d1-e1-f1-g1-h1").unwrap();
        assert_eq!(LangPair::known(long, long).lookups().count(), 16);
    }

    #[test]
    fn a_pair_is_directed_and_reads_back() {
        let pair: LangPair = "zh:en".parse().unwrap();
        assert_ne!(pair, "en:zh".parse().unwrap());
        assert_eq!(pair.to_string(), "zh:en");
        assert_eq!("auto:en".parse::<LangPair>().unwrap().to_string(), "*:en");
        assert_eq!("*:en".parse::<LangPair>().unwrap().src, Source::Auto);
        assert_eq!("zh:auto".parse::<LangPair>(), Err(LangError::Auto));
    }
}
