//! Nodes that give no sign of life: when they get no jobs, and when they are forgotten.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::http::Reply;
use crate::raw_node::{RawNode, register, register_langs};
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job_with, within};

/// Far below the default of 15 s.
const STALE: [(&str, &str); 2] =
    [("SCHEDULER__HEARTBEAT_INTERVAL_MS", "500"), ("SCHEDULER__HEARTBEAT_STALE_MS", "2500")];

async fn register_silent(s: &Scheduler, message: Value) {
    let reply = s.post("/v1/node/register", message).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
}

/// Requirements: NODE-39, PREF-04, CONF-03, JOB-10.
#[tokio::test]
async fn a_silent_node_is_not_chosen_and_then_nobody_can_do_its_pair() {
    let s = Scheduler::with(&STALE).await;
    let began = Instant::now();
    register_silent(&s, register("silent", 8)).await;
    register_silent(&s, register_langs("french", 1000, &["fr", "it"])).await;
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
    assert!(began.elapsed() < Duration::from_secs(14), "the default is 15 s");

    // The other silent node is not chosen, neither freely nor by name.
    assert_eq!(s.get("/v1/nodes/silent").await.body["fresh"], false);
    assert_eq!(s.get("/v1/nodes/alive").await.body["fresh"], true);
    for options in [json!({}), json!({"preferred_node_id": "silent"})] {
        for _ in 0..8 {
            assert_eq!(s.dispatch(job_with(options.clone())).await.1, "alive", "{options}");
        }
    }
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
