//! Dispatch bodies: their defaults, and how a faulty one is refused.

use lingua_core::job::{JobSpec, Payload};
use lingua_core::{JobId, Needs, Service, ServiceSet, Source};
use lingua_wire::client::Dispatch;
use lingua_wire::{ErrorCode, RequestError, parse};
use rstest::rstest;
use serde_json::json;

fn spec(body: &serde_json::Value) -> Result<JobSpec, RequestError> {
    parse::<Dispatch<'_>>(body.to_string().as_bytes())?.into_spec(JobId::new(0xAB))
}

fn with(field: &str, value: serde_json::Value) -> Result<JobSpec, RequestError> {
    let mut body = json!({"src_lang": "en", "tgt_lang": "zh", "audio_ref": "blob://one"});
    body[field] = value;
    spec(&body)
}

fn with_option(field: &str, value: serde_json::Value) -> Result<JobSpec, RequestError> {
    with("options", json!({ field: value }))
}

#[test]
fn fields_that_are_left_out_get_their_defaults() {
    let body = json!({"src_lang": "AUTO", "tgt_lang": "zh_CN", "text": "你好", "options": null});
    let expected = JobSpec {
        session: "none".into(),
        trace: "000000000000000000000000000000ab".into(),
        needs: Needs { asr: false, ..Needs::SPEECH_TO_TEXT },
        ..JobSpec::new("auto:zh-CN".parse().unwrap(), Payload::Text("你好".into()))
    };
    assert_eq!(spec(&body).unwrap(), expected);
}

#[test]
fn null_means_left_out() {
    let body = json!({"session_id": null, "src_lang": "en", "tgt_lang": "zh", "audio": null,
        "text": null, "audio_ref": "blob://one", "trace_id": null, "options": {
            "require_tts": null, "preferred_node_id": null, "strict": null,
            "exclude_node_ids": null, "bind_key": null, "wait_ms": null, "deadline_ms": null,
            "priority": null, "services": null}});
    let left_out = json!({"src_lang": "en", "tgt_lang": "zh", "audio_ref": "blob://one"});
    assert_eq!(spec(&body).unwrap(), spec(&left_out).unwrap());
}

#[test]
fn a_question_about_a_job_needs_no_payload() {
    let explain = |body: serde_json::Value| {
        parse::<Dispatch<'_>>(body.to_string().as_bytes())?.into_explain_spec()
    };
    let speech = explain(json!({"src_lang": "zh", "tgt_lang": "en"})).unwrap();
    assert_eq!((speech.needs, speech.payload), (Needs::SPEECH_TO_TEXT, Payload::Absent));
    let text =
        json!({"src_lang": "zh", "tgt_lang": "en", "text": "", "options": {"services": ["tts"]}});
    let extra = ServiceSet::EMPTY.with(Service::Tts);
    assert_eq!(
        explain(text).unwrap().needs,
        Needs { asr: false, extra, ..Needs::SPEECH_TO_SPEECH }
    );
    assert_eq!(explain(json!({"tgt_lang": "en"})).unwrap_err().field, "src_lang");
    let formless = json!({"src_lang": "zh", "tgt_lang": "en", "audio": {}});
    assert_eq!(explain(formless).unwrap_err().field, "audio.format");
}

#[test]
fn a_two_way_job_has_one_pair_for_both_directions() {
    let two_way = |src: &str, langs: serde_json::Value| {
        spec(&json!({"src_lang": src, "tgt_lang": "en", "text": "a", "two_way": langs}))
    };
    let both = two_way("auto", json!(["zh", "en"])).unwrap();
    assert_eq!((both.two_way, both.pair, both.source()), (true, pair("zh:en"), Source::Auto));
    for (src, langs) in
        [("zh", json!(["zh", "en"])), ("auto", json!(["zh"])), ("auto", json!(["zh", "de"]))]
    {
        assert_eq!(two_way(src, langs).unwrap_err().field, "two_way");
    }
}

fn pair(pair: &str) -> lingua_core::LangPair {
    pair.parse().expect("a pair")
}

#[test]
fn inline_audio_is_decoded_with_or_without_padding() {
    for data in ["AAECAw==", "AAECAw"] {
        let audio = json!({"format": "pcm16", "sample_rate": 16000, "data": data});
        let spec = spec(&json!({"src_lang": "en", "tgt_lang": "zh", "audio": audio})).unwrap();
        let (format, data) = ("pcm16".into(), vec![0, 1, 2, 3].into());
        assert_eq!(spec.payload, Payload::Audio { format, sample_rate: Some(16_000), data });
        assert!(spec.needs.asr);
    }
}

#[rstest]
#[case(json!({}), "audio_ref")]
#[case(json!({"audio_ref": "blob://a", "text": "a"}), "text")]
#[case(json!({"audio_ref": "blob://a", "audio": {"format": "opus", "data": "AAAA"}}), "audio")]
#[case(json!({"text": "a", "audio": {"format": "opus", "data": "AAAA"}}), "text")]
#[case(json!({"audio_ref": ""}), "audio_ref")]
#[case(json!({"audio_ref": "a".repeat(2049)}), "audio_ref")]
#[case(json!({"text": ""}), "text")]
#[case(json!({"text": " \n"}), "text")]
#[case(json!({"text": "语".repeat(5462)}), "text")]
#[case(json!({"audio": {"format": "opus"}}), "audio")]
#[case(json!({"audio": {"format": "opus", "bytes": 3}}), "audio.data")]
#[case(json!({"audio": {"format": "opus", "data": ""}}), "audio.data")]
#[case(json!({"audio": {"format": "opus", "data": "?"}}), "audio.data")]
#[case(json!({"audio": {"data": "AAAA"}}), "audio.format")]
#[case(json!({"audio": {"format": "", "data": "AAAA"}}), "audio.format")]
#[case(json!({"audio": {"format": "f".repeat(33), "data": "AAAA"}}), "audio.format")]
#[case(json!({"audio": {"format": "pcm16", "data": "AAAA"}}), "audio.sample_rate")]
#[case(json!({"audio": {"format": "wav", "sample_rate": 0, "data": "AA"}}), "audio.sample_rate")]
#[case(json!({"audio": {"format": "pcm16", "sample_rate": 9e9, "data": "AAAA"}}),
       "audio.sample_rate")]
fn a_job_has_exactly_one_payload_within_bounds(
    #[case] payload: serde_json::Value,
    #[case] field: &str,
) {
    let mut body = json!({"src_lang": "en", "tgt_lang": "zh"});
    body.as_object_mut().unwrap().extend(payload.as_object().unwrap().clone());
    let error = spec(&body).unwrap_err();
    assert_eq!((error.code, error.field.as_str()), (ErrorCode::InvalidRequest, field), "{error}");
}

#[test]
fn audio_beyond_the_bound_is_too_large() {
    let audio = |bytes: usize| {
        let data = "AAAA".repeat(bytes.div_ceil(3));
        let audio = json!({"format": "opus", "data": data});
        spec(&json!({"src_lang": "en", "tgt_lang": "zh", "audio": audio}))
    };
    assert!(audio(2 * 1024 * 1024 - 2).is_ok());
    for bytes in [2 * 1024 * 1024 + 1, 2 * 1024 * 1024 + 6, 8 * 1024 * 1024] {
        let error = audio(bytes).unwrap_err();
        assert_eq!((error.code, error.field.as_str()), (ErrorCode::PayloadTooLarge, "audio.data"));
    }
}

#[rstest]
#[case("src_lang", json!("klingon"))]
#[case("src_lang", json!(""))]
#[case("src_lang", json!("*"))]
#[case("tgt_lang", json!("auto"))]
#[case("tgt_lang", json!("zh en"))]
fn a_bad_language_is_named(#[case] field: &str, #[case] value: serde_json::Value) {
    let error = with(field, value).unwrap_err();
    assert_eq!((error.code, error.field.as_str()), (ErrorCode::InvalidLanguage, field), "{error}");
}

#[rstest]
#[case("session_id", json!("s".repeat(129)))]
#[case("session_id", json!(""))]
#[case("session_id", json!("a\nb"))]
#[case("session_id", json!(888))]
#[case("trace_id", json!("语".repeat(43)))]
#[case("src_lang", json!(null))]
#[case("tgt_lang", json!(["zh"]))]
#[case("options", json!("fast"))]
#[case("options", json!(7))]
fn a_bad_field_is_named(#[case] field: &str, #[case] value: serde_json::Value) {
    let error = with(field, value).unwrap_err();
    assert_eq!((error.code, error.field.as_str()), (ErrorCode::InvalidRequest, field), "{error}");
}

#[rstest]
#[case("require_tts", json!("yes"), "")]
#[case("strict", json!(1), "")]
#[case("preferred_node_id", json!("a/b"), "")]
#[case("preferred_node_id", json!(""), "")]
#[case("exclude_node_ids", json!("node-1"), "")]
#[case("exclude_node_ids", json!(["node-1", "?"]), "[1]")]
#[case("bind_key", json!("k".repeat(129)), "")]
#[case("bind_key", json!(""), "")]
#[case("wait_ms", json!(-1), "")]
#[case("wait_ms", json!(600_001), "")]
#[case("wait_ms", json!(0.5), "")]
#[case("deadline_ms", json!(0), "")]
#[case("deadline_ms", json!(3_600_001), "")]
#[case("priority", json!(101), "")]
#[case("priority", json!(-101), "")]
#[case("priority", json!(i64::MIN), "")]
#[case("priority", json!("high"), "")]
#[case("services", json!(["vision"]), "[0]")]
#[case("services", json!("tone"), "")]
fn a_bad_option_is_named(
    #[case] field: &str,
    #[case] value: serde_json::Value,
    #[case] place: &str,
) {
    let error = with_option(field, value).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidRequest);
    assert_eq!(error.field, format!("options.{field}{place}"), "{error}");
}

#[test]
fn the_bounds_of_the_options_are_inclusive() {
    for (field, value) in [
        ("wait_ms", json!(0)),
        ("wait_ms", json!(600_000)),
        ("deadline_ms", json!(1)),
        ("deadline_ms", json!(3_600_000)),
        ("priority", json!(100)),
        ("priority", json!(-100)),
        ("bind_key", json!("k".repeat(128))),
        ("exclude_node_ids", json!(vec!["node-1"; 100])),
    ] {
        assert!(with_option(field, value).is_ok(), "{field}");
    }
    let error = with_option("exclude_node_ids", json!(vec!["node-1"; 101])).unwrap_err();
    assert!(error.field.starts_with("options.exclude_node_ids"), "{error}");
    assert!(error.detail.contains("more than 100 entries"), "{error}");
}

#[rstest]
#[case(r#"{"src_lang":"zh","tgt_lang":"en","text":"x","context":"said \", expected"}"#, "context")]
#[case(r#"{"src_lang":"zh","tgt_lang":"en","audio":"said"}"#, "audio")]
#[case(r#"{"src_lang":"zh","tgt_lang":"en","text":"x","options":"said"}"#, "options")]
#[case(r#"{"src_lang":"zh","tgt_lang":"en","text":"x","options":{"wait_ms":"said"}}"#, "wait_ms")]
fn a_text_in_the_wrong_place_is_not_repeated(#[case] body: &str, #[case] field: &str) {
    let error = parse::<Dispatch<'_>>(body.as_bytes()).unwrap_err();
    assert!(error.detail.contains(field) && !error.detail.contains("said"), "{error}");
    assert!(error.detail.contains("invalid type: a string, expected"), "{error}");
}

#[rstest]
#[case(b"", "not JSON")]
#[case(b"{", "not JSON")]
#[case(b"{\"src_lang\":\"zh\",\"tgt_lang\":\"en\"} {}", "not JSON")]
#[case(b"hello", "not JSON")]
#[case(b" []", "send one JSON object")]
#[case(b"[\"room\",\"zh\",\"en\"]", "send one JSON object")]
#[case(b"null", "invalid type: null")]
#[case(b"7", "invalid type: integer")]
#[case(b"{\"src_lang\":\"\xff\"}", "not UTF-8")]
fn a_body_that_is_no_object_is_refused(#[case] body: &[u8], #[case] what: &str) {
    let error = parse::<Dispatch<'_>>(body).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidRequest);
    assert!(error.detail.contains(what), "{error}");
}
