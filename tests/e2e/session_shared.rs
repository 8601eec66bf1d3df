//! Sessions over several instances: nodes at another instance, and clients that resume at another.

use std::time::Duration;

use serde_json::{Value, json};

use crate::raw_node::RawNode;
use crate::redis::Redis;
use crate::scheduler::Scheduler;
use crate::session::{SessionClient, frame};

async fn two(redis: &Redis) -> [Scheduler; 2] {
    let url = redis.url();
    let mut both = vec![];
    for name in ["one", "two"] {
        let settings = [
            ("STORE__URL", url.as_str()),
            ("INSTANCE__ID", name),
            ("SESSION__PAUSE_MS", "300"),
            ("SESSION__SEGMENT_MAX_MS", "1000"),
            ("SESSION__DEADLINE_MS", "3000"),
        ];
        both.push(Scheduler::with(&settings).await);
    }
    both.try_into().unwrap_or_else(|_| panic!("there are two"))
}

fn seq(outcome: &Value) -> u64 {
    outcome["seq"].as_u64().expect("a number")
}

/// Requirements: BIND-01.
#[tokio::test]
async fn segments_run_on_nodes_of_another_instance_and_return_in_order() {
    let redis = Redis::start().await;
    let [one, two] = two(&redis).await;
    let _nodes = [RawNode::join(&two, "n1", 9).await, RawNode::join(&two, "n2", 9).await]
        .map(|node| node.serve(9, Duration::from_millis(20)));
    let mut client = SessionClient::start(&one).await;
    client.send(json!({"type": "turn_start"})).await;
    let mut nodes = vec![];
    for n in 1..=3 {
        client.speak(1_000).await;
        let outcome = client.outcome().await;
        assert_eq!((seq(&outcome), &outcome["type"]), (n, &json!("result")), "{outcome}");
        let job = one.ended(outcome["job_id"].as_str().expect("a job")).await;
        nodes.push(job["node_id"].as_str().expect("a node").to_owned());
    }
    nodes.dedup();
    assert_eq!(nodes.len(), 1, "the segments of a turn go to one node: {nodes:?}");
    for n in 4..=9 {
        client.send(json!({"type": "text", "text": format!("{n}")})).await;
    }
    for n in 4..=9 {
        assert_eq!(seq(&client.outcome().await), n);
    }
}

#[tokio::test]
async fn a_streaming_node_of_another_instance_gets_speech_as_it_arrives() {
    let redis = Redis::start().await;
    let [one, two] = two(&redis).await;
    let mut node = RawNode::join_with(
        &two,
        json!({
            "type": "register", "node_id": "far", "max_concurrent_jobs": 1, "streaming": true,
            "asr_langs": ["zh", "en"], "semantic_langs": ["zh", "en"], "tts_langs": ["zh", "en"],
        }),
    )
    .await;
    let mut client = SessionClient::start(&one).await;
    client.speak(100).await;
    let assign = node.expect("job_assign").await;
    assert_eq!(assign["audio"]["stream"], true, "{assign}");
    node.report("job_ack", &assign, json!({})).await;
    client.turn(100).await;
    let received = crate::session::streamed_audio(&mut node, &assign, 6_400).await;
    assert_eq!(received, frame(0x1000).repeat(10));
    assert_eq!(node.expect("audio_end").await["bytes"], 6_400);
    node.report("job_done", &assign, json!({"result": {"text_translated": "far"}})).await;
    assert_eq!(client.outcome().await["text_translated"], "far");
}

#[tokio::test]
async fn a_session_is_resumed_at_another_instance_while_the_first_lives() {
    let redis = Redis::start().await;
    let [one, two] = two(&redis).await;
    let mut node = RawNode::join(&two, "n1", 9).await;
    let mut client = SessionClient::start(&one).await;
    client.send(json!({"type": "text", "text": "1"})).await;
    node.work().await;
    assert_eq!(seq(&client.outcome().await), 1);
    let started = client.started.clone();
    client.send(json!({"type": "text", "text": "2"})).await;
    let second = node.expect("job_assign").await;

    let mut back = SessionClient::resume(&two.address, &started, 1).await;
    assert_eq!(back.started["resumed"], true, "{:?}", back.started);
    node.report("job_done", &second, json!({"result": {"text_translated": "two"}})).await;
    let outcome = back.outcome().await;
    assert_eq!(
        (seq(&outcome), &outcome["text_translated"]),
        (2, &json!("two")),
        "the job that was open at the first instance"
    );
    back.send(json!({"type": "text", "text": "3"})).await;
    node.work().await;
    assert_eq!(seq(&back.outcome().await), 3);

    // The first connection learns of it with its next segment.
    client.send(json!({"type": "text", "text": "4"})).await;
    assert_eq!(client.expect("error").await["error"], "STALE_EPOCH");
    let again = SessionClient::resume(&one.address, &started, 3).await;
    assert_eq!(again.started["resumed"], true, "back at the first instance: {:?}", again.started);
    let mut guess = started.clone();
    guess["resume_token"] = json!("lingua_00");
    let wrong = SessionClient::resume(&two.address, &guess, 0).await;
    assert_eq!(wrong.started["error"], "SESSION_NOT_FOUND");
}

#[tokio::test]
async fn a_session_whose_instance_died_is_resumed_and_reports_what_is_missing() {
    let redis = Redis::start().await;
    let [mut one, two] = two(&redis).await;
    let mut node = RawNode::join(&two, "n1", 9).await;
    let mut client = SessionClient::start(&one).await;
    for n in 1..=2 {
        client.send(json!({"type": "text", "text": format!("{n}")})).await;
        node.work().await;
    }
    assert_eq!(seq(&client.outcome().await), 1);
    let started = client.started.clone();
    // One segment is at a node, and the client is speaking another.
    client.send(json!({"type": "text", "text": "3"})).await;
    node.expect("job_assign").await;
    client.speak(200).await;
    client.expect("job_accepted").await;
    while client.next().await["turn"] != 4 {}
    one.child.kill().await.expect("killed");

    let mut back = SessionClient::resume(&two.address, &started, 1).await;
    assert_eq!(back.started["resumed"], true, "{:?}", back.started);
    let second = back.outcome().await;
    assert_eq!(
        (seq(&second), &second["text_translated"]),
        (2, &json!("hello")),
        "not delivered before"
    );
    for n in 3..=4 {
        let outcome = back.outcome().await;
        assert_eq!((seq(&outcome), &outcome["type"]), (n, &json!("missing")), "{outcome}");
    }
    back.send(json!({"type": "text", "text": "5"})).await;
    loop {
        let assign = node.expect("job_assign").await;
        node.report("job_done", &assign, json!({"result": {"text_translated": "x"}})).await;
        if assign["text"] == "5" {
            break;
        }
    }
    assert_eq!(seq(&back.outcome().await), 5, "the session continues");
}
