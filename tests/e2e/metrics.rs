//! The metrics that dashboards and alerts may use.

use serde_json::json;

use crate::events::EventStream;
use crate::raw_node::RawNode;
use crate::scheduler::{Scheduler, job, job_with};

/// Every name that dashboards and alerts may use.
const NAMES: [&str; 26] = [
    "lingua_reserve_total{outcome=",
    "lingua_reserve_seconds_count",
    "lingua_dispatch_seconds_count",
    "lingua_dispatch_total{outcome=",
    "lingua_pool_empty_total{pair=",
    "lingua_ack_timeout_total",
    "lingua_job_retries_total{reason=",
    "lingua_jobs_total{state=",
    "lingua_job_seconds_count{stage=",
    "lingua_queue_jobs",
    "lingua_queue_wait_seconds_count",
    "lingua_node_rejected_total{reason=",
    "lingua_nodes{state=",
    "lingua_node_used_slots",
    "lingua_node_max_slots",
    "lingua_pool_nodes{",
    "lingua_leader ",
    "lingua_leader_changes_total",
    "lingua_pool_table_version",
    "lingua_pool_table_lag_seconds",
    "lingua_store_up 1",
    "lingua_store_seconds_count{op=",
    "lingua_sessions 0",
    "lingua_connections{kind=\"node\"}",
    "lingua_connections{kind=\"client\"}",
    "lingua_connections{kind=\"events\"}",
];

/// The metric that counts the open connections of a kind.
fn connections(kind: &str) -> String {
    format!("lingua_connections{{kind=\"{kind}\"}}")
}

/// Requirements: OBS-10, OBS-13, OBS-14, OBS-15, OBS-17, OBS-26.
#[tokio::test]
async fn every_published_metric_is_exported() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let (id, _) = s.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    node.report("job_fail", &assign, json!({"reason": "BUSY"})).await;
    node.work().await;
    s.ended(&id).await;
    node.report("job_done", &assign, json!({})).await;
    assert_eq!(node.expect("job_confirmed").await["accepted"], false);
    let mut nobody = job_with(json!({"wait_ms": 0}));
    nobody["src_lang"] = json!("ko");
    assert_eq!(s.post("/v1/dispatch/f2f", nobody).await.status, 503);
    // The pool table is published a little later.
    s.until_reply("/metrics", |reply| {
        NAMES.iter().all(|name| reply.text.lines().any(|line| line.starts_with(name)))
    })
    .await;
}

#[tokio::test]
async fn connections_are_counted_by_kind_while_they_are_open() {
    let s = Scheduler::start().await;
    let (client, node, events) =
        (connections("client"), connections("node"), connections("events"));
    assert_eq!(s.metric(&node).await, 0.0);
    assert_eq!(s.metric(&client).await, 1.0, "the client that reads the metrics");
    let raw_node = RawNode::join(&s, "n1", 1).await;
    s.until_metric(&node, 1.0).await;
    s.until_metric(&client, 1.0).await;
    let stream = EventStream::open(&s).await;
    s.until_metric(&events, 1.0).await;
    s.until_metric(&client, 2.0).await;
    drop(stream);
    raw_node.crash();
    s.until_metric(&node, 0.0).await;
    s.until_metric(&events, 0.0).await;
    s.until_metric(&client, 1.0).await;
}
