//! Outages of the store: dispatch fails closed, and work resumes without a restart.

use std::time::Duration;

use serde_json::json;

use crate::http::Reply;
use crate::proxy::Proxy;
use crate::raw_node::RawNode;
use crate::redis::{Redis, free_port};
use crate::scheduler::{Scheduler, job, within};

/// While the store is away, the scheduler refuses new work, `/readyz` is 503, and nodes stay
/// connected.
async fn expect_refusal(s: &Scheduler) {
    let body = s.until("/readyz", 503).await;
    assert_eq!(body["error"], "SCHEDULER_DEPENDENCY_DOWN", "{body}");
    let is_down = |reply: &Reply| reply.text.contains("lingua_store_up 0");
    s.until_reply("/metrics", is_down).await;
    let refused = s.post("/v1/dispatch/f2f", job()).await;
    assert_eq!(refused.error(), (503, "SCHEDULER_DEPENDENCY_DOWN"));
    assert_eq!(s.get("/healthz").await.status, 200, "the process itself is well");
    assert_eq!(s.metric(r#"lingua_connections{kind="node"}"#).await, 1.0, "the node stays");
}

/// When the store is back, the same node does jobs over the same connection.
async fn expect_recovery(s: &Scheduler, node: &mut RawNode) {
    s.until("/readyz", 200).await;
    let done = async {
        loop {
            let reply = s.post("/v1/translate", job()).await;
            if reply.status == 200 {
                return reply.body;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // Requests that were refused meanwhile may have left jobs behind: the node does them all.
    let working = async {
        loop {
            // After an outage a node gets jobs only once it has sent a heartbeat.
            node.send(json!({"type": "heartbeat"})).await;
            let message = node.next().await;
            match message["type"].as_str() {
                Some("job_assign") => {
                    node.ack(&message).await;
                    node.report("job_done", &message, json!({"result": {"text": "hello"}})).await;
                }
                _ => assert!(!message.is_null(), "the connection was closed"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let body = within(Box::pin(async {
        tokio::select! {
            body = done => body,
            () = working => unreachable!("the node works until the test ends"),
        }
    }))
    .await;
    assert_eq!(body["state"], "DONE", "{body}");
    s.until_unused().await;
    assert_eq!(s.metric("lingua_store_up").await, 1.0);
}

#[tokio::test]
async fn a_paused_store_is_an_outage_and_work_resumes() {
    let redis = Redis::start().await;
    let s = Scheduler::over(&redis.url(), "one").await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    redis.signal("STOP").await;
    expect_refusal(&s).await;
    redis.signal("CONT").await;
    expect_recovery(&s, &mut node).await;
}

/// Requirements: STORE-03, STORE-04.
#[tokio::test]
async fn a_store_that_cannot_be_reached_is_an_outage_and_work_resumes() {
    let redis = Redis::start().await;
    let proxy = Proxy::to(&format!("127.0.0.1:{}", redis.port)).await;
    let s = Scheduler::over(&format!("redis://{}", proxy.address), "one").await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    proxy.refuse();
    expect_refusal(&s).await;
    proxy.accept();
    expect_recovery(&s, &mut node).await;
}

#[tokio::test]
async fn a_store_that_refuses_writes_is_an_outage_and_work_resumes() {
    let redis = Redis::start().await;
    let s = Scheduler::over(&redis.url(), "one").await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    for (fault, cure) in [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    ] {
        assert_eq!(redis.command(fault).await, "+OK", "{fault}");
        expect_refusal(&s).await;
        assert_eq!(redis.command(cure).await, "+OK", "{cure}");
        expect_recovery(&s, &mut node).await;
    }
}

/// Requirements: STORE-09.
#[tokio::test]
async fn a_flushed_script_cache_does_not_stop_work() {
    let redis = Redis::start().await;
    let s = Scheduler::over(&redis.url(), "one").await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    assert_eq!(redis.command("SCRIPT FLUSH").await, "+OK");
    expect_recovery(&s, &mut node).await;
}

#[tokio::test]
async fn a_store_that_comes_back_empty_gets_its_open_jobs_again() {
    let mut redis = Redis::start().await;
    let s = Scheduler::over(&redis.url(), "one").await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let (id, _) = s.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    node.ack(&assign).await;
    redis.kill().await;
    expect_refusal(&s).await;
    let _redis = Redis::start_on(redis.port).await;
    s.until("/readyz", 200).await;
    // The next heartbeat of the node registers it again.
    node.send(json!({"type": "heartbeat"})).await;
    node.expect("registered").await;
    // The owner of the job writes its record again: the result counts, or the job is retried.
    node.done(&assign, "hello").await;
    let working = tokio::spawn(async move {
        loop {
            let message = node.next().await;
            if message["type"] == "job_assign" {
                node.ack(&message).await;
                node.report("job_done", &message, json!({"result": {"text": "again"}})).await;
            }
            if message.is_null() {
                return;
            }
        }
    });
    let ended = s.ended(&id).await;
    assert_eq!(ended["state"], "DONE", "{ended:#}");
    s.until_unused().await;
    working.abort();
}

#[tokio::test]
async fn a_store_that_is_still_loading_is_an_outage() {
    let dir = tempfile::TempDir::new().expect("a directory");
    let directory = ["--dir", dir.path().to_str().expect("a path")];
    let mut redis = Redis::start_with(free_port(), &directory).await;
    let s = Scheduler::over(&redis.url(), "one").await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    // Loading takes two seconds; meanwhile the server replies LOADING.
    let fill = r#"EVAL "for n = 1, 2000 do redis.call('SET', 'x' .. n, n) end" 0"#;
    assert_eq!(redis.command(fill).await, "$-1");
    assert_eq!(redis.command("SAVE").await, "+OK");
    redis.kill().await;
    let slowly = ["--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"];
    let redis = Redis::start_with(redis.port, &[&directory[..], &slowly].concat()).await;
    assert!(redis.command("GET x").await.starts_with("-LOADING"), "the server still loads");
    expect_refusal(&s).await;
    expect_recovery(&s, &mut node).await;
}

#[tokio::test]
async fn a_store_that_forgot_its_last_writes_oversells_nobody() {
    let dir = tempfile::TempDir::new().expect("a directory");
    let directory = ["--dir", dir.path().to_str().expect("a path")];
    let mut redis = Redis::start_with(free_port(), &directory).await;
    let s = Scheduler::over(&redis.url(), "one").await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    assert_eq!(redis.command("SAVE").await, "+OK");
    // The server will forget everything from here on.
    let (id, _) = s.dispatch(job()).await;
    let first = node.expect("job_assign").await;
    node.ack(&first).await;
    s.until_reply(&format!("/v1/jobs/{id}"), |reply| reply.body["state"] == "ACKED").await;
    redis.kill().await;
    let _redis = Redis::start_with(redis.port, &directory).await;
    s.until("/readyz", 200).await;
    s.until_unused().await;
    // The slot looks free but is not: the node gets no job before it has reported what it runs.
    let mut strict = job();
    strict["options"] = json!({"wait_ms": 300});
    let refused = s.post("/v1/dispatch/f2f", strict).await;
    assert_eq!(refused.body["error"], "ALL_CANDIDATES_FULL_OR_FAILED", "{:?}", refused.body);
    // The node reports its job, gets `job_cancel` for it, and then gets the job again.
    let running = json!([{"job_id": id, "attempt_id": 1}]);
    node.send(json!({"type": "heartbeat", "running": running})).await;
    let ack = node.expect("heartbeat_ack").await;
    assert_eq!(ack["cancel"], running, "{ack}");
    let again = node.expect("job_assign").await;
    assert_eq!((&again["job_id"], &again["attempt_id"]), (&json!(id), &json!(2)));
    node.ack(&again).await;
    node.done(&again, "hello").await;
    let ended = s.ended(&id).await;
    assert_eq!(ended["state"], "DONE", "{ended:#}");
    s.until_unused().await;
}
