//! What becomes of the slot that was taken for a job: confirmed, run out, free again.

use std::time::Duration;

use serde_json::{Value, json};

use crate::http::Reply;
use crate::proxy::Proxy;
use crate::raw_node::RawNode;
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job, job_with, run};

/// Requirements: SLOT-04, SLOT-07, SLOT-09, SLOT-10, SLOT-17, OBS-17, CONF-02.
#[tokio::test]
async fn an_unconfirmed_reservation_frees_its_slot_and_a_confirmed_one_keeps_it() {
    let settings = [("SCHEDULER__RESERVATION_TTL_MS", "500"), ("SCHEDULER__MAX_RETRY", "0")];
    let s = Scheduler::with(&settings).await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let (id, _) = s.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    assert_eq!(s.used().await, 1);
    assert_eq!(s.metric("lingua_ack_timeout_total").await, 0.0);
    let ended = s.ended(&id).await;
    assert_eq!(
        (&ended["state"], &ended["attempts"][0]["reason"]),
        (&json!("FAILED"), &json!("ack_timeout"))
    );
    assert_eq!(s.metric("lingua_ack_timeout_total").await, 1.0);
    assert_eq!(s.used().await, 0);
    node.expect("job_cancel").await;

    // The slot is free: the next job, which does not wait, gets it.
    let (second, _) = s.dispatch(job_with(json!({"wait_ms": 0}))).await;
    let running = node.expect("job_assign").await;
    // A late confirmation of the first is refused and does not count.
    node.ack(&assign).await;
    assert_eq!(node.expect("error").await["error"], "STALE_ATTEMPT");
    assert_eq!(s.used().await, 1);
    // A confirmed job keeps its slot for longer than the reservation lasts.
    node.ack(&running).await;
    let long = Duration::from_millis(1_500);
    let told = tokio::time::timeout(long, node.next()).await;
    assert!(told.is_err(), "{told:?}");
    assert_eq!(s.get(&format!("/v1/jobs/{second}")).await.body["state"], "ACKED");
    assert_eq!(s.used().await, 1);
    node.done(&running, "hello").await;
    assert_eq!(node.expect("job_confirmed").await["accepted"], true);
    assert_eq!(s.metric("lingua_ack_timeout_total").await, 1.0);
}

/// The state of a job.
async fn state(s: &Scheduler, id: &str) -> Value {
    s.get(&format!("/v1/jobs/{id}")).await.body["state"].clone()
}

/// Requirements: JOB-14, JOB-15.
#[tokio::test]
async fn a_job_goes_through_its_states() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    s.dispatch(job()).await;
    let first = node.expect("job_assign").await;
    // The second job finds no slot yet.
    let client = s.new_client();
    let waiting = tokio::spawn(async move {
        client.post("/v1/dispatch/f2f", job_with(json!({"wait_ms": 15_000}))).await
    });
    s.until_metric("lingua_queue_jobs", 1.0).await;
    let jobs = s.get("/v1/jobs?state=NEW").await.body;
    let id = jobs["jobs"][0]["job_id"].as_str().expect("a job").to_owned();
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(1), "{jobs}");
    node.done(&first, "hello").await;
    assert_eq!(waiting.await.expect("a reply").body["job_id"], json!(id));
    let assign = node.expect("job_assign").await;
    assert_eq!(state(&s, &id).await, "DISPATCHED");
    node.ack(&assign).await;
    node.heartbeat(json!({})).await;
    assert_eq!(state(&s, &id).await, "ACKED");
    // It fails, and no other node can take it: the next attempt waits.
    node.heartbeat(json!({"health": "degraded"})).await;
    node.report("job_fail", &assign, json!({"reason": "OUT_OF_MEMORY"})).await;
    s.until_logged(&[("message", "retrying"), ("node_id", "n1")]).await;
    node.heartbeat(json!({"health": "ready"})).await;
    let again = node.work().await;
    assert_eq!((&again["job_id"], &again["attempt_id"]), (&json!(id), &json!(2)));
    assert_eq!(state(&s, &id).await, "DONE");
    // From its end no event leads anywhere.
    let cancelled = s.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await;
    assert_eq!(cancelled.body["state"], "DONE", "{}", cancelled.body);
    node.report("job_fail", &again, json!({"reason": "LATE"})).await;
    assert_eq!(node.expect("job_confirmed").await["accepted"], false);
    assert_eq!(state(&s, &id).await, "DONE");
}

/// Requirements: SLOT-06, JOB-28.
#[tokio::test]
async fn a_reservation_can_be_looked_at_and_an_ended_job_is_kept_for_an_hour() {
    let redis = Redis::start().await;
    let url = redis.url();
    let s = Scheduler::over(&url, "one").await;
    let mut node = RawNode::join(&s, "n1", 2).await;
    let (id, _) = s.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    let lease = async || {
        let (code, out, error) = run(&["inspect", "node", "n1", "--store", &url], &[]).await;
        assert_eq!(code, Some(0), "{error}");
        out.lines().find(|line| line.starts_with(&id)).unwrap_or_default().to_owned()
    };
    let reserved = lease().await;
    let words: Vec<&str> = reserved.split_whitespace().collect();
    assert!(words.len() > 4 && words[1] == "1", "the attempt: {reserved}");
    assert!(words.contains(&"reserved") && words.contains(&"in"), "how long: {reserved}");
    node.ack(&assign).await;
    node.heartbeat(json!({})).await;
    assert!(!lease().await.contains("reserved"));

    // The record has no end while the job is open; from its end on it lasts an hour.
    let shard = u8::from_str_radix(&id[id.len() - 1..], 16).expect("a hexadecimal digit");
    let record = format!("lingua:v1:{{j{shard}}}:job:{}", id.trim_start_matches("job-"));
    let left = async || {
        let reply = redis.command(&format!("PTTL {record}")).await;
        reply.trim_start_matches(':').parse::<i64>().expect("a number")
    };
    assert_eq!(left().await, -1);
    node.done(&assign, "hello").await;
    node.expect("job_confirmed").await;
    let left_ms = left().await;
    assert!((3_500_000..=3_600_000).contains(&left_ms), "{left_ms}");
    assert_eq!(lease().await, "");
}

/// Requirements: SLOT-05.
#[tokio::test]
async fn a_reservation_that_is_made_twice_takes_one_slot() {
    let redis = Redis::start().await;
    let proxy = Proxy::to(&format!("127.0.0.1:{}", redis.port)).await;
    let url = format!("redis://{}", proxy.address);
    let settings = [("STORE__URL", &*url), ("SCHEDULER__RESERVATION_TTL_MS", "600000")];
    let s = Scheduler::with(&settings).await;
    s.until("/readyz", 200).await;
    let _node = RawNode::join(&s, "n1", 1000).await;
    let twice = r#"lingua_reserve_total{outcome="duplicate"}"#;
    // Reads without a loss in between.
    let used = async || {
        proxy.lose_a_reply_after(u32::MAX);
        let is_fresh = |reply: &Reply| reply.status == 200 && reply.body["stale"].is_null();
        let node = s.until_reply("/v1/nodes/n1", is_fresh).await.body;
        node["used"].as_u64().expect("a number")
    };
    // One of the replies that a job needs is lost: sooner or later that of its reservation. Then
    // the instance asks again.
    for replies in (0..6).cycle().take(120) {
        let before = used().await;
        proxy.lose_a_reply_after(replies);
        let sent = s.post("/v1/dispatch/f2f", job()).await;
        // On a busy machine the connection breaks twice, and the job is refused.
        if sent.status == 200 {
            assert_eq!(used().await, before + 1, "{}", sent.body);
        }
        if s.metric(twice).await >= 2.0 {
            return;
        }
    }
    panic!("no reply of a reservation was lost");
}
