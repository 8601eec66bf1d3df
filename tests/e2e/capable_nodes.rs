//! Which nodes can do a job: languages, repair, services, health, load, exclusion.

use serde_json::{Value, json};

use crate::http::Reply;
use crate::raw_node::{RawNode, register, register_langs};
use crate::scheduler::{Scheduler, job_with};

fn job(src: &str, tgt: &str, options: Value) -> Value {
    json!({"src_lang": src, "tgt_lang": tgt, "audio_ref": "blob://1", "options": options})
}

/// Dispatches a job that does not wait.
async fn send(s: &Scheduler, src: &str, tgt: &str, options: Value) -> Reply {
    let mut body = job(src, tgt, options);
    body["options"]["wait_ms"] = json!(0);
    s.post("/v1/dispatch/f2f", body).await
}

#[track_caller]
fn assert_incapable(reply: &Reply, lack: &str) {
    assert_eq!(reply.error(), (503, "NO_CAPABLE_NODE"), "{reply:?}");
    let detail = reply.body["detail"].as_str().expect("a detail");
    assert!(detail.contains(lack), "{detail}");
}

fn lists(id: &str, asr: &[&str], semantic: &[&str], tts: &[&str]) -> Value {
    json!({
        "type": "register", "node_id": id,
        "asr_langs": asr, "semantic_langs": semantic, "tts_langs": tts,
    })
}

/// Requirements: POOL-05, POOL-06, CONF-08, NODE-15, OBS-08.
#[tokio::test]
async fn the_repair_rule_decides_how_many_pools_a_node_has() {
    let (five, four) = (["zh", "en", "ja", "ko", "de"], ["zh", "en", "ja", "ko"]);
    let three = ["zh", "en", "de"];
    for (rule, pairs) in [("declared", [9, 6, 20]), ("source", [3, 2, 4]), ("both", [1, 1, 1])] {
        let s = Scheduler::with(&[("POOLS__SEMANTIC_RULE", rule)]).await;
        let nodes = [(&three[..], &three[..]), (&three, &["zh", "en"]), (&five, &four)];
        for ((asr, tts), pairs) in nodes.into_iter().zip(pairs) {
            let node = lists("n1", asr, &["zh"], tts);
            let reply = s.post("/v1/node/register", node).await.body;
            assert_eq!(reply["pairs"], pairs, "{rule}: {reply}");
            let shown = s.get("/v1/nodes/n1").await.body;
            assert_eq!((&shown["pairs"], &shown["max"]), (&json!(pairs), &json!(4)), "{shown}");
        }
    }
}

/// Requirements: POOL-02, POOL-03, POOL-09, POOL-12, POOL-13, JOB-11.
#[tokio::test]
async fn a_node_gets_the_languages_that_it_recognises_repairs_translates_and_speaks() {
    let s = Scheduler::start().await;
    let mut node = lists("n1", &["zh", "fr"], &["zh"], &["en"]);
    node["nmt_pairs"] = json!([["zh", "en"], ["zh", "ja"], ["fr", "en"]]);
    let _node = RawNode::join_with(&s, node).await;
    let none = json!({});
    assert_eq!(send(&s, "zh", "en", json!({"require_tts": true})).await.status, 200);
    assert_eq!(send(&s, "zh", "ja", none.clone()).await.status, 200, "as text");
    assert_eq!(send(&s, "auto", "ja", none.clone()).await.status, 200, "from zh");
    assert_incapable(&send(&s, "zh", "ja", json!({"require_tts": true})).await, "ja");
    assert_incapable(&send(&s, "en", "ja", none.clone()).await, "en");
    assert_incapable(&send(&s, "fr", "en", none.clone()).await, "fr");
    assert_incapable(&send(&s, "zh", "ko", none.clone()).await, "ko");
    assert_incapable(&send(&s, "auto", "ko", none).await, "ko");
}

/// Requirements: POOL-23, POOL-24, PICK-03, PICK-04, PICK-08.
#[tokio::test]
async fn a_node_without_a_service_does_not_get_jobs_that_need_it() {
    let s = Scheduler::start().await;
    let with = async |id: &str, services: Value| {
        let mut node = register(id, 4);
        node["services"] = services;
        RawNode::join_with(&s, node).await
    };
    let _usual = with("usual", json!({})).await;
    let _deaf = with("deaf", json!({"asr": false, "tone": true})).await;
    let tone = json!({"services": ["tone"]});
    assert_incapable(&send(&s, "zh", "en", tone.clone()).await, "tone");
    let text = json!({"src_lang": "zh", "tgt_lang": "en", "text": "x", "options": tone});
    assert_eq!(s.dispatch(text).await.1, "deaf", "a text needs no recognition");
    for _ in 0..4 {
        assert_eq!(send(&s, "zh", "en", json!({})).await.body["node_id"], "usual");
    }
    let _other = RawNode::join(&s, "other", 4).await;
    for excluded in [json!(["usual"]), json!(["usual", "nobody"])] {
        let reply = send(&s, "zh", "en", json!({"exclude_node_ids": excluded})).await;
        assert_eq!(reply.body["node_id"], "other", "{reply:?}");
    }
    let all = send(&s, "zh", "en", json!({"exclude_node_ids": ["usual", "other"]})).await;
    assert_eq!(all.status, 503, "{all:?}");
}

/// Requirements: POOL-08, POOL-20, POOL-21, POOL-25, NODE-35.
#[tokio::test]
async fn a_heartbeat_changes_the_pools_of_a_node() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join_with(&s, register_langs("n1", 2, &["zh", "en"])).await;
    assert_incapable(&send(&s, "ja", "en", json!({})).await, "ja");
    let langs = json!(["zh", "en", "ja"]);
    node.heartbeat(json!({"asr_langs": langs, "semantic_langs": langs})).await;
    assert_eq!(send(&s, "ja", "en", json!({})).await.status, 200);
    assert_eq!(send(&s, "zh", "en", json!({})).await.status, 200, "two pairs at once");
    let full = send(&s, "zh", "en", json!({})).await;
    assert_eq!(full.error(), (503, "ALL_CANDIDATES_FULL_OR_FAILED"), "slots count by node");
    for _ in 0..2 {
        node.work().await;
    }
    node.heartbeat(json!({"asr_langs": ["en", "ja"]})).await;
    assert_incapable(&send(&s, "zh", "en", json!({})).await, "zh");
    assert_eq!(s.get("/v1/pools/zh:en").await.status, 404);
    assert_eq!(send(&s, "ja", "en", json!({})).await.status, 200, "what it did not name stays");
}

/// Requirements: PICK-02, PICK-07, POOL-26, OBS-12.
#[tokio::test]
async fn a_degraded_or_overloaded_node_gets_no_job_and_keeps_its_pools() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 4).await;
    let at_once = || job_with(json!({"wait_ms": 0}));
    let reports = [
        (json!({"health": "degraded"}), 503),
        (json!({"health": "ready"}), 200),
        (json!({"current_load": {"cpu": 0.2, "gpu": 0.95, "memory": 0.3}}), 503),
        (json!({"current_load": {"cpu": 0.2, "memory": 0.3}}), 503),
        (json!({"current_load": {"cpu": 0.2, "gpu": 0.1, "memory": 0.3}}), 200),
    ];
    for (report, status) in reports {
        node.heartbeat(report.clone()).await;
        let reply = s.post("/v1/dispatch/f2f", at_once()).await;
        assert_eq!(reply.status, status, "{report}: {reply:?}");
        assert_eq!(s.get("/v1/pools/zh:en").await.body["nodes"], 1);
    }
    let load = s.get("/v1/nodes/n1").await.body["load"].clone();
    assert_eq!((&load["cpu"], &load["gpu"]), (&json!(0.2), &json!(0.1)), "{load}");
    // A node that has never reported its graphics is not judged by them.
    let mut other = RawNode::join_with(&s, register_langs("n2", 4, &["fr", "en"])).await;
    other.heartbeat(json!({"current_load": {"cpu": 0.5, "memory": 0.5}})).await;
    assert_eq!(send(&s, "fr", "en", json!({})).await.status, 200);
}

/// Requirements: CONF-05, PICK-06.
#[tokio::test]
async fn each_threshold_of_the_load_can_be_set() {
    let s = Scheduler::with(&[
        ("SELECTION__CPU_THRESHOLD", "0.5"),
        ("SELECTION__GPU_THRESHOLD", "0.6"),
        ("SELECTION__MEMORY_THRESHOLD", "1.0"),
    ])
    .await;
    let mut node = RawNode::join(&s, "n1", 8).await;
    for (cpu, gpu, memory, status) in [
        (0.49, 0.59, 0.99, 200),
        (0.5, 0.0, 0.0, 503),
        (0.0, 0.6, 0.0, 503),
        (0.0, 0.0, 1.0, 503),
        (0.4, 0.5, 0.95, 200),
    ] {
        let load = json!({"cpu": cpu, "gpu": gpu, "memory": memory});
        node.heartbeat(json!({"current_load": load})).await;
        assert_eq!(send(&s, "zh", "en", json!({})).await.status, status, "{load}");
    }
}
