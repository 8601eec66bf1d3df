//! What nodes may get wrong.

use lingua_wire::message::parse;
use lingua_wire::node::{Heartbeat, JobAck, JobDone, JobFail, JobPartial, Offline, Register};
use lingua_wire::{ErrorCode, RequestError};
use rstest::rstest;
use serde_json::json;

const JOB: &str = "job-01921f3e000070008000000000000001";

fn register_with(field: &str, value: serde_json::Value) -> RequestError {
    let mut body = json!({"semantic_langs": ["zh"], "tts_langs": ["en"]});
    body[field] = value;
    let parsed = parse::<Register>(body.to_string().as_bytes());
    parsed.and_then(Register::into_parts).expect_err("a bad field")
}

#[rstest]
#[case(json!(0), "0")]
#[case(json!(-1), "-1")]
#[case(json!(2.5), "2.5")]
#[case(json!(1025), "1025")]
#[case(json!(u64::MAX), "18446744073709551615")]
#[case(json!(1e300), "1e+300")]
#[case(json!("4"), "a string")]
#[case(json!([4]), "sequence")]
#[case(json!(true), "true")]
fn absurd_slots_are_refused_with_field_and_value(
    #[case] value: serde_json::Value,
    #[case] shown: &str,
) {
    let error = register_with("max_concurrent_jobs", value);
    assert_eq!(error.code, ErrorCode::InvalidRequest);
    assert_eq!(error.field, "max_concurrent_jobs");
    assert!(error.detail.contains(shown), "{error}");
}

#[rstest]
#[case("node_id", json!(""))]
#[case("node_id", json!("a b"))]
#[case("node_id", json!("节点"))]
#[case("node_id", json!("n".repeat(129)))]
#[case("node_id", json!(7))]
#[case("version", json!("v".repeat(65)))]
#[case("version", json!("3\n0"))]
#[case("version", json!(3))]
#[case("health", json!("great"))]
#[case("health", json!("READY"))]
#[case("health", json!("x".repeat(1_000_000)))]
#[case("accept_public_jobs", json!("yes"))]
#[case("services", json!("asr"))]
#[case("services", json!(7))]
#[case("asr_langs", json!("zh"))]
#[case("nmt_pairs", json!({"zh": "en"}))]
#[case("language_capabilities", json!("zh"))]
fn a_bad_field_is_named_in_a_short_message(#[case] field: &str, #[case] value: serde_json::Value) {
    let error = register_with(field, value);
    assert_eq!(error.code, ErrorCode::InvalidRequest, "{error}");
    assert_eq!(error.field, field, "{error}");
    assert!(error.detail.len() < 2000);
}

#[rstest]
#[case("asr_langs", json!(["zh", "??"]), "asr_langs[1]")]
#[case("tts_langs", json!(["auto"]), "tts_langs[0]")]
#[case("nmt_pairs", json!([["zh", "en"], ["zh", "auto"]]), "nmt_pairs[1][1]")]
#[case("nmt_pairs", json!([["", "en"]]), "nmt_pairs[0][0]")]
#[case("language_capabilities", json!({"asr_languages": [""]}),
       "language_capabilities.asr_languages[0]")]
#[case("language_capabilities", json!({"asr_languages": ["zh"], "nmt_pairs": [["x", "en"]]}),
       "language_capabilities.nmt_pairs[0][0]")]
fn a_bad_language_in_a_list_is_named_with_its_place(
    #[case] field: &str,
    #[case] value: serde_json::Value,
    #[case] place: &str,
) {
    let error = register_with(field, value);
    assert_eq!(error.code, ErrorCode::InvalidLanguage, "{error}");
    assert_eq!(error.field, place);
}

#[rstest]
#[case(json!([["zh"]]), "nmt_pairs[0]")]
#[case(json!([["zh", "en", "fr"]]), "nmt_pairs[0]")]
#[case(json!(["zh:en"]), "nmt_pairs[0]")]
#[case(json!([[1, 2]]), "nmt_pairs[0][0]")]
fn a_pair_has_two_ends(#[case] value: serde_json::Value, #[case] place: &str) {
    let error = register_with("nmt_pairs", value);
    assert_eq!((error.code, error.field.as_str()), (ErrorCode::InvalidRequest, place), "{error}");
}

#[rstest]
#[case(json!({"current_load": {"cpu": 1.5}}), "current_load.cpu")]
#[case(json!({"current_load": {"gpu": -0.1}}), "current_load.gpu")]
#[case(json!({"current_load": {"memory": 1e300}}), "current_load.memory")]
#[case(json!({"current_load": {"cpu": "low"}}), "current_load.cpu")]
#[case(json!({"current_load": 0.5}), "current_load")]
#[case(json!({"epoch": -1}), "epoch")]
#[case(json!({"running": [{"job_id": JOB, "attempt_id": 1}, {"job_id": "job-1", "attempt_id": 1}]}),
       "running[1].job_id")]
#[case(json!({"running": [{"job_id": JOB, "attempt_id": 0}]}), "running[0].attempt_id")]
#[case(json!({"running": [{"job_id": JOB}]}), "running[0].attempt_id")]
#[case(json!({"running": {}}), "running")]
#[case(json!({"max_concurrent_jobs": -4}), "max_concurrent_jobs")]
fn a_bad_heartbeat_names_the_field(#[case] body: serde_json::Value, #[case] field: &str) {
    let text = body.to_string();
    let error = parse::<Heartbeat>(text.as_bytes())
        .and_then(|beat| beat.load(Default::default()))
        .unwrap_err();
    assert_eq!((error.code, error.field.as_str()), (ErrorCode::InvalidRequest, field), "{error}");
}

#[test]
fn too_many_running_jobs_are_refused() {
    let running = |count| {
        let text = json!({"running": vec![json!({"job_id": JOB, "attempt_id": 1}); count]});
        parse::<Heartbeat>(text.to_string().as_bytes())
    };
    assert_eq!(running(2048).unwrap().running.unwrap().len(), 2048);
    assert!(running(2049).unwrap_err().field.starts_with("running"));
}

#[test]
fn a_load_that_leaves_something_out_leaves_it_as_it_was() {
    let beat: Heartbeat = parse(br#"{"current_load":{"cpu":0.25}}"#).unwrap();
    let load = |cpu, gpu| lingua_core::Load::new(cpu, gpu, 0.0).unwrap();
    assert_eq!(beat.load(load(0.9, 0.7)), Ok(Some(load(0.25, 0.7))));
    assert_eq!(parse::<Heartbeat>(b"{}").unwrap().load(Default::default()), Ok(None));
}

#[test]
fn over_http_a_node_has_to_name_itself() {
    let ack = json!({"job_id": JOB, "attempt_id": 1}).to_string();
    let error = parse::<JobAck>(ack.as_bytes()).unwrap().node().unwrap_err().clone();
    assert_eq!((error.code, error.field.as_str()), (ErrorCode::InvalidRequest, "node_id"));
    assert_eq!(parse::<Heartbeat>(b"{}").unwrap().node().unwrap_err().field, "node_id");
    assert_eq!(parse::<Offline>(b"{}").unwrap_err().field, "node_id");
}

fn job_message(extra: serde_json::Value) -> Vec<u8> {
    let mut body = json!({"job_id": JOB, "attempt_id": 1});
    body.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
    body.to_string().into_bytes()
}

#[rstest]
#[case(json!({"job_id": 7}), "job_id")]
#[case(json!({"attempt_id": 0}), "attempt_id")]
#[case(json!({"attempt_id": 4_294_967_296_u64}), "attempt_id")]
#[case(json!({"attempt_id": "1"}), "attempt_id")]
#[case(json!({"status": "error"}), "status")]
#[case(json!({"result": "text"}), "result")]
#[case(json!({"result": []}), "result")]
#[case(json!({"fence": "new"}), "fence")]
fn a_bad_result_names_the_field(#[case] extra: serde_json::Value, #[case] field: &str) {
    let body = job_message(extra);
    let error = parse::<JobDone<'_>>(&body).unwrap_err();
    assert_eq!((error.code, error.field.as_str()), (ErrorCode::InvalidRequest, field), "{error}");
}

#[rstest]
#[case(json!({"tts_audio": {"bytes": 3_000_000, "format": "opus"}}), "result.tts_audio.bytes")]
#[case(json!({"tts_audio": {"bytes": 3, "format": "pcm16"}}), "result.tts_audio.sample_rate")]
#[case(json!({"tts_audio": {"format": "opus"}}), "result.tts_audio")]
#[case(json!({"tts_audio": {"bytes": 3, "data": "AAEC", "format": "opus"}}), "result.tts_audio")]
#[case(json!({"tts_audio": {"bytes": -3, "format": "opus"}}), "result.tts_audio.bytes")]
#[case(json!({"tts_audio": {"bytes": 3}}), "result.tts_audio.format")]
#[case(json!({"text_asr": 7}), "result.text_asr")]
fn a_result_that_cannot_be_understood_is_named(
    #[case] result: serde_json::Value,
    #[case] field: &str,
) {
    let body = job_message(json!({ "result": result }));
    let done: JobDone<'_> = parse(&body).unwrap();
    assert_eq!(done.result().unwrap_err().field, field);
}

#[test]
fn an_impossible_job_id_is_not_found() {
    for job_id in ["", "job-abc", "job-does-not-exist", "任务"] {
        let body = job_message(json!({ "job_id": job_id }));
        let error = parse::<JobAck>(&body).unwrap_err();
        assert_eq!((error.code, error.field.as_str()), (ErrorCode::JobNotFound, "job_id"));
    }
}

#[test]
fn a_failure_has_a_reason_of_bounded_length() {
    let fail = |extra| {
        let body = job_message(extra);
        parse::<JobFail<'_>>(&body).map(|fail| fail.is_retryable())
    };
    assert_eq!(fail(json!({"reason": "BUSY"})), Ok(true));
    assert_eq!(fail(json!({"reason": "STALE_FENCE"})), Ok(true));
    assert_eq!(fail(json!({"reason": "OOM", "retryable": false})), Ok(false));
    for extra in [json!({}), json!({"reason": "r".repeat(129)}), json!({"reason": ""})] {
        assert_eq!(fail(extra).unwrap_err().field, "reason");
    }
    let detail = json!({"reason": "OOM", "detail": "d".repeat(100_000)});
    assert_eq!(fail(detail).unwrap_err().field, "detail");
}

#[test]
fn a_partial_text_is_bounded_and_may_be_chinese() {
    let partial = |text: String| {
        let body = job_message(json!({ "text": text }));
        parse::<JobPartial<'_>>(&body).map(|partial| partial.text.len())
    };
    assert_eq!(partial("语".repeat(5461)), Ok(16_383));
    assert_eq!(partial("语".repeat(5462)).unwrap_err().field, "text");
}
