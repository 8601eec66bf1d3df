//! What `session_started` says: a pair that no node serves, and what had arrived before a resume.

use serde_json::{Value, json};

use crate::raw_node::RawNode;
use crate::scheduler::Scheduler;
use crate::session::SessionClient;

#[tokio::test]
async fn an_unserved_pair_is_told_when_the_session_starts() {
    let s = Scheduler::start().await;
    let nobody = SessionClient::start(&s).await.started;
    let warning = nobody["warning"].as_str().expect("a warning");
    assert!(warning.contains("zh:en"), "{warning}");
    let _node = RawNode::join(&s, "n1", 1).await;
    let served = SessionClient::start(&s).await.started;
    assert_eq!(served["warning"], Value::Null, "{served}");
    let two_way = json!({"mode": "two_way", "lang_a": "zh", "lang_b": "ko"});
    let half = SessionClient::start_with(&s, two_way).await.started;
    let warning = half["warning"].as_str().expect("a warning");
    assert!(warning.contains("ko:zh"), "nobody understands Korean: {warning}");
    assert!(!warning.contains("zh:ko"), "as text it is served: {warning}");
    let spoken = json!({"tgt_lang": "ko", "require_tts": true});
    let silent = SessionClient::start_with(&s, spoken).await.started;
    let warning = silent["warning"].as_str().expect("a warning");
    assert!(warning.contains("zh:ko with speech"), "{warning}");
}

#[tokio::test]
async fn a_session_of_an_unserved_pair_works_once_a_node_serves_it() {
    let s = Scheduler::start().await;
    let mut client = SessionClient::start(&s).await;
    assert!(client.started["warning"].is_string());
    let mut node = RawNode::join(&s, "n1", 1).await;
    client.send(json!({"type": "text", "text": "你好"})).await;
    node.work().await;
    assert_eq!(client.outcome().await["text_translated"], "hello");
}

#[tokio::test]
async fn a_resumed_session_says_how_much_of_the_open_turn_had_arrived() {
    let s = Scheduler::with(&[("SESSION__PAUSE_MS", "60000")]).await;
    let mut node = RawNode::join(&s, "n1", 4).await;
    let mut client = SessionClient::start(&s).await;
    for absent in ["received_ms", "turns", "turn_open"] {
        assert_eq!(client.started[absent], Value::Null, "nothing was resumed");
    }
    client.send(json!({"type": "turn_start"})).await;
    client.speak(400).await;
    client.expect("job_accepted").await;
    let started = client.started.clone();
    // The close frame is behind the audio, so that all of it has arrived before the socket ends.
    client.stream.close(None).await.ok();
    while !client.next().await.is_null() {}
    let mut client = SessionClient::resume(&s.address, &started, 0).await;
    let received = |started: &Value| json!([started["turns"], started["turn_open"]]);
    assert_eq!(client.started["received_ms"], 400, "{}", client.started);
    assert_eq!(received(&client.started), json!([1, true]), "{}", client.started);
    client.speak(200).await;
    client.send(json!({"type": "turn_end"})).await;
    let assign = node.expect("job_assign").await;
    node.ack(&assign).await;
    let audio = node.next().await;
    assert_eq!(audio["binary"].as_array().map(Vec::len), Some(600 * 32), "the whole turn");
    node.done(&assign, "hello").await;
    assert_eq!(client.outcome().await["turn"], 1);
    drop(client);
    let client = SessionClient::resume(&s.address, &started, 1).await;
    assert_eq!(client.started["received_ms"], 0, "no turn is open");
    assert_eq!(received(&client.started), json!([1, false]), "{}", client.started);
}
