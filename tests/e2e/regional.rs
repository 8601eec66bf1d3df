//! Regional tags: what browsers call `zh-CN` and `en-US` is served by nodes for `zh` and `en`.

use serde_json::{Value, json};

use crate::raw_node::{RawNode, register_langs};
use crate::redis::Redis;
use crate::scheduler::Scheduler;
use crate::session::SessionClient;

fn job(src: &str, tgt: &str, options: Value) -> Value {
    json!({"src_lang": src, "tgt_lang": tgt, "text": "x", "options": options})
}

/// The languages that a message names.
fn langs(message: &Value) -> [&str; 3] {
    let text = |key: &str| message[key].as_str().unwrap_or_default();
    [text("src_lang"), text("tgt_lang"), text("served_as")]
}

/// Translates on this node; gives the finished job.
async fn translated(s: &Scheduler, node: &mut RawNode, body: Value) -> (Value, Value) {
    let client = s.new_client();
    let reply = tokio::spawn(async move { client.post("/v1/translate", body).await });
    let assign = node.work().await;
    let reply = reply.await.expect("a reply");
    assert_eq!(reply.status, 200, "{}", reply.body);
    (assign, reply.body)
}

async fn both_stores() -> (Redis, [Scheduler; 2]) {
    let redis = Redis::start().await;
    let shared = Scheduler::over(&redis.url(), "one").await;
    (redis, [Scheduler::start().await, shared])
}

#[tokio::test]
async fn a_job_with_regional_tags_is_served_by_the_closest_tags() {
    let (_redis, schedulers) = both_stores().await;
    for s in schedulers {
        let mut plain = RawNode::join_with(&s, register_langs("plain", 4, &["zh", "en"])).await;
        let options = json!({"wait_ms": 0});
        let (assign, job_1) =
            translated(&s, &mut plain, job("zh-CN", "en-US", options.clone())).await;
        assert_eq!(langs(&assign), ["zh", "en", ""], "the node gets what it registered");
        assert_eq!(langs(&job_1), ["zh-CN", "en-US", "zh:en"], "the client is told both");
        let path = format!("/v1/jobs/{}", job_1["job_id"].as_str().expect("an id"));
        let kept = s.get(&path).await.body;
        assert_eq!(langs(&kept), ["zh-CN", "en-US", "zh:en"]);
        let (_, auto) = translated(&s, &mut plain, job("auto", "en-US", options.clone())).await;
        assert_eq!(langs(&auto), ["auto", "en-US", "*:en"]);
        let (_, exact) = translated(&s, &mut plain, job("zh", "en", options.clone())).await;
        assert_eq!(langs(&exact), ["zh", "en", ""]);

        // Closer tags first; a node of one region serves neither another one nor the language.
        let mut close =
            RawNode::join_with(&s, register_langs("close", 1, &["zh-CN", "en-US"])).await;
        let told = s.post("/v1/explain", job("zh-CN", "en-US", options.clone())).await.body;
        assert_eq!((&told["chosen"], &told["capable"]), (&json!("close"), &json!(2)), "{told}");
        assert!(told["served_as"].is_null(), "{told}");
        let sent = s.dispatch(job("zh-CN", "en-US", options.clone())).await.1;
        assert_eq!(sent, "close");
        let assign = close.expect("job_assign").await;
        assert_eq!(langs(&assign), ["zh-CN", "en-US", ""]);
        // It is full now.
        let told = s.post("/v1/explain", job("zh-CN", "en-US", options.clone())).await.body;
        assert_eq!((&told["chosen"], &told["served_as"]), (&json!("plain"), &json!("zh:en")));
        assert_eq!(s.dispatch(job("zh-CN", "en-US", options.clone())).await.1, "plain");
        close.done(&assign, "hello").await;
        close.expect("job_confirmed").await;
        for (src, tgt) in [("zh", "en"), ("zh-TW", "en-GB"), ("zh", "en-US")] {
            assert_eq!(s.dispatch(job(src, tgt, options.clone())).await.1, "plain", "{src}:{tgt}");
        }
        let none = s.post("/v1/dispatch/f2f", job("fr-CA", "en", options.clone())).await;
        assert_eq!(none.error(), (503, "NO_CAPABLE_NODE"), "{none:?}");
        let pool = s.get("/v1/pools/zh-TW:en").await.body;
        assert_eq!((&pool["pool"], &pool["nodes"]), (&json!("zh:en"), &json!(1)), "{pool}");
        let pool = s.get("/v1/pools/zh-CN:en-US").await.body;
        assert_eq!(pool["pool"], "zh-CN:en-US", "{pool}");
        assert_eq!(s.get("/v1/pools/fr-CA:en").await.status, 404);
    }
}

#[tokio::test]
async fn certain_nodes_and_waiting_jobs_know_regional_tags() {
    let (_redis, schedulers) = both_stores().await;
    for s in schedulers {
        let mut plain = RawNode::join_with(&s, register_langs("plain", 1, &["zh", "en"])).await;
        let _close = RawNode::join_with(&s, register_langs("close", 9, &["zh-CN", "en"])).await;
        // A preferred node is asked for the tags that it has.
        let strict = json!({"preferred_node_id": "plain", "strict": true, "wait_ms": 15_000});
        let strict = || job("zh-CN", "en", strict.clone());
        let told = s.post("/v1/explain", strict()).await.body;
        assert_eq!((&told["chosen"], &told["served_as"]), (&json!("plain"), &json!("zh:en")));
        assert_eq!(s.dispatch(strict()).await.1, "plain");
        let running = plain.expect("job_assign").await;
        assert_eq!(langs(&running), ["zh", "en", ""]);
        let incapable = json!({"preferred_node_id": "close"});
        let incapable = s.post("/v1/dispatch/f2f", job("zh-TW", "en", incapable)).await;
        assert_eq!(incapable.error(), (422, "PREFERRED_NODE_NOT_CAPABLE"), "{incapable:?}");

        // A waiting job is woken by a node of the language.
        let waits = |options: Value| {
            let client = s.new_client();
            let body = job("zh-TW", "en-GB", options);
            tokio::spawn(async move { client.post("/v1/dispatch/f2f", body).await })
        };
        let waiting = waits(json!({"wait_ms": 15_000, "bind_key": "k"}));
        s.until_metric("lingua_queue_jobs", 1.0).await;
        plain.done(&running, "hello").await;
        assert_eq!(waiting.await.expect("a reply").body["node_id"], "plain");
        let bound = plain.expect("job_assign").await;
        plain.done(&bound, "hello").await;
        s.until_unused().await;

        // A key stays on its node, whichever tag the next job has.
        let bound = json!({"bind_key": "k", "wait_ms": 15_000});
        assert_eq!(s.dispatch(job("zh-CN", "en", bound)).await.1, "plain");
        let assign = plain.expect("job_assign").await;
        assert_eq!((langs(&assign), &assign["bind"]["moved"]), (["zh", "en", ""], &json!(false)));
    }
}

#[tokio::test]
async fn a_session_with_regional_tags_is_told_both() {
    let (redis, schedulers) = both_stores().await;
    for s in schedulers {
        let mut node = RawNode::join_with(&s, register_langs("n1", 4, &["zh", "en"])).await;
        let tags = json!({"src_lang": "zh-CN", "tgt_lang": "en-US"});
        let mut client = SessionClient::start_with(&s, tags).await;
        assert!(client.started["warning"].is_null(), "{}", client.started);
        client.send(json!({"type": "text", "text": "x"})).await;
        node.work().await;
        assert_eq!(langs(&client.outcome().await), ["zh-CN", "en-US", "zh:en"]);

        // A node that finds out who speaks reports its own tags; the client gets its own.
        let two_way = json!({"type": "session_start", "mode": "two_way",
            "lang_a": "zh-CN", "lang_b": "en-US"});
        let mut client = SessionClient::open(&s.address, two_way).await;
        client.turn(200).await;
        let assign = node.expect("job_assign").await;
        assert_eq!(assign["two_way"], json!(["zh", "en"]), "{assign}");
        let result = json!({"result": {"text_translated": "x", "src_lang": "en"}});
        node.report("job_done", &assign, result).await;
        assert_eq!(langs(&client.outcome().await), ["en-US", "zh-CN", "zh:en"]);
    }
    drop(redis);
}

/// A node of one instance, a job of another.
#[tokio::test]
async fn regional_tags_reach_nodes_of_other_instances() {
    let redis = Redis::start().await;
    let url = redis.url();
    let (one, two) = tokio::join!(Scheduler::over(&url, "one"), Scheduler::over(&url, "two"));
    let mut node = RawNode::join_with(&two, register_langs("n1", 4, &["zh", "en"])).await;
    let (assign, done) = translated(&one, &mut node, job("zh-CN", "en", json!({}))).await;
    assert_eq!((langs(&assign), langs(&done)), (["zh", "en", ""], ["zh-CN", "en", "zh:en"]));
}

/// A job without regional tags asks the store once; one with them soon does, too.
#[tokio::test]
async fn tags_cost_no_more_calls_than_they_need() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join_with(&s, register_langs("n1", 4, &["zh", "en"])).await;
    let none = "lingua_reserve_total{outcome=\"none\"}";
    let granted = "lingua_reserve_total{outcome=\"granted\"}";
    for (src, times, refused) in [("zh", 3, 0.0), ("zh-CN", 3, 1.0)] {
        for _ in 0..times {
            translated(&s, &mut node, job(src, "en", json!({}))).await;
        }
        let text = s.get("/metrics").await.text;
        let is_there = text.contains(none);
        let found = if is_there { s.metric(none).await } else { 0.0 };
        assert_eq!(found, refused, "{src}: the pools that no node serves are remembered");
    }
    assert_eq!(s.metric(granted).await, 6.0);
}
