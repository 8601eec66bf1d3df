//! Frames of a node's socket.

use std::borrow::Cow;

use lingua_core::Attempt;
use lingua_wire::node::{JobDone, JobResult, NodeMessage, embed_audio};
use lingua_wire::scheduler::{JobConfirmed, SchedulerMessage};
use lingua_wire::{ErrorCode, RawJson};
use rstest::rstest;

use crate::values::{JOB, raw};

#[rstest]
#[case(r#"{"type":"bye"}"#)]
#[case(r#"{ "type" : "bye" }"#)]
#[case(r#"{"reason":null,"type":"bye"}"#)]
#[case(r#"{"type":"bye"}  "#)]
#[case(r#"{"ty\u0070e":"bye"}"#)]
#[case(r#"{"x":{"type":"register"},"type":"bye"}"#)]
fn the_type_is_found_wherever_it_stands(#[case] text: &str) {
    assert!(matches!(NodeMessage::parse(text), Ok(NodeMessage::Bye(_))), "{text}");
}

#[rstest]
#[case("{}", "type")]
#[case(r#"{"type":7}"#, "type")]
#[case(r#"{"type":"job_assign"}"#, "type")]
#[case(r#"{"type":"b\u0079e"}"#, "type")]
#[case(r#"{"type":"ByE"}"#, "type")]
#[case(r#"{"type":"job_ack"}"#, "job_id")]
#[case(r#"{"type":"bye""#, "")]
#[case(r#"{"type":"bye"#, "")]
#[case("", "")]
fn a_bad_frame_is_refused(#[case] text: &str, #[case] field: &str) {
    let error = NodeMessage::parse(text).unwrap_err();
    assert_eq!((error.code, error.field.as_str()), (ErrorCode::InvalidRequest, field), "{error}");
}

#[test]
fn frames_read_back_as_they_were_written() {
    let confirmed = JobConfirmed { job_id: JOB, attempt_id: Attempt(3), accepted: false };
    let frame = SchedulerMessage::JobConfirmed(confirmed);
    assert!(frame.to_json().starts_with(r#"{"type":"job_confirmed","job_id":"job-"#));
    assert_eq!(SchedulerMessage::parse(&frame.to_json()).unwrap(), frame);

    let result = raw(r#"{"text_translated":"ok","extra":{"a":[1, 2]}}"#);
    let done = JobDone {
        job_id: JOB,
        attempt_id: Attempt(1),
        node_id: None,
        fence: None,
        status: None,
        result: Some(result.clone()),
    };
    let frame = NodeMessage::JobDone(done);
    let text = frame.to_json();
    assert_eq!(NodeMessage::parse(&text).unwrap(), frame);
    assert!(text.contains(result.as_str()), "a result is passed on byte by byte");
}

#[test]
fn plain_texts_are_borrowed_from_the_frame() {
    let text = format!(r#"{{"type":"job_partial","job_id":"{JOB}","attempt_id":1,"text":"你好"}}"#);
    let Ok(NodeMessage::JobPartial(partial)) = NodeMessage::parse(&text) else {
        panic!("a partial text");
    };
    assert!(matches!(partial.text, Cow::Borrowed("你好")));
    let result = raw(r#"{"text_asr":"a","text_translated":"b\n"}"#);
    let result = JobResult::read(&result).unwrap();
    assert!(matches!(result.text_asr, Some(Cow::Borrowed("a"))));
    assert_eq!(result.text_translated.as_deref(), Some("b\n"));
}

#[test]
fn audio_of_a_frame_is_put_into_its_result_and_nothing_else_changes() {
    let announced = raw(concat!(
        r#"{"x":{"b":1,"a":2.50},"text_translated":"你好","#,
        r#""tts_audio":{"bytes":3,"format":"opus"}}"#
    ));
    assert_eq!(JobResult::read(&announced).unwrap().frame_bytes(), Some(3));
    let embedded = embed_audio(&announced, &[0, 1, 2]).unwrap();
    assert!(embedded.as_str().contains(r#""x":{"b":1,"a":2.50}"#));
    let result = JobResult::read(&embedded).unwrap();
    assert_eq!(result.text_translated.as_deref(), Some("你好"));
    assert_eq!(result.frame_bytes(), None);
    assert_eq!(result.tts_audio.unwrap().decode("tts_audio").unwrap(), [0, 1, 2]);
}

#[test]
fn a_frame_of_another_length_than_announced_is_refused() {
    let announced = raw(r#"{"tts_audio":{"bytes":3,"format":"opus"}}"#);
    let error = embed_audio(&announced, &[0, 1]).unwrap_err();
    assert!(error.detail.contains("2 bytes, but 3 were announced"), "{error}");
    assert_eq!(embed_audio(&raw("{}"), &[]).unwrap_err().field, "result.tts_audio");
}

#[test]
fn raw_json_must_be_json() {
    assert!(RawJson::new("{\"a\":1}".to_owned()).unwrap().is_object());
    assert_eq!(RawJson::new("{".to_owned()).unwrap_err().code, ErrorCode::InvalidRequest);
}
