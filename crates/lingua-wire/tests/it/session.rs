//! `session_start` becomes a plan, or names the field that is wrong.

use lingua_core::session::{AudioEncoding, Direction, SessionPlan, Speaker};
use lingua_core::{Lang, Source};
use lingua_wire::session::{SessionRequest, parse_speaker};
use lingua_wire::{ErrorCode, RequestError};
use rstest::rstest;
use serde_json::{Value, json};

fn plan(mut start: Value) -> Result<SessionPlan, RequestError> {
    start["type"] = "session_start".into();
    match SessionRequest::parse(&start.to_string())? {
        SessionRequest::Start(start) => start.into_plan(),
        other => panic!("{other:?}"),
    }
}

fn lang(tag: &str) -> Lang {
    Lang::new(tag).expect("a language")
}

#[test]
fn languages_are_canonical_and_defaults_are_filled_in() {
    let plan = plan(json!({"src_lang": "eng", "tgt_lang": "zh_CN"})).expect("a plan");
    let (src, tgt) = (Source::Known(lang("en")), lang("zh-CN"));
    assert_eq!(plan.direction, Direction::OneWay { src, tgt });
    assert_eq!(plan.audio, AudioEncoding::Pcm16 { sample_rate: 16_000 });
    assert!(!plan.require_tts && !plan.partials && !plan.context);
    assert_eq!(parse_speaker(None, plan.direction), Ok(None));
    assert!(parse_speaker(Some("a"), plan.direction).is_err(), "there is one speaker");
}

#[test]
fn a_two_way_session_names_its_speakers() {
    let plan = plan(json!({
        "mode": "two_way", "lang_a": "zh", "lang_b": "en", "audio": {"format": "opus"},
    }))
    .expect("a plan");
    assert_eq!(plan.direction, Direction::TwoWay { a: lang("zh"), b: lang("en") });
    assert_eq!(plan.audio, AudioEncoding::Opus);
    assert_eq!(parse_speaker(Some("b"), plan.direction), Ok(Some(Speaker::B)));
    assert!(parse_speaker(Some("c"), plan.direction).is_err());
}

#[rstest]
#[case(json!({}), "src_lang")]
#[case(json!({"src_lang": "en"}), "tgt_lang")]
#[case(json!({"mode": "two_way", "lang_a": "en"}), "lang_b")]
#[case(json!({"mode": "two_way", "lang_a": "en", "lang_b": "eng"}), "lang_b")]
#[case(json!({"mode": "three_way"}), "mode")]
#[case(json!({"src_lang": "en", "tgt_lang": "es", "audio": {"format": "mp3"}}), "audio.format")]
#[case(
    json!({"src_lang": "en", "tgt_lang": "es", "audio": {"format": "pcm16",
        "sample_rate": 44_100}}),
    "audio.sample_rate"
)]
fn an_error_names_the_field(#[case] start: Value, #[case] field: &str) {
    let error = plan(start).unwrap_err();
    assert_eq!((error.field.as_str(), error.code), (field, ErrorCode::InvalidRequest), "{error}");
}

#[test]
fn a_malformed_language_has_an_error_code_of_its_own() {
    let error = plan(json!({"src_lang": "en", "tgt_lang": "x!"})).unwrap_err();
    assert_eq!((error.field.as_str(), error.code), ("tgt_lang", ErrorCode::InvalidLanguage));
    let auto = plan(json!({"mode": "two_way", "lang_a": "auto", "lang_b": "en"})).unwrap_err();
    assert_eq!(auto.field, "lang_a", "{auto}");
}

#[test]
fn texts_are_bounded_by_their_bytes_in_any_script() {
    for letter in ["语", "م", "👩‍👩‍👧‍👦", "x"] {
        let fits = letter.repeat(16 * 1024 / letter.len());
        let text = |text: &str| json!({"type": "text", "text": text}).to_string();
        assert!(SessionRequest::parse(&text(&fits)).is_ok());
        let error = SessionRequest::parse(&text(&(fits + letter))).unwrap_err();
        assert_eq!(error.field, "text", "{error}");
    }
}
