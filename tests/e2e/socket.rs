//! The WebSocket of nodes, message by message.

use serde_json::{Value, json};

use crate::raw_node::{RawNode, register};
use crate::scheduler::{Scheduler, job, job_with};

/// Requirements: POOL-10, NODE-01, NODE-03, NODE-04, NODE-10, NODE-11, OBS-06.
#[tokio::test]
async fn nested_and_flat_registrations_mean_the_same() {
    let s = Scheduler::start().await;
    let nested = RawNode::join_with(
        &s,
        json!({
            "type": "register", "node_id": "nested", "version": "3.0", "health": "ready",
            "language_capabilities": {
                "asr_languages": ["zh_CN", "eng"], "semantic_languages": ["zh-cn", "en"],
                "tts_languages": ["zh-CN", "en"], "nmt_pairs": [["zh-CN", "en"], ["en", "zh-CN"]],
            },
            "services": {"asr": true, "nmt": true, "tts": true, "tone": false, "semantic": true},
            "max_concurrent_jobs": 4, "accept_public_jobs": true,
        }),
    )
    .await;
    assert_eq!(
        (&nested.registered["node_id"], &nested.registered["pairs"]),
        (&json!("nested"), &json!(2))
    );
    let flat = RawNode::join_with(
        &s,
        json!({
            "type": "register", "semantic_langs": ["en", "zh"], "tts_langs": ["en", "zh"],
            "nmt_pairs": [["en", "zh"], ["zh", "en"]], "max_concurrent_jobs": 2,
        }),
    )
    .await;
    let id = flat.registered["node_id"].as_str().unwrap();
    assert!(id.len() == 13 && id.starts_with("node-"), "{id}");
    assert_eq!(flat.registered["pairs"], 2);
    let languages = &s.get("/v1/nodes/nested").await.body["languages"];
    assert_eq!(languages["asr_languages"], json!(["en", "zh-CN"]), "canonical tags");
}

/// Requirements: NODE-18, NODE-22, PICK-16, SLOT-11, JOB-04, JOB-05, JOB-08, STORE-05.
#[tokio::test]
async fn a_dispatched_job_is_acked_done_and_confirmed() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let (id, on) = s.dispatch(job_with(json!({"require_tts": true}))).await;
    assert_eq!(on, "n1");
    let assign = node.expect("job_assign").await;
    assert_eq!((&assign["job_id"], &assign["attempt_id"]), (&json!(id), &json!(1)));
    assert_eq!((&assign["src_lang"], &assign["tgt_lang"]), (&json!("zh"), &json!("en")));
    assert_eq!(assign["options"]["require_tts"], true);
    assert!(assign["fence"].as_u64().is_some() && assign["deadline_ms"].as_u64().is_some());
    assert_eq!(s.used().await, 1);
    node.ack(&assign).await;
    node.report("job_partial", &assign, json!({"text": "he"})).await;
    node.report(
        "job_done",
        &assign,
        json!({"result": {"text_asr": "你好", "text_translated": "hello", "mood": "glad"}}),
    )
    .await;
    let confirmed = node.expect("job_confirmed").await;
    assert_eq!((&confirmed["job_id"], &confirmed["accepted"]), (&json!(id), &json!(true)));
    let ended = s.ended(&id).await;
    assert_eq!((&ended["state"], &ended["result"]["mood"]), (&json!("DONE"), &json!("glad")));
    assert_eq!(ended["result"]["text_asr"], "你好");
    assert_eq!(s.used().await, 0);
}

#[tokio::test]
async fn audio_follows_its_message_as_a_binary_frame_in_both_directions() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let spoken = json!({
        "src_lang": "zh", "tgt_lang": "en",
        "audio": {"format": "pcm16", "sample_rate": 16000, "data": "AAECAw=="},
        "options": {"require_tts": true},
    });
    let (id, _) = s.dispatch(spoken).await;
    let assign = node.expect("job_assign").await;
    assert_eq!(assign["audio"]["bytes"], 4);
    assert_eq!(node.next().await["binary"], json!([0, 1, 2, 3]));
    node.ack(&assign).await;
    let tts = json!({"tts_audio": {"format": "pcm16", "sample_rate": 24000, "bytes": 3}});
    node.report("job_done", &assign, json!({"result": tts})).await;
    node.send_bytes(vec![9, 8, 7]).await;
    node.expect("job_confirmed").await;
    let ended = s.ended(&id).await;
    assert_eq!(ended["result"]["tts_audio"]["data"], "CQgH");
}

/// Requirements: SLOT-08, SLOT-12, JOB-17, JOB-25.
#[tokio::test]
async fn a_duplicate_done_and_a_stale_ack_change_nothing() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let (first, _) = s.dispatch(job()).await;
    let assign = node.work().await;
    let (_second, _) = s.dispatch(job()).await;
    let other = node.expect("job_assign").await;
    node.done(&assign, "again").await;
    assert_eq!(node.expect("job_confirmed").await["accepted"], false);
    assert_eq!(s.ended(&first).await["result"]["text_translated"], "hello");
    assert_eq!(s.used().await, 1, "the other job keeps its slot");

    let never = json!({"job_id": "job-000000000000000000000000000000ff", "attempt_id": 1});
    node.ack(&never).await;
    assert_eq!(node.expect("error").await["error"], "JOB_NOT_FOUND");
    node.report("job_ack", &json!({"job_id": other["job_id"], "attempt_id": 7}), json!({})).await;
    node.report("job_done", &other, json!({})).await;
    assert_eq!(node.expect("job_confirmed").await["accepted"], true, "the job still runs");
}

#[tokio::test]
async fn a_second_connection_takes_over_the_node_id() {
    let s = Scheduler::start().await;
    let mut first = RawNode::join(&s, "n1", 1).await;
    let (id, _) = s.dispatch(job()).await;
    first.expect("job_assign").await;
    let mut second = RawNode::join(&s, "n1", 1).await;
    assert!(second.registered["epoch"].as_u64() > first.registered["epoch"].as_u64());
    let error = first.expect("error").await;
    assert_eq!((&error["error"], &error["fatal"]), (&json!("STALE_EPOCH"), &json!(true)));
    assert_eq!(first.next().await, Value::Null, "and the connection is closed");
    let assign = second.work().await;
    assert_eq!((&assign["job_id"], &assign["attempt_id"]), (&json!(id), &json!(2)));
    assert_eq!(s.ended(&id).await["state"], "DONE");
}

/// Requirements: NODE-45, PICK-02, JOB-12.
#[tokio::test]
async fn a_drained_node_finishes_its_job_and_gets_no_new_one() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 2).await;
    let (id, _) = s.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    assert_eq!(s.post("/v1/nodes/n1/drain", json!({})).await.body["state"], "draining");
    node.expect("drain").await;
    assert_eq!(node.heartbeat(json!({"health": "ready"})).await["drain"], true);
    let refused = s.post("/v1/dispatch/f2f", job_with(json!({"wait_ms": 50}))).await;
    assert_eq!(refused.error(), (503, "ALL_CANDIDATES_FULL_OR_FAILED"));
    assert!(refused.body["retry_after_ms"].is_u64() && refused.header("retry-after").is_some());
    node.report("job_done", &assign, json!({})).await;
    assert_eq!(s.ended(&id).await["state"], "DONE");
    assert_eq!(s.post("/v1/nodes/n1/resume", json!({})).await.body["state"], "ready");
    s.dispatch(job()).await;
}

#[tokio::test]
async fn an_invalid_message_gets_an_error_and_the_connection_stays() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    for invalid in [
        "{",
        "[]",
        "null",
        r#"{"type":"dance"}"#,
        r#"{"type":"job_ack"}"#,
        r#"{"type":"register"}"#,
    ] {
        node.send_text(invalid).await;
        let error = node.expect("error").await;
        assert_eq!(error["fatal"], false, "{invalid}: {error}");
        assert!(error["detail"].as_str().is_some_and(|d| !d.is_empty()));
    }
    node.send_bytes(vec![1, 2, 3]).await;
    assert_eq!(node.expect("error").await["error"], "INVALID_REQUEST");
    s.dispatch(job()).await;
    node.work().await;
}

/// A registration with an empty list.
fn without(list: &str) -> Value {
    let mut message = register("n1", 1);
    message[list] = json!([]);
    message
}

/// Requirements: NODE-08.
#[tokio::test]
async fn a_connection_without_a_valid_registration_is_closed() {
    let s = Scheduler::with(&[("SERVER__FIRST_MESSAGE_MS", "300")]).await;
    let bad = [
        (json!({"type": "heartbeat"}), "NODE_NOT_REGISTERED"),
        (without("semantic_langs"), "SEMANTIC_LANGUAGES_REQUIRED"),
        (
            json!({"type": "register", "semantic_langs": ["zh"], "tts_langs": ["xx!"]}),
            "INVALID_LANGUAGE",
        ),
        (register("a b", 1), "INVALID_REQUEST"),
    ];
    for (message, code) in bad {
        let mut node = RawNode::connect(&s.address, None).await;
        node.send(message).await;
        let error = node.next().await;
        assert_eq!((error["error"].as_str(), &error["fatal"]), (Some(code), &json!(true)));
        assert_eq!(node.next().await, Value::Null);
    }
    let mut silent = RawNode::connect(&s.address, None).await;
    assert_eq!(silent.next().await["fatal"], true, "a silent connection is closed");
    assert_eq!(silent.next().await, Value::Null);
}

#[tokio::test]
async fn a_huge_frame_closes_only_its_own_connection() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "big", 1).await;
    let mut other = RawNode::join(&s, "small", 1).await;
    let huge = format!(r#"{{"type":"bye","reason":"{}"}}"#, "x".repeat(6 << 20));
    node.try_send(&huge).await;
    while node.next().await != Value::Null {}
    s.dispatch(job()).await;
    other.work().await;
}

#[tokio::test]
async fn a_registration_with_too_many_languages_is_refused() {
    let s = Scheduler::start().await;
    let many: Vec<String> = (0..400_000).map(|n| format!("x{n}")).collect();
    let mut node = RawNode::connect(&s.address, None).await;
    node.send(json!({"type": "register", "semantic_langs": many, "tts_langs": ["zh"]})).await;
    let error = node.next().await;
    assert_eq!(error["error"], "INVALID_REQUEST", "{error:?}");
}
