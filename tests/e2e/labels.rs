//! Labels of nodes: a job goes only to nodes that have all the labels that it requires.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::callers::{secret, token};
use crate::raw_node::{RawNode, register};
use crate::redis::Redis;
use crate::scheduler::{Scheduler, binary, job_with, run};
use crate::session::SessionClient;

fn labelled(id: &str, labels: Value) -> Value {
    let mut message = register(id, 4);
    message["labels"] = labels;
    message
}

async fn why(s: &Scheduler, body: &Value, node: &str) -> Option<String> {
    let explained = s.post("/v1/explain", body.clone()).await.body;
    let nodes = explained["nodes"].as_array().expect("nodes");
    let verdict = nodes.iter().find(|known| known["node_id"] == node).expect("the node");
    verdict["why"].as_str().map(str::to_owned)
}

async fn jobs_find_nodes_with_their_labels(s: &Scheduler) {
    let mut us = RawNode::join_with(s, labelled("us", json!(["us", "gpu"]))).await;
    let eu_only = job_with(json!({"labels": ["eu", "gpu"], "wait_ms": 0}));
    let refused = s.post("/v1/dispatch/f2f", eu_only.clone()).await;
    assert_eq!(refused.error(), (503, "NO_CAPABLE_NODE"));
    assert!(refused.text.contains("label eu missing"), "{}", refused.text);
    assert_eq!(why(s, &eu_only, "us").await.as_deref(), Some("label eu missing"));

    let mut eu = RawNode::join_with(s, labelled("eu", json!({"region": "eu"}))).await;
    eu.heartbeat(json!({"labels": ["gpu", "eu"]})).await;
    for _ in 0..4 {
        assert_eq!(s.dispatch(eu_only.clone()).await.1, "eu");
        let assign = eu.work().await;
        assert_eq!(assign["options"]["labels"], json!(["eu", "gpu"]), "the node may want to know");
    }
    let shown = s.get("/v1/nodes/eu").await.body;
    assert_eq!(shown["labels"], json!(["eu", "gpu"]), "what a heartbeat says replaces them");
    let pinned = json!({
        "labels": {"region": "eu"}, "preferred_node_id": "eu", "strict": true, "wait_ms": 0,
    });
    let refused = s.post("/v1/dispatch/f2f", job_with(pinned)).await;
    assert_eq!(refused.error(), (422, "PREFERRED_NODE_NOT_CAPABLE"), "{}", refused.text);
    // Without labels any node will do, and heartbeats that leave them out change nothing.
    let only_us = job_with(json!({"exclude_node_ids": ["eu"]}));
    us.heartbeat(json!({})).await;
    assert_eq!(s.dispatch(only_us).await.1, "us");
    assert!(us.work().await["options"]["labels"].is_null());
    assert_eq!(s.get("/v1/nodes/us").await.body["labels"], json!(["gpu", "us"]));
}

#[tokio::test]
async fn a_job_goes_only_to_nodes_with_its_labels() {
    jobs_find_nodes_with_their_labels(&Scheduler::start().await).await;
}

#[tokio::test]
async fn a_job_goes_only_to_nodes_with_its_labels_over_redis() {
    let redis = Redis::start().await;
    let s = Scheduler::with(&[("STORE__URL", &redis.url())]).await;
    jobs_find_nodes_with_their_labels(&s).await;
}

#[tokio::test]
async fn a_session_requires_labels_for_all_that_is_said() {
    let s = Scheduler::start().await;
    let _us = RawNode::join_with(&s, labelled("us", json!(["us"]))).await;
    let mut client = SessionClient::start_with(&s, json!({"labels": ["eu"]})).await;
    let warning = client.started["warning"].as_str().expect("a warning");
    assert!(warning.contains("with these labels serves zh:en"), "{warning}");
    let mut eu = RawNode::join_with(&s, labelled("eu", json!(["eu"]))).await;
    client.send(json!({"type": "text", "text": "你好"})).await;
    assert_eq!(eu.work().await["options"]["labels"], json!(["eu"]));
    assert_eq!(client.outcome().await["text_translated"], "hello");
}

#[tokio::test]
async fn too_many_and_malformed_labels_are_refused() {
    let s = Scheduler::start().await;
    let many: Vec<String> = (0..33).map(|n| format!("l{n}")).collect();
    for labels in [json!(["a b"]), json!([""]), json!([7]), json!("eu"), json!(many)] {
        let reply = s.post("/v1/dispatch/f2f", job_with(json!({"labels": labels}))).await;
        assert_eq!(reply.error(), (400, "INVALID_REQUEST"), "{labels}: {}", reply.text);
        assert!(reply.text.contains("labels"), "{}", reply.text);
        let reply = s.post("/v1/node/register", labelled("n", labels.clone())).await;
        assert_eq!(reply.error(), (400, "INVALID_REQUEST"), "{labels}: {}", reply.text);
    }
    let long = job_with(json!({"labels": ["a".repeat(63), "b".repeat(63), "c"]}));
    let reply = s.post("/v1/dispatch/f2f", long).await;
    assert_eq!(reply.error(), (400, "INVALID_REQUEST"), "{}", reply.text);
    assert!(reply.text.contains("options.labels"), "{}", reply.text);
}

#[tokio::test]
async fn the_command_gives_its_nodes_labels() {
    let s = Scheduler::start().await;
    let url = format!("http://{}", s.address);
    let _node = Command::new(binary())
        .args(["node", "--url", &url, "--id", "gpu", "--labels", "eu,region:eu"])
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("the program starts");
    let node = s.until_reply("/v1/nodes/gpu", |reply| reply.status == 200).await;
    assert_eq!(node.body["labels"], json!(["eu", "region:eu"]));
    let (code, out, err) = run(&["nodes", "show", "gpu", "--url", &url], &[]).await;
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("region:eu"), "{out}");
    assert_eq!(s.dispatch(job_with(json!({"labels": ["eu"]}))).await.1, "gpu");
}

/// A session that says so uses nodes of its own tenant only, whatever the tenant's rule.
#[tokio::test]
async fn a_private_session_goes_to_nodes_of_its_own_tenant() {
    let tokens = token("alice-app", "client", "tenant = \"alice\"")
        + &token("alice-gpu", "node", "tenant = \"alice\"")
        + &token("bob-gpu", "node", "tenant = \"bob\"")
        + "[[auth.tenants]]\nname = \"alice\"\n";
    let s = Scheduler::from_toml(&tokens).await;
    let join = async |who: &str, id: &str| {
        RawNode::join_at(&s.address, Some(&secret(who)), register(id, 4)).await
    };
    let mut bob = join("bob-gpu", "bobs").await;
    let open = async |public: Value| {
        let start = json!({
            "type": "session_start", "src_lang": "zh", "tgt_lang": "en", "public": public,
        });
        SessionClient::open_as(&s.address, start, Some(&secret("alice-app"))).await
    };
    let mut private = open(json!(false)).await;
    assert!(private.started["warning"].is_string(), "{}", private.started);
    private.send(json!({"type": "text", "text": "mine"})).await;
    assert_eq!(private.outcome().await["error"], "NO_CAPABLE_NODE");
    let mut public = open(Value::Null).await;
    assert!(public.started["warning"].is_null(), "{}", public.started);
    public.send(json!({"type": "text", "text": "anybody's"})).await;
    bob.work().await;
    assert_eq!(public.outcome().await["text_translated"], "hello");
    let mut own = join("alice-gpu", "alices").await;
    private.send(json!({"type": "text", "text": "mine again"})).await;
    assert_eq!(own.work().await["text"], "mine again");
    assert_eq!(private.outcome().await["text_translated"], "hello");
}
