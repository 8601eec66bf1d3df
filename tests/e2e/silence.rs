//! Nodes that give no sign of life: when they get no jobs, and when they are forgotten.

use std::time::Duration;

use serde_json::{Value, json};

use crate::http::Reply;
use crate::raw_node::{RawNode, register, register_langs};
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job_with, within};

/// Far below the default of 15 s.
const STALE: [(&str, &str); 2] =
    [("SCHEDULER__HEARTBEAT_INTERVAL_MS", "500"), ("SCHEDULER__HEARTBEAT_STALE_MS", "2500")];

const PATIENT: [(&str, &str); 1] = [("SCHEDULER__HEARTBEAT_STALE_MS", "600000")];

async fn register_silent(s: &Scheduler, message: Value) {
    let reply = s.post("/v1/node/register", message).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
}

/// Requirements: NODE-39, PREF-04, CONF-03, JOB-10.
#[tokio::test]
async fn a_silent_node_is_not_chosen_and_then_nobody_can_do_its_pair() {
    let (s, patient) = tokio::join!(Scheduler::with(&STALE), Scheduler::with(&PATIENT));
    register_silent(&s, register("silent", 8)).await;
    for s in [&patient, &s] {
        register_silent(s, register_langs("french", 1000, &["fr", "it"])).await;
    }
    let alive = RawNode::join(&s, "alive", 8).await;
    let _alive = alive.serve(8, Duration::ZERO);

    // The jobs of a pair go to its only node until that counts as silent. Then nobody can do them.
    let mut french = job_with(json!({"wait_ms": 0}));
    (french["src_lang"], french["tgt_lang"]) = (json!("fr"), json!("it"));
    let mut served = 0;
    let refused = within(async {
        loop {
            let reply = s.post("/v1/dispatch/f2f", french.clone()).await;
            if reply.status != 200 {
                return reply;
            }
            served += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(refused.error(), (503, "NO_CAPABLE_NODE"), "after {served}: {}", refused.body);
    assert!(served > 0 && refused.text.contains("french"), "{served}: {}", refused.body);
    let silent = s.get("/v1/nodes/french").await.body;
    assert!(silent["silent_ms"].as_u64().is_some_and(|ms| ms >= 2500), "{silent}");
    assert_eq!(patient.get("/v1/nodes/french").await.body["fresh"], true, "its limit is 10 min");

    // The other silent node is not chosen, neither freely nor by name.
    assert_eq!(s.get("/v1/nodes/silent").await.body["fresh"], false);
    assert_eq!(s.get("/v1/nodes/alive").await.body["fresh"], true);
    for options in [json!({}), json!({"preferred_node_id": "silent"})] {
        for _ in 0..8 {
            assert_eq!(s.dispatch(job_with(options.clone())).await.1, "alive", "{options}");
        }
    }
}

/// Requirements: NODE-39, PREF-04, PREF-05, PREF-06.
#[tokio::test]
async fn explain_agrees_with_dispatch_about_a_node_that_is_connected_and_silent() {
    // A connection is closed after three intervals of silence, long after its node is stale.
    let times =
        [("SCHEDULER__HEARTBEAT_INTERVAL_MS", "5000"), ("SCHEDULER__HEARTBEAT_STALE_MS", "5500")];
    let redis = Redis::start().await;
    let url = redis.url();
    let over_redis = [&times[..], &[("STORE__URL", url.as_str())]].concat();
    let (embedded, shared) =
        tokio::join!(Scheduler::with(&times), Scheduler::with(over_redis.as_slice()));
    tokio::join!(check_a_silent_node(embedded), check_a_silent_node(shared));
}

async fn check_a_silent_node(s: Scheduler) {
    // A node that reads nothing answers no ping.
    let _silent = RawNode::join(&s, "silent", 8).await;
    s.until_reply("/v1/nodes/silent", |reply| reply.body["fresh"] == false).await;
    let at_once = || job_with(json!({"wait_ms": 0}));
    let told = s.post("/v1/explain", at_once()).await.body;
    let refused = s.post("/v1/dispatch/f2f", at_once()).await;
    assert_eq!(refused.error(), (503, "NO_CAPABLE_NODE"), "{refused:?}");
    assert_eq!((&told["error"], &told["chosen"]), (&refused.body["error"], &Value::Null), "{told}");
    assert_eq!((&told["capable"], &told["free"]), (&json!(0), &json!(0)), "{told}");
    let why = told["nodes"][0]["why"].as_str().expect("a reason");
    let detail = refused.body["detail"].as_str().expect("a detail");
    assert!(detail.ends_with(&format!("silent can, but: {why}")), "{detail}; {why}");

    // Beside a node that is alive it is not chosen, and a strict job has nowhere to go.
    let _alive = RawNode::join(&s, "alive", 1).await;
    let strict = job_with(json!({"preferred_node_id": "silent", "strict": true, "wait_ms": 50}));
    let told = s.post("/v1/explain", strict.clone()).await.body;
    let refused = s.post("/v1/dispatch/f2f", strict).await;
    assert_eq!(refused.error(), (503, "ALL_CANDIDATES_FULL_OR_FAILED"), "{refused:?}");
    assert_eq!((&told["error"], &told["chosen"]), (&refused.body["error"], &Value::Null), "{told}");
    let prefers = job_with(json!({"preferred_node_id": "silent", "wait_ms": 0}));
    let told = s.post("/v1/explain", prefers.clone()).await.body;
    assert_eq!((&told["chosen"], &told["capable"]), (&json!("alive"), &json!(1)), "{told}");
    assert_eq!(s.dispatch(prefers).await.1, "alive");
    // Its free slots do not count when the other one is full.
    let told = s.post("/v1/explain", at_once()).await.body;
    let refused = s.post("/v1/dispatch/f2f", at_once()).await;
    assert_eq!(refused.error(), (503, "ALL_CANDIDATES_FULL_OR_FAILED"), "{refused:?}");
    assert_eq!((&told["error"], &told["free"]), (&refused.body["error"], &json!(0)), "{told}");
    assert_eq!(s.get("/v1/nodes/silent").await.body["state"], "ready", "it is still connected");
}

/// Requirements: NODE-41, NODE-42, LEAD-20.
#[tokio::test]
async fn a_node_that_stays_away_is_forgotten_and_heartbeats_keep_it() {
    let redis = Redis::start().await;
    let url = redis.url();
    let times = [
        ("SCHEDULER__HEARTBEAT_INTERVAL_MS", "100"),
        ("SCHEDULER__HEARTBEAT_STALE_MS", "500"),
        ("SCHEDULER__NODE_RECORD_MS", "2000"),
    ];
    let embedded = Scheduler::with(&times).await;
    let shared = Scheduler::with(&[&times[..], &[("STORE__URL", &url)]].concat()).await;
    for s in [embedded, shared] {
        register_silent(&s, register_langs("away", 1, &["fr"])).await;
        register_silent(&s, register("beats", 1)).await;
        let beat = json!({"node_id": "beats"});
        within(async {
            while s.get("/v1/nodes/away").await.status != 404 {
                let reply = s.post("/v1/node/heartbeat", beat.clone()).await;
                assert_eq!(reply.status, 200, "{}", reply.body);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        let gone = s.post("/v1/node/heartbeat", json!({"node_id": "away"})).await;
        assert_eq!(gone.error(), (404, "NODE_NOT_REGISTERED"), "{}", gone.body);
        assert_eq!(s.post("/v1/node/heartbeat", beat).await.status, 200);
        assert_eq!(s.get("/v1/pools/fr:fr").await.status, 404);
        let has_gone =
            |reply: &Reply| reply.text.contains("zh:en") && !reply.text.contains("fr:fr");
        s.until_reply("/v1/pools", has_gone).await;
    }
}
