//! What is counted.

use std::time::Duration;

use serde_json::json;

use crate::events::Watch;
use crate::world::{Node, Scheduler, job, job_with, within};

/// Every name that people make graphs and alerts of.
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

impl Scheduler {
    async fn connections(&self, kind: &str) -> i64 {
        let start = format!("lingua_connections{{kind=\"{kind}\"}} ");
        let metrics = self.get("/metrics").await.text;
        let line = metrics.lines().find_map(|line| line.strip_prefix(&start));
        line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{metrics}"))
    }

    async fn wait_connections(&self, kind: &str, wanted: i64) {
        within(async {
            while self.connections(kind).await != wanted {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn every_metric_of_the_contract_is_there() {
    let s = Scheduler::start().await;
    let mut node = Node::join(&s, "n1", 1).await;
    let (id, _) = s.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    node.say("job_fail", &assign, json!({"reason": "BUSY"})).await;
    node.work().await;
    s.ended(&id).await;
    node.say("job_done", &assign, json!({})).await;
    assert_eq!(node.expect("job_confirmed").await["accepted"], false);
    let mut nobody = job_with(json!({"wait_ms": 0}));
    nobody["src_lang"] = json!("ko");
    assert_eq!(s.post("/v1/dispatch/f2f", nobody).await.status, 503);
    let missing = async {
        loop {
            let metrics = s.get("/metrics").await.text;
            let missing: Vec<_> = NAMES
                .iter()
                .filter(|name| !metrics.lines().any(|line| line.starts_with(**name)))
                .collect();
            // The pool table follows what happens a little later.
            if missing.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    within(missing).await;
}

#[tokio::test]
async fn connections_are_counted_by_kind_for_as_long_as_they_last() {
    let s = Scheduler::start().await;
    assert_eq!(s.connections("node").await, 0);
    assert_eq!(s.connections("client").await, 1, "the one that asks");
    let node = Node::join(&s, "n1", 1).await;
    s.wait_connections("node", 1).await;
    s.wait_connections("client", 1).await;
    let watch = Watch::open(&s).await;
    s.wait_connections("events", 1).await;
    s.wait_connections("client", 2).await;
    drop(watch);
    node.drop_dead();
    s.wait_connections("node", 0).await;
    s.wait_connections("events", 0).await;
    s.wait_connections("client", 1).await;
}
