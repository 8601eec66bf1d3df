//! `GET /v1/usage`: what tenants have used.

use std::time::Duration;

use serde_json::{Value, json};

use crate::callers::{Caller, secret, token};
use crate::durable::directory;
use crate::raw_node::{RawNode, register};
use crate::redis::Redis;
use crate::scheduler::{Scheduler, within};

fn tokens() -> String {
    token("alice-app", "client", "tenant = \"alice\"")
        + &token("bob-app", "client", "tenant = \"bob\"")
        + &token("alice-eye", "viewer", "tenant = \"alice\"")
        + &token("ops", "admin", "")
}

async fn join(s: &Scheduler, id: &str) -> RawNode {
    RawNode::join_at(&s.address, Some(&secret("ops")), register(id, 8)).await
}

/// Has one job of each end: done with 0.5 s of audio, 2 characters heard, 5 translated and 0.25 s
/// of speech; failed; cancelled.
async fn one_of_each(caller: &Caller<'_>, node: &mut RawNode) {
    let audio = "A".repeat(21_332) + "AA==";
    let body = json!({
        "session_id": "room", "src_lang": "zh", "tgt_lang": "en",
        "audio": {"format": "pcm16", "sample_rate": 16_000, "data": audio},
    });
    let dispatch = async || {
        let sent = caller.post("/v1/dispatch/f2f", body.clone()).await;
        assert_eq!(sent.status, 200, "{}", sent.text);
        sent.body["job_id"].as_str().expect("an id").to_owned()
    };
    let done = dispatch().await;
    let assign = node.expect("job_assign").await;
    node.ack(&assign).await;
    let speech = "A".repeat(10_664) + "AAA=";
    let result = json!({
        "text_asr": "你好", "text_translated": "hello",
        "tts_audio": {"format": "pcm16", "sample_rate": 16_000, "data": speech},
    });
    node.report("job_done", &assign, json!({"result": result})).await;
    let failed = dispatch().await;
    let assign = node.expect("job_assign").await;
    let why = json!({"reason": "BAD_AUDIO", "retryable": false});
    node.report("job_fail", &assign, why).await;
    let cancelled = dispatch().await;
    node.expect("job_assign").await;
    caller.post(&format!("/v1/jobs/{cancelled}/cancel"), json!({})).await;
    for id in [done, failed, cancelled] {
        let ended = caller.get(&format!("/v1/jobs/{id}?wait_ms=10000")).await;
        assert!(ended.body["result"].is_object() || ended.body["state"] != "DONE");
    }
}

/// What so many rounds of [`one_of_each`] count.
fn rounds(n: u64) -> Value {
    json!({
        "jobs": {"done": n, "failed": n, "cancelled": n},
        "audio_in_seconds": 0.5 * n as f64, "audio_out_seconds": 0.25 * n as f64,
        "chars_source": 2 * n, "chars_translated": 5 * n,
    })
}

/// Waits until an instance knows that there is a node for the jobs.
async fn until_served(caller: &Caller<'_>) {
    within(async {
        let body = json!({"src_lang": "zh", "tgt_lang": "en"});
        while caller.post("/v1/explain", body.clone()).await.body["chosen"].is_null()
            || !caller.get("/v1/pools").await.text.contains("zh:en")
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

async fn until_total(caller: &Caller<'_>, path: &str, wanted: Value) -> Value {
    within(async {
        loop {
            let usage = caller.get(path).await;
            assert_eq!(usage.status, 200, "{}", usage.text);
            if usage.body["tenants"][0]["total"] == wanted {
                return usage.body;
            }
            assert!(usage.body["tenants"].as_array().is_some_and(|known| known.len() < 3));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_tenant_sees_what_it_has_used_after_restarts_too() {
    let dir = directory("usage");
    let config = format!("[store]\ndata_dir = \"{dir}\"\n{}", tokens());
    for round in 1..=2 {
        let s = Scheduler::from_toml(&config).await;
        let mut node = join(&s, "n1").await;
        let alice = Caller::new(&s, "alice-app");
        one_of_each(&alice, &mut node).await;
        if round == 1 {
            one_of_each(&Caller::new(&s, "bob-app"), &mut node).await;
        }
        // Nothing is lost that was counted before an ordinary stop.
        assert_eq!(s.terminate().await, Some(0));
    }
    let s = Scheduler::from_toml(&config).await;
    let [alice, bob, eye, ops] =
        ["alice-app", "bob-app", "alice-eye", "ops"].map(|name| Caller::new(&s, name));
    let body = until_total(&alice, "/v1/usage?days=true", rounds(2)).await;
    assert_eq!(body["tenants"].as_array().map(Vec::len), Some(1), "only its own: {body}");
    let days = body["tenants"][0]["days"].as_array().expect("days");
    assert!((1..=2).contains(&days.len()), "{body}");
    assert!(days.iter().any(|day| day["day"] == body["until"]), "{body}");
    assert_eq!(bob.get("/v1/usage").await.body["tenants"][0]["total"], rounds(1));
    assert_eq!(eye.get("/v1/usage").await.body["tenants"][0]["tenant"], "alice");
    let all = ops.get("/v1/usage").await.body;
    assert_eq!(all["tenants"].as_array().map(Vec::len), Some(2), "{all}");
    let one = ops.get("/v1/usage?tenant=bob").await.body;
    assert_eq!(one["tenants"][0]["total"], rounds(1), "{one}");
    assert_eq!(bob.get("/v1/usage?tenant=alice").await.error(), (403, "FORBIDDEN"));
    let before = ops.get("/v1/usage?until=2020-01-01").await.body;
    assert_eq!(before["tenants"], json!([]));
    assert_eq!(ops.get("/v1/usage?since=yesterday").await.error(), (400, "INVALID_REQUEST"));
    drop(s);
    std::fs::remove_dir_all(dir).ok();
}

#[tokio::test]
async fn instances_add_up_what_their_tenants_use() {
    let redis = Redis::start().await;
    let start = async |id: &str| {
        let store = format!("[store]\nurl = \"{}\"\n[instance]\nid = \"{id}\"", redis.url());
        Scheduler::from_toml(&format!("{store}\n{}", tokens())).await
    };
    let (one, two) = (start("one").await, start("two").await);
    let mut node = join(&one, "n1").await;
    one_of_each(&Caller::new(&one, "alice-app"), &mut node).await;
    until_served(&Caller::new(&two, "alice-app")).await;
    one_of_each(&Caller::new(&two, "alice-app"), &mut node).await;
    until_total(&Caller::new(&two, "alice-app"), "/v1/usage", rounds(2)).await;
    // An instance that is started again goes on counting.
    assert_eq!(two.terminate().await, Some(0));
    let two = start("two").await;
    until_served(&Caller::new(&two, "alice-app")).await;
    one_of_each(&Caller::new(&two, "alice-app"), &mut node).await;
    until_total(&Caller::new(&one, "alice-app"), "/v1/usage", rounds(3)).await;
}

/// What was counted is written within two seconds: a kill after that loses nothing.
#[tokio::test]
async fn a_kill_loses_at_most_the_last_two_seconds_of_usage() {
    let redis = Redis::start().await;
    let start = async || {
        let store = format!("[store]\nurl = \"{}\"\n[instance]\nid = \"one\"", redis.url());
        let soon = "[scheduler]\nleader_lease_ms = 1500";
        Scheduler::from_toml(&format!("{store}\n{soon}\n{}", tokens())).await
    };
    let killed = start().await;
    let mut node = join(&killed, "n1").await;
    one_of_each(&Caller::new(&killed, "alice-app"), &mut node).await;
    one_of_each(&Caller::new(&killed, "bob-app"), &mut node).await;
    tokio::time::sleep(Duration::from_millis(3_000)).await;
    let before = Caller::new(&killed, "ops").get("/v1/usage?days=true").await.body;
    assert_eq!(before["tenants"][0]["total"], rounds(1), "{before}");
    killed.kill().await;
    let again = start().await;
    let ops = Caller::new(&again, "ops");
    assert_eq!(ops.get("/v1/usage?days=true").await.body, before);
    // It goes on from there, and counts nothing twice.
    let mut node = join(&again, "n1").await;
    until_served(&Caller::new(&again, "alice-app")).await;
    one_of_each(&Caller::new(&again, "alice-app"), &mut node).await;
    until_total(&Caller::new(&again, "alice-app"), "/v1/usage", rounds(2)).await;
    let bob = Caller::new(&again, "bob-app").get("/v1/usage").await.body;
    assert_eq!(bob["tenants"][0]["total"], rounds(1), "{bob}");
}
