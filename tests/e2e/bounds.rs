//! What an instance holds is bounded in bytes: beyond that it refuses, and loses nothing.

use serde_json::{Value, json};

use crate::floods::assert_bounded;
use crate::http::Reply;
use crate::memory::resident_kib;
use crate::raw_node::RawNode;
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job, job_with, within};
use crate::session::SessionClient;

const AUDIO_HELD: &str = "lingua_held_bytes{kind=\"audio\"}";
const OPEN_HELD: &str = "lingua_held_bytes{kind=\"open_jobs\"}";
const WAITING_HELD: &str = "lingua_held_bytes{kind=\"waiting_jobs\"}";

/// A job with this many bytes of inline audio; a multiple of three.
fn spoken(bytes: usize, options: Value) -> Value {
    let mut job = job_with(options);
    job["audio_ref"] = Value::Null;
    let data = "AAAA".repeat(bytes / 3);
    job["audio"] = json!({"format": "pcm16", "sample_rate": 16000, "data": data});
    job
}

/// The instance has no room now; it says what is full and when to come back.
fn assert_full(reply: &Reply, what: &str) {
    assert_eq!(reply.error(), (429, "RATE_LIMITED"), "{}", reply.body);
    assert!(reply.body["detail"].as_str().is_some_and(|text| text.contains(what)), "{reply:?}");
    assert!(reply.body["retry_after_ms"].is_u64() && reply.header("retry-after").is_some());
}

#[tokio::test]
async fn inline_audio_of_open_jobs_is_bounded_in_bytes() {
    let s = Scheduler::with(&[("SCHEDULER__AUDIO_BYTES_MAX", "300000")]).await;
    let mut node = RawNode::join(&s, "n1", 4).await;
    s.dispatch(spoken(201_000, json!({}))).await;
    let assign = node.expect("job_assign").await;
    assert_eq!(s.metric(AUDIO_HELD).await, 201_000.0);
    let refused = s.post("/v1/dispatch/f2f", spoken(201_000, json!({}))).await;
    assert_full(&refused, "audio of clients");
    let never = s.post("/v1/dispatch/f2f", spoken(301_000 - 1, json!({}))).await;
    assert_eq!(never.error(), (413, "PAYLOAD_TOO_LARGE"), "{}", never.body);
    // Jobs without audio are not affected, and the refused job fits when the first has ended.
    s.dispatch(job()).await;
    node.done(&assign, "hello").await;
    s.until_metric(AUDIO_HELD, 0.0).await;
    s.dispatch(spoken(201_000, json!({}))).await;
    assert_eq!(s.metric("lingua_bytes_refused_total{kind=\"audio\"}").await, 2.0);
}

#[tokio::test]
async fn open_jobs_are_bounded_in_bytes() {
    let s = Scheduler::with(&[("SCHEDULER__OPEN_BYTES_MAX", "10000")]).await;
    let mut node = RawNode::join(&s, "n1", 4).await;
    let (first, _) = s.dispatch(job()).await;
    let (second, _) = s.dispatch(job()).await;
    assert_full(&s.post("/v1/dispatch/f2f", job()).await, "open jobs");
    assert_full(&s.post("/v1/translate", job()).await, "open jobs");
    for assign in [node.expect("job_assign").await, node.expect("job_assign").await] {
        node.done(&assign, "hello").await;
    }
    for id in [first, second] {
        assert_eq!(s.ended(&id).await["state"], "DONE");
    }
    s.until_metric(OPEN_HELD, 0.0).await;
    s.dispatch(job()).await;
}

#[tokio::test]
async fn a_job_that_never_fits_is_too_large_and_not_told_to_come_again() {
    let s = Scheduler::with(&[("SCHEDULER__OPEN_BYTES_MAX", "4000")]).await;
    let _node = RawNode::join(&s, "n1", 1).await;
    let mut long = job();
    long["text"] = "x".repeat(4001).into();
    long.as_object_mut().expect("an object").remove("audio_ref");
    for path in ["/v1/dispatch/f2f", "/v1/translate"] {
        let reply = s.post(path, long.clone()).await;
        assert_eq!(reply.error(), (413, "PAYLOAD_TOO_LARGE"), "{path}");
        assert_eq!(reply.header("retry-after"), None);
    }
}

#[tokio::test]
async fn waiting_jobs_are_bounded_in_bytes() {
    let s = Scheduler::with(&[("SCHEDULER__WAITING_BYTES_MAX", "150000")]).await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    s.dispatch(job()).await;
    let running = node.expect("job_assign").await;
    let waits = json!({"wait_ms": 15000});
    let waiting = s.post("/v1/translate", spoken(99_000, waits.clone()));
    let rest = async {
        while s.metric(WAITING_HELD).await < 99_000.0 {}
        let refused = s.post("/v1/translate", spoken(99_000, waits)).await;
        assert_full(&refused, "waiting jobs");
        node.done(&running, "hello").await;
        let assign = node.expect("job_assign").await;
        node.ack(&assign).await;
        node.done(&assign, "waited").await;
    };
    let (served, ()) = tokio::join!(waiting, rest);
    assert_eq!(served.body["result"]["text_translated"], "waited", "{}", served.body);
    assert_eq!(s.metric(WAITING_HELD).await, 0.0);
}

/// 100 jobs of 1.5 MB whose clients hang up, as long as no slot is free.
#[tokio::test]
async fn waiting_jobs_with_audio_cost_no_more_memory_than_their_bound() {
    let s = Scheduler::with(&[("SCHEDULER__WAITING_BYTES_MAX", "9000000")]).await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    s.dispatch(job()).await;
    let running = node.expect("job_assign").await;
    let before_kib = resident_kib(&s);
    let body = spoken(1_500_000, json!({"wait_ms": 60_000})).to_string();
    let mut waiting = vec![];
    for _ in 0..100 {
        let (client, body) = (s.new_client(), body.clone());
        waiting.push(tokio::spawn(async move {
            client.send("POST", "/v1/translate", &[], &body).await.status
        }));
        // One body at a time, so that only what waits is measured.
        let refused = "lingua_bytes_refused_total{kind=\"waiting_jobs\"}";
        within(async {
            while s.metric("lingua_queue_jobs").await + s.metric(refused).await
                < waiting.len() as f64
            {}
        })
        .await;
    }
    assert_eq!(s.metric("lingua_queue_jobs").await, 5.0);
    let after_kib = resident_kib(&s);
    assert_bounded(before_kib, after_kib);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    s.until_metric(WAITING_HELD, 0.0).await;
    node.done(&running, "hello").await;
}

/// 100 MB of fields that nobody knows, with jobs that stay open and jobs that end.
#[tokio::test]
async fn fields_that_nobody_knows_leave_no_memory_behind() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 100).await;
    let mut body = job();
    body["unknown"] = json!({"deep": "x".repeat(500_000)});
    s.dispatch(body.clone()).await;
    node.expect("job_assign").await;
    let before_kib = resident_kib(&s);
    for n in 0..200 {
        s.dispatch(body.clone()).await;
        let assign = node.expect("job_assign").await;
        assert!(assign["unknown"].is_null() && assign.to_string().len() < 2_000, "{assign}");
        node.ack(&assign).await;
        if n >= 90 {
            node.done(&assign, "hello").await;
            node.expect("job_confirmed").await;
        }
    }
    let after_kib = resident_kib(&s);
    assert_bounded(before_kib, after_kib);
    let listed = s.get("/v1/jobs?limit=1000").await.text;
    assert!(!listed.contains("xxxx") && listed.len() < 1_000_000, "{} bytes", listed.len());
}

#[tokio::test]
async fn audio_of_sessions_is_bounded_in_bytes_and_the_session_goes_on() {
    let s = Scheduler::with(&[("SCHEDULER__AUDIO_BYTES_MAX", "70000")]).await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let mut client = SessionClient::start(&s).await;
    let frame = vec![1; 32_000];
    for _ in 0..3 {
        client.send_bytes(frame.clone()).await;
    }
    let error = client.expect("error").await;
    assert_eq!((&error["error"], &error["fatal"]), (&json!("RATE_LIMITED"), &json!(false)));
    let detail = error["detail"].as_str().expect("a detail");
    assert!(detail.contains("audio of clients") && detail.contains("dropped"), "{detail}");
    client.send(json!({"type": "turn_end"})).await;
    let assign = node.expect("job_assign").await;
    assert_eq!(assign["audio"]["bytes"], 64_000, "what was taken is translated");
    node.done(&assign, "hello").await;
    assert_eq!(client.outcome().await["text_translated"], "hello");
    s.until_metric(AUDIO_HELD, 0.0).await;
    client.send_bytes(frame).await;
    client.send(json!({"type": "turn_end"})).await;
    assert_eq!(node.expect("job_assign").await["audio"]["bytes"], 32_000);
}

/// Ends so many jobs with a kilobyte of text each; gives their ids.
async fn end_jobs(s: &Scheduler, count: usize) -> Vec<String> {
    let mut node = RawNode::join(s, "n1", 1).await;
    let mut ids = vec![];
    for _ in 0..count {
        let done = async {
            let assign = node.expect("job_assign").await;
            node.done(&assign, &"x".repeat(1_000)).await;
        };
        let (reply, ()) = tokio::join!(s.post("/v1/translate", job()), done);
        ids.push(reply.body["job_id"].as_str().expect("an id").to_owned());
    }
    ids
}

/// Of ended jobs with 1.5 to 2.5 kB each, those that fit into 100,000 bytes are kept.
async fn keeps_the_newest_that_fit(s: &Scheduler, count: usize) {
    let ids = end_jobs(s, count).await;
    let listed = s.get("/v1/jobs?limit=1000").await.body;
    let kept = listed["jobs"].as_array().map_or(0, Vec::len);
    assert!((16..=66).contains(&kept), "{kept} of {count} jobs are kept");
    assert_eq!(s.get(&format!("/v1/jobs/{}", ids[0])).await.error(), (404, "JOB_NOT_FOUND"));
    assert_eq!(s.get(&format!("/v1/jobs/{}", ids[count - 1])).await.body["state"], "DONE");
}

#[tokio::test]
async fn ended_jobs_are_bounded_in_bytes() {
    let s = Scheduler::with(&[("STORE__ENDED_BYTES_MAX", "100000")]).await;
    keeps_the_newest_that_fit(&s, 100).await;
    within(async {
        let held = || s.metric("lingua_held_bytes{kind=\"ended_jobs\"}");
        while !(50_000.0..=100_000.0).contains(&held().await) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn ended_jobs_are_bounded_in_bytes_in_redis() {
    let redis = Redis::start().await;
    let url = redis.url();
    let s = Scheduler::with(&[("STORE__URL", &*url), ("STORE__ENDED_BYTES_MAX", "100000")]).await;
    keeps_the_newest_that_fit(&s, 250).await;
}
