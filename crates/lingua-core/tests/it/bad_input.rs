//! Bad input of nodes, and the errors that they get.

use lingua_core::capability::{LANGS_MAX, NMT_PAIRS_MAX};
use lingua_core::{Capabilities, CapabilityError, Lang, LangSet, Nmt, Service, ServiceSet};
use rstest::rstest;

use crate::fixture::{caps, langs};

#[rstest]
#[case::asr("", "zh", "zh", "ASR_LANGUAGES_REQUIRED")]
#[case::semantic("zh", "", "zh", "SEMANTIC_LANGUAGES_REQUIRED")]
#[case::tts("zh", "zh", "", "TTS_LANGUAGES_REQUIRED")]
fn an_empty_list_is_refused_by_name(
    #[case] asr: &str,
    #[case] semantic: &str,
    #[case] tts: &str,
    #[case] code: &str,
) {
    let error = caps(asr, semantic, tts, "*").unwrap_err();
    assert_eq!(error.code(), code);
    assert!(error.to_string().contains("list is empty"), "{error}");
}

fn invented_langs(count: usize) -> LangSet {
    let letter = |n: usize| char::from(b'a' + (n % 26) as u8);
    let tag = |n: usize| [letter(n / 676), letter(n / 26), letter(n)].iter().collect::<String>();
    (0..count).map(|n| Lang::new(&tag(n)).expect("three letters")).collect()
}

#[test]
fn ten_thousand_languages_are_refused() {
    let many = invented_langs(10_000);
    let error = Capabilities::new(langs("zh"), many, langs("zh"), Nmt::AnyToAny, ServiceSet::ALL)
        .unwrap_err();
    assert_eq!(
        error,
        CapabilityError::TooMany { list: Service::Semantic, count: 10_000, max: LANGS_MAX }
    );
    assert_eq!(error.code(), "INVALID_REQUEST");
    let most = invented_langs(LANGS_MAX);
    assert!(
        Capabilities::new(most.clone(), most.clone(), most, Nmt::AnyToAny, ServiceSet::ALL).is_ok()
    );
}

#[test]
fn too_many_translation_pairs_are_refused() {
    let langs = invented_langs(200);
    let all = || langs.as_slice().iter();
    let pairs = Nmt::pairs(all().flat_map(|&src| all().map(move |&tgt| (src, tgt))));
    let error =
        Capabilities::new(langs.clone(), langs.clone(), langs.clone(), pairs, ServiceSet::ALL);
    assert_eq!(
        error,
        Err(CapabilityError::TooMany { list: Service::Nmt, count: 40_000, max: NMT_PAIRS_MAX })
    );
}

#[test]
fn repeated_languages_count_once() {
    assert_eq!(langs("zh en zh EN zh"), langs("en zh"));
}
