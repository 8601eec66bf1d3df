//! Peers that vanish: the connection stays open and nothing comes any more.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::proxy::Proxy;
use crate::raw_node::{RawNode, register};
use crate::scheduler::{Scheduler, job, job_with, within};

const NODE_CONNECTIONS: &str = r#"lingua_connections{kind="node"}"#;
const CLIENT_CONNECTIONS: &str = r#"lingua_connections{kind="client"}"#;

/// Requirements: JOB-29.
#[tokio::test]
async fn a_job_of_a_node_that_vanishes_is_retried_elsewhere() {
    let s = Scheduler::with(&[("SCHEDULER__HEARTBEAT_INTERVAL_MS", "200")]).await;
    let proxy = Proxy::to(&s.address).await;
    let mut lost = RawNode::join_at(&proxy.address, None, register("lost", 1)).await;
    let (id, node) = s.dispatch(job()).await;
    assert_eq!(node, "lost");
    let assign = lost.expect("job_assign").await;
    lost.ack(&assign).await;
    let mut other = RawNode::join(&s, "other", 1).await;
    proxy.freeze();
    let again = other.work().await;
    assert_eq!((&again["job_id"], &again["attempt_id"]), (&json!(id), &json!(2)));
    let ended = s.ended(&id).await;
    assert_eq!((&ended["state"], &ended["node_id"]), (&json!("DONE"), &json!("other")));
    assert_eq!(s.get("/v1/nodes/lost").await.body["state"], "offline");
    assert_eq!(s.metric(NODE_CONNECTIONS).await, 1.0);
}

/// Requirements: NODE-38.
#[tokio::test]
async fn a_node_that_only_answers_pings_stays_connected() {
    let s = Scheduler::with(&[("SCHEDULER__HEARTBEAT_INTERVAL_MS", "250")]).await;
    let mut node = RawNode::join(&s, "quiet", 1).await;
    // Reading answers pings. The node sends nothing else for eight heartbeat intervals.
    tokio::time::timeout(Duration::from_secs(2), node.next()).await.expect_err("no message");
    assert_eq!(s.metric(NODE_CONNECTIONS).await, 1.0);
}

#[tokio::test]
async fn a_client_that_vanishes_in_its_headers_body_or_response_is_disconnected() {
    let limits = [("SERVER__FIRST_MESSAGE_MS", "300"), ("SERVER__BODY_MS", "300")];
    let s = Scheduler::with(&limits).await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let proxy = Proxy::to(&s.address).await;
    let body = job_with(json!({"wait_ms": 0})).to_string();
    let whole = format!(
        "POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (in_headers, in_body) = (&whole[..30], &whole[..whole.len() - 10]);
    let mut streams = vec![];
    for part in [in_headers, in_body, &whole] {
        let mut stream = TcpStream::connect(&proxy.address).await.expect("the proxy accepts");
        stream.write_all(part.as_bytes()).await.expect("written");
        streams.push(stream);
    }
    let assign = node.expect("job_assign").await;
    // The client of the metrics, and the one that waits for its response.
    s.until_metric(CLIENT_CONNECTIONS, 2.0).await;
    proxy.freeze();
    node.report("job_done", &assign, json!({})).await;
    assert_eq!(s.ended(assign["job_id"].as_str().expect("an id")).await["state"], "DONE");
    s.until_metric(CLIENT_CONNECTIONS, 1.0).await;
    drop(streams);
}

#[tokio::test]
async fn a_body_that_does_not_arrive_in_time_is_a_bad_request() {
    let s = Scheduler::with(&[("SERVER__BODY_MS", "200")]).await;
    let mut stream = TcpStream::connect(&s.address).await.expect("the scheduler accepts");
    let head =
        "POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{\"src";
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut response = String::new();
    within(stream.read_to_string(&mut response)).await.expect("a response, then the end");
    assert!(response.starts_with("HTTP/1.1 408"), "{response}");
    assert!(response.contains("did not arrive within 200 ms"), "{response}");
}

/// Requirements: JOB-18.
#[tokio::test]
async fn jobs_that_a_node_does_not_read_go_to_another() {
    let settings = [("SERVER__WRITE_MS", "300"), ("SCHEDULER__RESERVATION_TTL_MS", "60000")];
    let s = Scheduler::with(&settings).await;
    let unread = RawNode::join(&s, "unread", 8).await;
    let _reads = RawNode::join(&s, "reads", 8).await.serve(8, Duration::ZERO);
    // Far more than the buffers of a connection hold.
    let mut spoken = job_with(json!({"preferred_node_id": "unread"}));
    let sound = "A".repeat(2 << 20);
    spoken["audio"] = json!({"format": "pcm16", "sample_rate": 16000, "data": sound});
    spoken["audio_ref"] = serde_json::Value::Null;
    let mut jobs = vec![];
    for _ in 0..8 {
        jobs.push(s.dispatch(spoken.clone()).await.0);
    }
    let mut unread_jobs = 0;
    for id in jobs {
        let ended = s.ended(&id).await;
        assert_eq!((&ended["state"], &ended["node_id"]), (&json!("DONE"), &json!("reads")));
        unread_jobs += usize::from(ended["attempts"][0]["node_id"] == "unread");
    }
    assert!(unread_jobs > 0, "no job was sent to the node that does not read");
    drop(unread);
}

/// The limit of a body is its own, not that of a request's head.
#[tokio::test]
async fn a_body_that_arrives_slowly_but_in_time_is_read() {
    let limits = [("SERVER__FIRST_MESSAGE_MS", "300"), ("SERVER__BODY_MS", "15000")];
    let s = Scheduler::with(&limits).await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let body = job().to_string();
    let bytes = body.len();
    let head = format!("POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {bytes}");
    let mut stream = TcpStream::connect(&s.address).await.expect("the scheduler accepts");
    stream.write_all(format!("{head}\r\n\r\n").as_bytes()).await.expect("sent");
    for part in body.as_bytes().chunks(bytes.div_ceil(8)) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        stream.write_all(part).await.expect("the connection is open");
    }
    within(node.work()).await;
    let mut status = [0; 12];
    within(stream.read_exact(&mut status)).await.expect("a response");
    assert_eq!(&status, b"HTTP/1.1 200");
}
