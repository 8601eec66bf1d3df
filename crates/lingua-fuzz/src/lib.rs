//! Every decoder of bytes that somebody else chose, as a function for a fuzzer.
//!
//! Start at [`TARGETS`]. `cargo xtask fuzz` looks for inputs that reach new code and keeps them in
//! `fuzz/corpus`; the tests here read all of them, and all golden files, again.
//!
//! Invariant: no input panics. What can be read is the same when it is written and read again.

use std::fmt::Debug;

use lingua_core::JobId;
use lingua_wire::audio::Audio;
use lingua_wire::client::Dispatch;
use lingua_wire::lang::{language, pool, source};
use lingua_wire::node::{
    Heartbeat, JobAck, JobDone, JobFail, JobPartial, NodeMessage, Offline, Register,
};
use lingua_wire::scheduler::{SchedulerMessage, TAG_BYTES, tag, untag};
use lingua_wire::session::{SessionRequest, SessionUpdate, parse_speaker};
use lingua_wire::view::JobView;
use lingua_wire::{RequestError, parse};

/// Reads bytes; panics if it finds a fault.
pub type Target = fn(&[u8]);

/// Every target with its name.
pub const TARGETS: [(&str, Target); 16] = [
    ("audio_frames", read_audio_frame),
    ("audio_lengths", lingua_engine::decoders::measure_audio),
    ("bus_messages", lingua_engine::decoders::read_bus_messages),
    ("client_messages", read_client_message),
    ("engine_records", lingua_engine::decoders::read_records),
    ("grants", lingua_server::decoders::read_grant),
    ("job_spec", lingua_engine::decoders::read_job_spec),
    ("journal_rows", lingua_store::embedded::read_journal_rows),
    ("language_tags", read_language_tag),
    ("node_messages", read_node_message),
    ("proxy_headers", lingua_server::decoders::read_proxy_header),
    ("redis_records", lingua_redis::decoders::read_records),
    ("request_parts", lingua_server::decoders::read_request_parts),
    ("scheduler_messages", read_scheduler_message),
    ("session_messages", read_session_message),
    ("voice", lingua_server::decoders::detect_voice),
];

/// The target with this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}

/// Checks that a message is the same after it was written.
fn assert_same<T: PartialEq + Debug>(read: &T, again: Result<T, RequestError>) {
    match again {
        Ok(again) => assert_eq!(*read, again),
        Err(error) => panic!("{read:?} cannot be read again: {}", error.detail),
    }
}

/// A message of a node: as a frame, and as the body of each route.
fn read_node_message(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(message) = NodeMessage::parse(&text) {
        let json = message.to_json();
        assert_same(&message, NodeMessage::parse(&json));
        if let NodeMessage::Register(register) = message {
            register.into_parts().ok();
        } else if let NodeMessage::JobDone(done) = message {
            let audio = done.result().ok().flatten().and_then(|result| result.tts_audio);
            audio.map(|audio| audio.decode("audio"));
        }
    }
    parse::<Register>(input).and_then(Register::into_parts).ok();
    if let Ok(heartbeat) = parse::<Heartbeat>(input) {
        heartbeat.node().ok();
        heartbeat.load(Default::default()).ok();
    }
    parse::<Offline>(input).ok();
    parse::<JobAck>(input).ok();
    parse::<JobPartial<'_>>(input).ok();
    parse::<JobFail<'_>>(input).ok();
    parse::<JobDone<'_>>(input).and_then(|done| done.result().map(|_| ())).ok();
}

/// The body of a client's request.
fn read_client_message(input: &[u8]) {
    parse::<Dispatch<'_>>(input).and_then(|body| body.into_spec(JobId::new(1))).ok();
    parse::<Dispatch<'_>>(input).and_then(Dispatch::into_explain_spec).ok();
    parse::<JobView>(input).ok();
}

/// A frame of a session's client.
fn read_session_message(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(message) = SessionRequest::parse(&text) else { return };
    let json = message.to_json();
    assert_same(&message, SessionRequest::parse(&json));
    if let SessionRequest::Start(start) = message
        && let Ok(plan) = start.into_plan()
    {
        parse_speaker(Some(&text), plan.direction).ok();
    }
}

/// What nodes and clients read: a frame of the scheduler.
fn read_scheduler_message(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(message) = SchedulerMessage::parse(&text) {
        let json = message.to_json();
        assert_same(&message, SchedulerMessage::parse(&json));
    }
    SessionUpdate::parse(&text).ok();
}

/// A binary frame of streamed audio, and audio within JSON.
fn read_audio_frame(input: &[u8]) {
    if let Some((job, _)) = untag(input) {
        assert_eq!(tag(job), input[..TAG_BYTES]);
    }
    let text = String::from_utf8_lossy(input);
    let data = Audio { data: Some(text), ..Audio::default() };
    if let Ok(audio) = data.decode("audio") {
        let again = Audio::inline("pcm16", None, &audio);
        assert!(audio.is_empty() || again.decode("audio").is_ok_and(|again| again == audio));
    }
}

/// A language, or the name of a pool. A canonical tag is its own canonical tag.
fn read_language_tag(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(lang) = language("tag", &text) {
        assert_eq!(language("tag", lang.as_str()).ok(), Some(lang));
    }
    source("src", &text).ok();
    if let Ok(pair) = pool("pool", &text) {
        assert_eq!(pool("pool", &pair.to_string()).ok(), Some(pair));
    }
}
