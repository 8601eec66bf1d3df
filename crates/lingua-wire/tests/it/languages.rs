//! Any spelling of a language is that language.

use lingua_core::Source;
use lingua_wire::ErrorCode;
use lingua_wire::lang::{language, pool, source};
use proptest::prelude::*;
use rstest::rstest;

#[rstest]
#[case("zh", "zh")]
#[case("ZH", "zh")]
#[case("zh_CN", "zh-CN")]
#[case("zh-cn", "zh-CN")]
#[case("ZH-hans", "zh-Hans")]
#[case("zh_hant_tw", "zh-Hant-TW")]
#[case("eng", "en")]
#[case("ENG", "en")]
#[case("cmn", "zh")]
#[case("cmn-Hans-CN", "zh-Hans-CN")]
#[case("zho", "zh")]
#[case("chi", "zh")]
#[case("ger", "de")]
#[case("iw", "he")]
#[case("tl", "fil")]
#[case("yue", "yue")]
#[case("pt_br", "pt-BR")]
#[case("en-UK", "en-GB")]
#[case("es-419", "es-419")]
#[case("en-840", "en-US")]
#[case("ca-valencia", "ca-valencia")]
#[case("en-US-u-hc-h12", "en-US")]
#[case("zh-x-sichuan", "zh-x-sichuan")]
#[case("ja-Latn-hepburn", "ja-Latn-hepburn")]
fn spellings_of_a_language_are_one_language(#[case] given: &str, #[case] canonical: &str) {
    assert_eq!(language("f", given).unwrap().as_str(), canonical);
    assert_eq!(language("f", canonical).unwrap().as_str(), canonical);
}

#[rstest]
#[case("")]
#[case("auto")]
#[case("AUTO")]
#[case("z")]
#[case("*")]
#[case("und")]
#[case("中文")]
#[case("zh--CN")]
#[case("zh-")]
#[case(" zh")]
#[case("zh CN")]
#[case("zh:en")]
#[case("english")]
#[case("en-usa")]
#[case("x-private")]
#[case("zh_CN.UTF-8")]
#[case("de-Latn-CH-1996-baseliti")]
#[case("z\0")]
fn a_value_that_is_no_language_is_refused_with_its_field(#[case] given: &str) {
    let error = language("tgt_lang", given).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidLanguage);
    assert_eq!(error.field, "tgt_lang");
    assert!(error.detail.starts_with("tgt_lang: "), "{error}");
    assert!(error.detail.contains(&format!("{given:?}")), "{error}");
}

#[test]
fn a_huge_language_is_refused_with_a_short_message() {
    for huge in ["z".repeat(10_000_000), "语".repeat(1_000_000), "zh-".repeat(1_000_000)] {
        let error = language("src_lang", &huge).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidLanguage);
        assert!(error.detail.len() < 1000);
    }
}

#[test]
fn auto_is_a_source_and_nothing_else() {
    assert_eq!(source("src_lang", "auto").unwrap(), Source::Auto);
    assert_eq!(source("src_lang", "Auto").unwrap(), Source::Auto);
    assert_eq!(source("src_lang", "*").unwrap_err().code, ErrorCode::InvalidLanguage);
    let error = language("tgt_lang", "auto").unwrap_err();
    assert!(error.detail.contains("only allowed as the source"), "{error}");
}

#[rstest]
#[case("zh:en", "zh:en")]
#[case("cmn:eng", "zh:en")]
#[case("*:zh_CN", "*:zh-CN")]
#[case("auto:en", "*:en")]
fn pools_are_named_in_any_spelling(#[case] given: &str, #[case] canonical: &str) {
    assert_eq!(pool("pool", given).unwrap().to_string(), canonical);
}

#[rstest]
#[case("zh")]
#[case("zh-en")]
#[case("zh:")]
#[case(":en")]
#[case("zh:*")]
#[case("zh:en:fr")]
fn what_is_no_pool_is_refused(#[case] given: &str) {
    assert_eq!(pool("pool", given).unwrap_err().code, ErrorCode::InvalidLanguage);
}

proptest! {
    #[test]
    fn a_canonical_language_stays_as_it_is(text in "[a-zA-Z]{2,3}([-_][a-zA-Z0-9]{2,8}){0,3}") {
        if let Ok(lang) = language("f", &text) {
            prop_assert_eq!(language("f", lang.as_str()).unwrap(), lang);
            prop_assert_eq!(language("f", &text.to_uppercase()).unwrap(), lang);
            prop_assert_eq!(language("f", &text.replace('-', "_")).unwrap(), lang);
        }
    }
}
