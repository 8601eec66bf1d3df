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
    let s = Scheduler::with(&[("SCHEDULER__HEARTBEAT_INTERVAL_MS", "100")]).await;
    let mut node = RawNode::join(&s, "quiet", 1).await;
    // Reading answers pings. The node sends nothing else for ten heartbeat intervals.
    tokio::time::timeout(Duration::from_secs(1), node.next()).await.expect_err("no message");
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
