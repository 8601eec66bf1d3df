//! Voice activity detection: the client sends audio without a break.

use std::time::Duration;

use serde_json::{Value, json};

use crate::raw_node::RawNode;
use crate::scheduler::Scheduler;
use crate::session::SessionClient;

#[path = "../../crates/lingua-server/tests/it/test_audio.rs"]
mod test_audio;

#[tokio::test]
async fn with_voice_detection_silence_ends_a_turn_while_frames_arrive() {
    let settings =
        [("SESSION__VAD", "true"), ("SESSION__SILENCE_MS", "400"), ("SESSION__PAUSE_MS", "60000")];
    let s = Scheduler::with(&settings).await;
    let _node = RawNode::join(&s, "n1", 9).await.serve(9, Duration::ZERO);
    let mut client = SessionClient::start(&s).await;
    let mut n = 0;
    for turn in 1..=2 {
        // One second of hiss, 1.5 seconds of a vowel, one second of hiss.
        for (frames, is_voiced) in [(50, false), (75, true), (50, false)] {
            for _ in 0..frames {
                client.send_bytes(test_audio::frame(16_000, n, is_voiced)).await;
                n += 1;
            }
        }
        let outcome = client.outcome().await;
        let place = (&outcome["turn"], &outcome["segment"]);
        assert_eq!(place, (&json!(turn), &json!(1)), "{outcome}");
        let spoken = s.ended(outcome["job_id"].as_str().expect("an id")).await;
        assert_eq!(spoken["state"], "DONE", "{spoken}");
    }
    client.send(json!({"type": "session_end"})).await;
    assert_eq!(client.next().await, Value::Null, "hiss makes no job");
}

/// The server's setting is off; a client with an open microphone asks for it.
#[tokio::test]
async fn a_session_may_ask_for_voice_detection() {
    let s = Scheduler::with(&[("SESSION__PAUSE_MS", "60000")]).await;
    let _node = RawNode::join(&s, "n1", 9).await.serve(9, Duration::ZERO);
    let mut client = SessionClient::start_with(&s, json!({"vad": true})).await;
    let mut n = 0;
    for turn in 1..=2 {
        for (frames, is_voiced) in [(50, false), (75, true), (75, false)] {
            for _ in 0..frames {
                client.send_bytes(test_audio::frame(16_000, n, is_voiced)).await;
                n += 1;
            }
        }
        assert_eq!(client.outcome().await["turn"], turn);
    }
    let other = json!({"vad": "loud"});
    let mut start = json!({"type": "session_start", "src_lang": "zh", "tgt_lang": "en"});
    start["vad"] = other["vad"].clone();
    let refused = SessionClient::open(&s.address, start).await.started;
    assert_eq!((&refused["type"], &refused["error"]), (&json!("error"), &json!("INVALID_REQUEST")));
}

#[tokio::test]
async fn a_session_may_switch_voice_detection_off() {
    let settings =
        [("SESSION__VAD", "true"), ("SESSION__SILENCE_MS", "100"), ("SESSION__PAUSE_MS", "60000")];
    let s = Scheduler::with(&settings).await;
    let _node = RawNode::join(&s, "n1", 9).await.serve(9, Duration::ZERO);
    let mut client = SessionClient::start_with(&s, json!({"vad": false})).await;
    client.send(json!({"type": "turn_start"})).await;
    for (n, is_voiced) in (0..).zip([true; 50].into_iter().chain([false; 50]).chain([true; 50])) {
        client.send_bytes(test_audio::frame(16_000, n, is_voiced)).await;
    }
    client.send(json!({"type": "turn_end"})).await;
    client.send(json!({"type": "session_end"})).await;
    let outcome = client.outcome().await;
    assert_eq!((&outcome["turn"], &outcome["segment"]), (&json!(1), &json!(1)), "{outcome}");
    assert_eq!(client.next().await, Value::Null, "silence cut nothing");
}
