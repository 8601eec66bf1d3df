//! The metrics that dashboards and alerts may use.

use serde_json::json;

use crate::events::EventStream;
use crate::raw_node::RawNode;
use crate::scheduler::{Scheduler, job, job_with, within};

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

/// Requirements: OBS-10.
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

/// Requirements: OBS-09, OBS-10.
#[tokio::test]
async fn a_pool_that_lost_its_last_node_keeps_its_series() {
    let s = Scheduler::with(&[
        ("SCHEDULER__HEARTBEAT_INTERVAL_MS", "500"),
        ("SCHEDULER__HEARTBEAT_STALE_MS", "1500"),
    ])
    .await;
    let node = RawNode::join(&s, "n1", 3).await;
    let nodes = r#"lingua_pool_nodes{pair="zh:en",state="ready"}"#;
    let free = r#"lingua_pool_slots{pair="zh:en",state="free"}"#;
    s.until_reply("/metrics", |reply| reply.text.contains(nodes)).await;
    s.until_metric(free, 3.0).await;
    node.close().await;
    s.until_metric(nodes, 0.0).await;
    s.until_metric(free, 0.0).await;
    // A node that has just gone still counts as capable.
    within(async {
        loop {
            let nobody = s.post("/v1/dispatch/f2f", job_with(json!({"wait_ms": 0}))).await;
            if nobody.error() == (503, "NO_CAPABLE_NODE") {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    let text = s.get("/metrics").await.text;
    let failed: f64 = ["NO_CAPABLE_NODE", "ALL_CANDIDATES_FULL_OR_FAILED"]
        .iter()
        .filter_map(|reason| {
            let name = format!("lingua_jobs_failed_total{{reason=\"{reason}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&name)?.parse::<f64>().ok())
        })
        .sum();
    assert!(failed >= 1.0, "{text}");
    assert_eq!(s.metric(r#"lingua_pool_empty_total{pair="zh:en"}"#).await, 1.0, "not `other`");
}

/// Requirements: OBS-18.
#[tokio::test]
async fn nodes_that_get_no_jobs_because_of_their_load_are_counted() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    node.heartbeat(json!({"current_load": {"cpu": 0.2, "gpu": 0.95, "memory": 0.1}})).await;
    assert_eq!(s.metric(r#"lingua_node_overload_total{resource="gpu"}"#).await, 1.0);
    assert_eq!(s.metric(r#"lingua_node_overload_total{resource="cpu"}"#).await, 0.0);
    s.until_metric(r#"lingua_nodes_overloaded{resource="gpu"}"#, 1.0).await;
}

#[tokio::test]
async fn the_age_of_the_oldest_waiting_job_is_shown() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    s.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    assert_eq!(s.metric("lingua_queue_oldest_seconds").await, 0.0);
    let client = s.new_client();
    let waiting = tokio::spawn(async move {
        client.post("/v1/dispatch/f2f", job_with(json!({"wait_ms": 15_000}))).await.status
    });
    s.until_reply("/metrics", |reply| {
        let name = "lingua_queue_oldest_seconds ";
        let age = reply.text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
        age > Some(0.5)
    })
    .await;
    node.ack(&assign).await;
    node.done(&assign, "hello").await;
    node.work().await;
    assert_eq!(waiting.await.expect("a reply"), 200);
    s.until_metric("lingua_queue_oldest_seconds", 0.0).await;
}

#[tokio::test]
async fn requests_are_counted_by_route_and_status_with_bounded_labels() {
    let s = Scheduler::start().await;
    s.get("/v1/nodes/nobody").await;
    for n in 0..5 {
        s.get(&format!("/nowhere/{n}")).await;
        s.send(&format!("M{n}"), "/v1/nodes", &[], "").await;
    }
    let foreign = [("Origin", "https://evil.example")];
    s.send("GET", "/v1/nodes", &foreign, "").await;
    let requests = |route: &str, method: &str, status: &str| {
        let labels = format!(r#"route="{route}",method="{method}",status="{status}""#);
        format!("lingua_http_requests_total{{{labels}}}")
    };
    assert_eq!(s.metric(&requests("/v1/nodes/{id}", "GET", "404")).await, 1.0);
    assert_eq!(s.metric(&requests("none", "GET", "404")).await, 5.0);
    assert_eq!(s.metric(&requests("/v1/nodes", "other", "405")).await, 5.0);
    assert_eq!(s.metric(&requests("/v1/nodes", "GET", "403")).await, 1.0);
    assert_eq!(s.metric(r#"lingua_auth_failures_total{reason="foreign_origin"}"#).await, 1.0);
}

#[tokio::test]
async fn the_process_and_the_build_are_shown() {
    let s = Scheduler::start().await;
    for (name, least) in [
        ("process_cpu_seconds_total", 0.0),
        ("process_resident_memory_bytes", 1e6),
        ("process_open_fds", 3.0),
        ("process_max_fds", 3.0),
        ("process_start_time_seconds", 1.7e9),
    ] {
        assert!(s.metric(name).await >= least, "{name}");
    }
    let text = s.get("/metrics").await.text;
    assert!(text.contains("lingua_build_info{version=\""), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
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

/// Requirements: OBS-13, OBS-14, OBS-15, OBS-16.
#[tokio::test]
async fn jobs_slots_and_times_are_counted_right() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 5).await;
    let mut assigned = vec![];
    for _ in 0..2 {
        s.dispatch(job()).await;
        assigned.push(node.expect("job_assign").await);
    }
    let mut nobody = job_with(json!({"wait_ms": 0}));
    nobody["src_lang"] = json!("ko");
    assert_eq!(s.post("/v1/dispatch/f2f", nobody).await.status, 503);
    // Two of five slots are in use, and two of three jobs found a node.
    s.until_metric("lingua_node_used_slots", 2.0).await;
    assert_eq!(s.metric("lingua_node_max_slots").await, 5.0);
    assert_eq!(s.metric(r#"lingua_nodes{state="ready"}"#).await, 1.0);
    assert_eq!(s.metric(r#"lingua_dispatch_total{outcome="sent"}"#).await, 2.0);
    assert_eq!(s.metric(r#"lingua_reserve_total{outcome="granted"}"#).await, 2.0);
    assert_eq!(s.metric(r#"lingua_jobs_failed_total{reason="NO_CAPABLE_NODE"}"#).await, 1.0);
    // Each takes 300 ms from its ack to its end.
    for assign in &assigned {
        node.ack(assign).await;
    }
    node.heartbeat(json!({})).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    for assign in &assigned {
        node.done(assign, "hello").await;
        assert_eq!(node.expect("job_confirmed").await["accepted"], true);
    }
    s.until_metric(r#"lingua_jobs_total{state="DONE"}"#, 2.0).await;
    assert_eq!(s.metric(r#"lingua_jobs_total{state="FAILED"}"#).await, 1.0);
    s.until_metric("lingua_node_used_slots", 0.0).await;
    assert_eq!(s.metric("lingua_dispatch_seconds_count").await, 2.0);
    let stage = async |stage: &str, what: &str| {
        s.metric(&format!("lingua_job_seconds_{what}{{stage=\"{stage}\"}}")).await
    };
    assert_eq!(stage("run", "count").await, 2.0);
    let (run, total) = (stage("run", "sum").await, stage("total", "sum").await);
    assert!(run >= 0.6 && total >= run, "{run} {total}");
    let dispatch = s.metric("lingua_dispatch_seconds_sum").await;
    assert!(dispatch < total - run + 0.01, "{dispatch} {total} {run}");
}
