//! What a client sees of the end of its job: deadlines, hanging up, history, pools.

use serde_json::{Value, json};

use crate::raw_node::{RawNode, register};
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job, job_with, within};

#[tokio::test]
async fn a_translation_past_its_deadline_has_failed() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 4).await;
    let client = s.new_client();
    let body = job_with(json!({"deadline_ms": 400}));
    let asked = tokio::spawn(async move { client.post("/v1/translate", body).await });
    let assign = node.expect("job_assign").await;
    node.ack(&assign).await;
    let late = asked.await.expect("a reply");
    assert_eq!(late.error(), (504, "DEADLINE_EXCEEDED"), "{late:?}");
    assert!(late.body["detail"].as_str().expect("a detail").contains("it has failed"), "{late:?}");
    let ended = s.ended(assign["job_id"].as_str().expect("an id")).await;
    assert_eq!((&ended["state"], &ended["error"]), (&json!("FAILED"), &json!("DEADLINE_EXCEEDED")));
    assert_eq!(node.expect("job_cancel").await["job_id"], assign["job_id"]);

    // Without a deadline it has 30 s, which the job's record shows.
    let client = s.new_client();
    let asked = tokio::spawn(async move { client.post("/v1/translate", job()).await });
    node.work().await;
    let done = asked.await.expect("a reply").body;
    let left_ms = done["deadline_at_ms"].as_u64().expect("a deadline")
        - done["created_ms"].as_u64().expect("a time");
    assert_eq!(left_ms, 30_000, "{done}");
}

/// Sends a request and closes the connection before the reply.
async fn post_and_hang_up(s: &Scheduler, header: &str, node: &mut RawNode) -> Value {
    use tokio::io::AsyncWriteExt;
    let mut stream = tokio::net::TcpStream::connect(&s.address).await.expect("it accepts");
    let body = job().to_string();
    let request = format!(
        "POST /v1/translate HTTP/1.1\r\nhost: localhost\r\n{header}\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let assign = node.expect("job_assign").await;
    node.ack(&assign).await;
    drop(stream);
    assign
}

#[tokio::test]
async fn hanging_up_cancels_a_translation_unless_it_has_a_key() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 4).await;
    let assign = post_and_hang_up(&s, "", &mut node).await;
    assert_eq!(node.expect("job_cancel").await["job_id"], assign["job_id"]);
    let id = assign["job_id"].as_str().expect("an id");
    assert_eq!(s.ended(id).await["state"], "CANCELLED");

    let assign = post_and_hang_up(&s, "idempotency-key: k1\r\n", &mut node).await;
    // Another job that is cancelled shows that the first was not.
    let other = post_and_hang_up(&s, "", &mut node).await;
    assert_eq!(node.expect("job_cancel").await["job_id"], other["job_id"]);
    node.done(&assign, "hello").await;
    let id = assign["job_id"].as_str().expect("an id");
    assert_eq!(s.ended(id).await["state"], "DONE");
}

#[tokio::test]
async fn an_ended_job_keeps_its_session_its_trace_and_its_attempts_after_a_takeover() {
    let redis = Redis::start().await;
    let url = redis.url();
    let (one, two) = tokio::join!(Scheduler::over(&url, "one"), Scheduler::over(&url, "two"));
    let mut node = RawNode::join(&two, "n1", 4).await;
    let mut spoken = job();
    spoken["audio_ref"] = Value::Null;
    spoken["audio"] = json!({"format": "pcm16", "sample_rate": 16000, "data": "AQID"});
    spoken["trace_id"] = json!("trace-7");
    let client = one.new_client();
    let asked = tokio::spawn(async move { client.post("/v1/translate", spoken).await });
    let assign = node.expect("job_assign").await;
    node.ack(&assign).await;
    node.done(&assign, "hello").await;
    let done = asked.await.expect("a reply").body;
    let id = done["job_id"].as_str().expect("an id");
    for seen in [done.clone(), one.ended(id).await, two.ended(id).await] {
        assert_eq!((&seen["session_id"], &seen["trace_id"]), (&json!("room-1"), &json!("trace-7")));
    }

    // One attempt fails, the next is under way when the instance dies: all are in the history.
    let (id, _) = one.dispatch(job()).await;
    let first = node.expect("job_assign").await;
    node.report("job_fail", &first, json!({"reason": "OUT_OF_MEMORY"})).await;
    let second = node.expect("job_assign").await;
    node.ack(&second).await;
    one.kill().await;
    node.done(&second, "hello").await;
    let ended = within(two.ended(&id)).await;
    assert_eq!(ended["state"], "DONE", "{ended}");
    let attempts = ended["attempts"].as_array().expect("attempts");
    assert_eq!(attempts.len(), 2, "{ended}");
    assert_eq!(attempts[0]["reason"], "OUT_OF_MEMORY", "{ended}");
    assert_eq!((&attempts[1]["node_id"], &ended["session_id"]), (&json!("n1"), &json!("room-1")));
}

#[tokio::test]
async fn a_pool_counts_nodes_that_serve_the_pair_as_text_and_says_who_speaks() {
    let s = Scheduler::start().await;
    let _two = RawNode::join(&s, "two", 4).await;
    let mut korean = register("korean", 4);
    korean["tts_langs"] = json!(["ko"]);
    let _korean = RawNode::join_with(&s, korean).await;
    let (_, node) = s
        .dispatch(json!({
            "session_id": "r", "src_lang": "zh", "tgt_lang": "ko", "audio_ref": "blob://1",
        }))
        .await;
    let pool = s.get("/v1/pools/zh:ko").await.body;
    assert_eq!((&pool["nodes"], &pool["speech"]), (&json!(2), &json!(1)), "{pool}");
    assert!(pool["node_ids"].as_array().expect("nodes").contains(&json!(node)), "{pool}");
    let listed = s.until_reply("/v1/pools", |reply| {
        let pools = reply.body["pools"].as_array().cloned().unwrap_or_default();
        pools.iter().any(|pool| pool["pool"] == "zh:ko" && pool["nodes"] == 2)
    });
    let listed = listed.await.body;
    let pools = listed["pools"].as_array().expect("pools");
    let speech = |name: &str| {
        let found = pools.iter().find(|pool| pool["pool"] == name);
        found.map(|pool| (pool["nodes"].clone(), pool["speech"].clone()))
    };
    assert_eq!(speech("zh:ko"), Some((json!(2), json!(1))), "{listed}");
    assert_eq!(speech("zh:en"), Some((json!(2), json!(1))), "{listed}");
    assert_eq!(speech("*:ko"), Some((json!(2), json!(1))), "{listed}");
}
