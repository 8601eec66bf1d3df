use super::*;
use crate::node::Sound;
use lingua_core::{Attempt, JobId};
use lingua_wire::node::NodeMessage;

const JOB: JobRef = JobRef { job_id: JobId::new(7), attempt_id: Attempt::FIRST };

fn failure_of(outcome: Result<Output, Failure>) -> (String, String) {
    let (frames, success) = finished(JOB, Fence(1), outcome);
    assert!(!success && frames.audio.is_none());
    let Ok(NodeMessage::JobFail(fail)) = NodeMessage::parse(&frames.text) else {
        panic!("not a failure: {}", frames.text)
    };
    (fail.reason.into_owned(), fail.detail.unwrap_or_default().into_owned())
}

#[test]
fn an_output_beyond_the_bounds_fails_instead_of_breaking_the_connection() {
    let huge = Sound::pcm16(16_000, vec![0; AUDIO_BYTES_MAX + 1]);
    let (reason, detail) = failure_of(Ok(Output::default().with_speech(huge)));
    assert_eq!(reason, Failure::BAD_OUTPUT);
    assert!(detail.contains("2097153"), "{detail}");
    let long = "x".repeat(RESULT_BYTES_MAX);
    assert_eq!(failure_of(Ok(Output::translated(long))).0, Failure::BAD_OUTPUT);
    let rate = Sound { format: "pcm16".into(), sample_rate: None, bytes: Bytes::new() };
    assert_eq!(failure_of(Ok(Output::default().with_speech(rate))).0, Failure::BAD_OUTPUT);
}

#[test]
fn a_reason_that_cannot_be_sent_is_replaced() {
    for reason in ["", "two\nlines", &"x".repeat(1000)] {
        assert_eq!(failure_of(Err(Failure::retryable(reason))).0, Failure::UNNAMED);
    }
}

#[test]
fn extra_fields_do_not_replace_known_ones() {
    let output = Output::translated("yes")
        .with_extra("text_translated", "no")
        .with_extra("tts_audio", "no")
        .with_extra("model", "m1");
    let json = result_json(output).unwrap();
    assert_eq!(json.as_str(), r#"{"text_translated":"yes","model":"m1"}"#);
}
