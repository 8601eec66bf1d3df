//! Certain nodes: preferred and strict, bound by a key, private, and gone for a moment.

use serde_json::{Value, json};

use crate::durable::directory;
use crate::http::Reply;
use crate::raw_node::{RawNode, register, register_langs};
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job, job_with};
use crate::session::SessionClient;

fn strictly(node: &str, wait_ms: u64) -> Value {
    job_with(json!({"preferred_node_id": node, "strict": true, "wait_ms": wait_ms}))
}

fn private(id: &str) -> Value {
    let mut message = register(id, 4);
    message["accept_public_jobs"] = json!(false);
    message
}

/// Every node that had the job, in order.
fn nodes_of(job: &Value) -> Vec<&str> {
    let attempts = job["attempts"].as_array().expect("attempts");
    attempts.iter().map(|attempt| attempt["node_id"].as_str().expect("a node")).collect()
}

/// Requirements: PREF-06.
#[tokio::test]
async fn a_strict_job_is_retried_on_its_node_only() {
    let s = Scheduler::start().await;
    let mut wanted = RawNode::join(&s, "wanted", 4).await;
    let _other = RawNode::join(&s, "other", 8).await;
    let (id, _) = s.dispatch(strictly("wanted", 5_000)).await;
    for attempt in 1..=3 {
        let assign = wanted.expect("job_assign").await;
        assert_eq!(assign["attempt_id"], attempt, "{assign}");
        wanted.report("job_fail", &assign, json!({"reason": "OUT_OF_MEMORY"})).await;
    }
    let ended = s.ended(&id).await;
    assert_eq!(ended["error"], "ALL_CANDIDATES_FULL_OR_FAILED", "{ended}");
    assert_eq!(nodes_of(&ended), ["wanted"; 3], "{ended}");
}

/// Requirements: PREF-06.
#[tokio::test]
async fn a_strict_job_that_its_node_refuses_goes_to_no_other() {
    let s = Scheduler::start().await;
    let mut wanted = RawNode::join(&s, "wanted", 4).await;
    let _other = RawNode::join(&s, "other", 8).await;
    let (id, _) = s.dispatch(strictly("wanted", 15_000)).await;
    for _ in 0..2 {
        let assign = wanted.expect("job_assign").await;
        wanted.report("job_fail", &assign, json!({"reason": "BUSY"})).await;
    }
    wanted.work().await;
    let ended = s.ended(&id).await;
    assert_eq!((&ended["state"], nodes_of(&ended)), (&json!("DONE"), vec!["wanted"; 3]), "{ended}");
}

/// Requirements: PREF-06.
#[tokio::test]
async fn a_strict_job_whose_node_dies_waits_for_it_and_fails_without_it() {
    let s = Scheduler::start().await;
    let mut wanted = RawNode::join(&s, "wanted", 4).await;
    let _other = RawNode::join(&s, "other", 8).await;
    let (id, _) = s.dispatch(strictly("wanted", 15_000)).await;
    let assign = wanted.expect("job_assign").await;
    wanted.ack(&assign).await;
    wanted.crash();
    s.until_metric("lingua_queue_jobs", 1.0).await;
    let mut wanted = RawNode::join(&s, "wanted", 4).await;
    wanted.work().await;
    let ended = s.ended(&id).await;
    assert_eq!((&ended["state"], nodes_of(&ended)), (&json!("DONE"), vec!["wanted"; 2]), "{ended}");

    let (id, _) = s.dispatch(strictly("wanted", 200)).await;
    let assign = wanted.expect("job_assign").await;
    wanted.ack(&assign).await;
    wanted.crash();
    let ended = s.ended(&id).await;
    assert_eq!(ended["error"], "ALL_CANDIDATES_FULL_OR_FAILED", "{ended}");
    assert_eq!(nodes_of(&ended), ["wanted"], "{ended}");
}

/// Requirements: PREF-06.
#[tokio::test]
async fn a_strict_job_that_its_node_does_not_acknowledge_goes_to_no_other() {
    let s = Scheduler::with(&[("SCHEDULER__RESERVATION_TTL_MS", "300")]).await;
    let mut wanted = RawNode::join(&s, "wanted", 4).await;
    let _other = RawNode::join(&s, "other", 8).await;
    let (id, _) = s.dispatch(strictly("wanted", 15_000)).await;
    // It says nothing until all attempts are used up.
    for attempt in 1..=3 {
        let assign = wanted.expect("job_assign").await;
        assert_eq!(assign["attempt_id"], attempt, "{assign}");
    }
    let ended = s.ended(&id).await;
    assert_eq!((&ended["state"], nodes_of(&ended)), (&json!("FAILED"), vec!["wanted"; 3]));
}

/// Requirements: PREF-05.
#[tokio::test]
async fn a_strict_job_waits_for_its_node_and_holds_nobody_up() {
    let s = Scheduler::start().await;
    let mut wanted = RawNode::join(&s, "wanted", 1).await;
    let _other = RawNode::join(&s, "other", 8).await;
    s.dispatch(strictly("wanted", 0)).await;
    let running = wanted.expect("job_assign").await;
    let full = s.post("/v1/dispatch/f2f", strictly("wanted", 50)).await;
    assert_eq!(full.error(), (503, "ALL_CANDIDATES_FULL_OR_FAILED"), "{full:?}");
    let detail = full.body["detail"].as_str().expect("a detail");
    assert!(detail.contains("wanted") && detail.contains("all slots taken"), "{detail}");

    let client = s.new_client();
    let waiting =
        tokio::spawn(
            async move { client.post("/v1/dispatch/f2f", strictly("wanted", 15_000)).await },
        );
    s.until_metric("lingua_queue_jobs", 1.0).await;
    assert_eq!(s.dispatch(job_with(json!({"wait_ms": 15_000}))).await.1, "other");
    wanted.done(&running, "hello").await;
    let got = waiting.await.expect("a reply");
    assert_eq!(got.body["node_id"], "wanted", "{got:?}");

    // A node that is away for a moment is waited for, too.
    wanted.close().await;
    s.until_reply("/v1/nodes/wanted", |reply| reply.body["state"] == "offline").await;
    let client = s.new_client();
    let waiting =
        tokio::spawn(
            async move { client.post("/v1/dispatch/f2f", strictly("wanted", 15_000)).await },
        );
    s.until_metric("lingua_queue_jobs", 1.0).await;
    let _back = RawNode::join(&s, "wanted", 4).await;
    let got = waiting.await.expect("a reply");
    assert_eq!(got.body["node_id"], "wanted", "{got:?}");
}

/// Requirements: PREF-02, PREF-04.
#[tokio::test]
async fn an_unknown_preferred_node_is_refused_and_a_draining_one_is_replaced() {
    let s = Scheduler::start().await;
    let _wanted = RawNode::join(&s, "wanted", 4).await;
    let _other = RawNode::join(&s, "other", 8).await;
    for strict in [false, true] {
        let body = job_with(json!({"preferred_node_id": "nobody", "strict": strict}));
        let unknown = s.post("/v1/dispatch/f2f", body).await;
        assert_eq!(unknown.error(), (422, "PREFERRED_NODE_NOT_CAPABLE"), "{unknown:?}");
    }
    s.post("/v1/nodes/wanted/drain", json!({})).await;
    let prefer = || job_with(json!({"preferred_node_id": "wanted"}));
    assert_eq!(s.dispatch(prefer()).await.1, "other");
    let told = s.post("/v1/explain", prefer()).await.body;
    assert_eq!(told["chosen"], "other", "{told}");
    let strict = s.post("/v1/explain", strictly("wanted", 0)).await.body;
    assert_eq!(strict["chosen"], Value::Null, "{strict}");
    assert_eq!(strict["error"], "ALL_CANDIDATES_FULL_OR_FAILED", "{strict}");
}

#[tokio::test]
async fn a_job_that_cannot_wait_is_refused_only_when_no_slot_is_free() {
    let redis = Redis::start().await;
    let embedded = Scheduler::start().await;
    let shared = Scheduler::over(&redis.url(), "one").await;
    for s in [embedded, shared] {
        // The last slot of a node that serves more pairs is kept for jobs of those pairs.
        let _plain = RawNode::join(&s, "plain", 1).await;
        let many = register_langs("many", 4, &["zh", "en", "fr", "de", "ja"]);
        let _many = RawNode::join_with(&s, many).await;
        let at_once = || job_with(json!({"wait_ms": 0}));
        for n in 0..5 {
            let told = s.post("/v1/explain", at_once()).await.body;
            let sent = s.post("/v1/dispatch/f2f", at_once()).await;
            assert_eq!(sent.status, 200, "job {n}: {:?}", sent.body);
            assert!(told["chosen"].is_string(), "{told}");
        }
        let told = s.post("/v1/explain", at_once()).await.body;
        let full = s.post("/v1/dispatch/f2f", at_once()).await;
        assert_eq!(full.error(), (503, "ALL_CANDIDATES_FULL_OR_FAILED"));
        assert!(full.body["retry_after_ms"].is_u64(), "{full:?}");
        assert_eq!(told["error"], full.body["error"], "{told}");
    }
}

#[tokio::test]
async fn last_slots_are_kept_from_all_jobs_if_the_configuration_says_so() {
    let redis = Redis::start().await;
    let settings = [("SELECTION__KEEP_LAST", "always"), ("SCHEDULER__WAIT_MS", "0")];
    let embedded = Scheduler::with(&settings).await;
    let url = redis.url();
    let shared = Scheduler::with(&[&settings[..], &[("STORE__URL", &url)]].concat()).await;
    for s in [embedded, shared] {
        let _plain = RawNode::join(&s, "plain", 1).await;
        let many = register_langs("many", 4, &["zh", "en", "fr", "de", "ja"]);
        let _many = RawNode::join_with(&s, many).await;
        let rare = || {
            let mut rare = job();
            rare["src_lang"] = json!("ja");
            rare
        };
        for n in 0..4 {
            let sent = s.post("/v1/dispatch/f2f", job()).await;
            assert_eq!(sent.status, 200, "job {n}: {:?}", sent.body);
        }
        // The one free slot is the last of the node that alone serves the rare pair.
        let told = s.post("/v1/explain", job()).await.body;
        let refused = s.post("/v1/dispatch/f2f", job()).await;
        assert_eq!(refused.error(), (503, "ALL_CANDIDATES_FULL_OR_FAILED"));
        assert_eq!(told["error"], refused.body["error"], "{told}");
        let told = s.post("/v1/explain", rare()).await.body;
        assert_eq!(told["chosen"], "many", "{told}");
        assert_eq!(s.dispatch(rare()).await.1, "many");
    }
}

async fn sent_bound(s: &Scheduler) -> String {
    s.dispatch(job_with(json!({"bind_key": "room-1/turn-3"}))).await.1
}

/// The `bind` that this node got with its next job.
async fn next_bind(nodes: &mut [(&str, RawNode)], id: &str) -> Value {
    let (_, node) = nodes.iter_mut().find(|(name, _)| *name == id).expect("a node");
    let assign = node.expect("job_assign").await;
    // A job that stays open would be retried when its node goes, and move the binding too.
    node.done(&assign, "done").await;
    node.expect("job_confirmed").await;
    assign["bind"].clone()
}

/// Requirements: BIND-02, BIND-03, BIND-05, BIND-06.
#[tokio::test]
async fn every_instance_sees_the_same_binding() {
    let redis = Redis::start().await;
    let url = redis.url();
    let (one, two) = tokio::join!(Scheduler::over(&url, "one"), Scheduler::over(&url, "two"));
    let mut nodes = vec![];
    for id in ["a", "b", "c", "d"] {
        nodes.push((id, RawNode::join(&two, id, 20).await));
    }
    let home = sent_bound(&one).await;
    assert_eq!(next_bind(&mut nodes, &home).await["moved"], false);
    for n in 0..8 {
        let s = if n % 2 == 0 { &two } else { &one };
        assert_eq!(sent_bound(s).await, home);
        assert_eq!(next_bind(&mut nodes, &home).await["moved"], false);
    }
    let left = r#"EVAL "return redis.call('PTTL', redis.call('KEYS', '*:bind:*')[1])" 0"#;
    let left: i64 = redis.command(left).await.trim_start_matches(':').parse().expect("a time");
    assert!((3_500_000..=3_600_000).contains(&left), "an hour: {left}");

    // An instance that was restarted sees it too.
    one.kill().await;
    let one = Scheduler::over(&redis.url(), "one").await;
    assert_eq!(sent_bound(&one).await, home);
    assert_eq!(next_bind(&mut nodes, &home).await["moved"], false);

    // Another node is chosen and remembered when the first is gone; only that job says so.
    let at = nodes.iter().position(|(id, _)| *id == home).expect("a node");
    nodes.remove(at).1.close().await;
    two.until_reply(&format!("/v1/nodes/{home}"), |reply| reply.body["state"] == "offline").await;
    let next = sent_bound(&one).await;
    assert_ne!(next, home);
    assert_eq!(next_bind(&mut nodes, &next).await["moved"], true);
    assert_eq!(sent_bound(&two).await, next);
    assert_eq!(next_bind(&mut nodes, &next).await["moved"], false);
}

/// Requirements: BIND-06.
#[tokio::test]
async fn a_binding_outlives_a_restart_with_a_data_directory() {
    let dir = directory("bindings");
    let settings = [("STORE__DATA_DIR", dir.as_str())];
    let mut s = Scheduler::with(&settings).await;
    let mut home = None;
    for _ in 0..3 {
        let mut nodes = vec![];
        for id in ["a", "b", "c", "d"] {
            nodes.push((id, RawNode::join(&s, id, 20).await));
        }
        let node = sent_bound(&s).await;
        assert_eq!(*home.get_or_insert(node.clone()), node, "it stays where it was");
        assert_eq!(next_bind(&mut nodes, &node).await["moved"], false);
        s.child.kill().await.expect("killed");
        s = Scheduler::with(&settings).await;
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Requirements: NODE-20, PICK-09, PICK-10.
#[tokio::test]
async fn a_private_node_serves_private_jobs_of_its_own_tenant_only() {
    let redis = Redis::start().await;
    let embedded = Scheduler::start().await;
    let shared = Scheduler::over(&redis.url(), "one").await;
    for s in [embedded, shared] {
        let mut hidden = RawNode::join_with(&s, private("hidden")).await;
        let public = s.post("/v1/dispatch/f2f", job_with(json!({"wait_ms": 0}))).await;
        assert_eq!(public.error(), (503, "NO_CAPABLE_NODE"), "{public:?}");
        let detail = public.body["detail"].as_str().expect("a detail");
        assert!(detail.contains("hidden can, but: takes private jobs only"), "{detail}");
        let told = s.post("/v1/explain", job_with(json!({}))).await.body;
        assert_eq!((&told["error"], &told["capable"]), (&json!("NO_CAPABLE_NODE"), &json!(0)));

        let own = job_with(json!({"public": false}));
        assert_eq!(s.post("/v1/explain", own.clone()).await.body["chosen"], "hidden");
        assert_eq!(s.dispatch(own).await.1, "hidden");
        hidden.work().await;
        let _open = RawNode::join(&s, "open", 4).await;
        for _ in 0..3 {
            assert_eq!(s.dispatch(job_with(json!({}))).await.1, "open");
        }
    }
}

fn is_full(reply: &Reply) -> bool {
    reply.error() == (503, "ALL_CANDIDATES_FULL_OR_FAILED")
}

/// Requirements: JOB-10.
#[tokio::test]
async fn a_node_that_is_gone_for_a_moment_is_waited_for_and_explain_agrees() {
    let redis = Redis::start().await;
    let url = redis.url();
    let stale = ("SCHEDULER__HEARTBEAT_STALE_MS", "3000");
    let interval = ("SCHEDULER__HEARTBEAT_INTERVAL_MS", "1000");
    let embedded = Scheduler::with(&[stale, interval]).await;
    let shared = Scheduler::with(&[("STORE__URL", &url), stale, interval]).await;
    for s in [embedded, shared] {
        // Another node, so that the detail could name what that one lacks.
        let french = RawNode::join_with(&s, register_langs("french", 4, &["fr"])).await;
        let _french = french.serve(4, std::time::Duration::from_millis(1));
        let node = RawNode::join(&s, "n1", 1).await;
        node.close().await;
        s.until_reply("/v1/nodes/n1", |reply| reply.body["state"] == "offline").await;
        let brief = || job_with(json!({"wait_ms": 100}));
        let full = s.post("/v1/dispatch/f2f", brief()).await;
        assert!(is_full(&full) && full.body["retry_after_ms"].is_u64(), "{full:?}");
        let told = s.post("/v1/explain", brief()).await.body;
        assert_eq!(told["error"], "ALL_CANDIDATES_FULL_OR_FAILED", "{told}");
        assert_eq!((&told["capable"], &told["free"]), (&json!(1), &json!(0)), "{told}");

        // It comes back while a job waits.
        let client = s.new_client();
        let waiting = tokio::spawn(async move {
            client.post("/v1/dispatch/f2f", job_with(json!({"wait_ms": 15_000}))).await
        });
        s.until_metric("lingua_queue_jobs", 1.0).await;
        let back = RawNode::join(&s, "n1", 1).await;
        let got = waiting.await.expect("a reply");
        assert_eq!((got.status, &got.body["node_id"]), (200, &json!("n1")), "{got:?}");
        back.close().await;

        // After that nobody can do the job, and the detail says who could.
        let refused = loop {
            let reply = s.post("/v1/dispatch/f2f", job_with(json!({"wait_ms": 0}))).await;
            if !is_full(&reply) {
                break reply;
            }
        };
        assert_eq!(refused.error(), (503, "NO_CAPABLE_NODE"), "{refused:?}");
        let detail = refused.body["detail"].as_str().expect("a detail");
        assert!(detail.ends_with("n1 can, but: offline"), "{detail}");
        let told = s.post("/v1/explain", job_with(json!({"wait_ms": 0}))).await.body;
        assert_eq!((&told["error"], &told["capable"]), (&json!("NO_CAPABLE_NODE"), &json!(0)));
    }
}

/// Requirements: PREF-09.
#[tokio::test]
async fn each_segment_of_a_session_prefers_the_node_that_the_client_named() {
    let s = Scheduler::start().await;
    let mut nodes = vec![];
    for id in ["a", "b", "c", "d"] {
        nodes.push(RawNode::join(&s, id, 4).await);
    }
    let mut client = SessionClient::start_with(&s, json!({"preferred_node_id": "c"})).await;
    for turn in 1..=4 {
        client.send(json!({"type": "text", "text": "你好"})).await;
        let assign = nodes[2].work().await;
        assert_eq!(assign["session_id"], client.started["session_id"]);
        let result = client.expect("result").await;
        assert_eq!(result["turn"], turn, "{result}");
    }
    let refused = SessionClient::open(
        &s.address,
        json!({
            "type": "session_start", "src_lang": "zh", "tgt_lang": "en",
            "preferred_node_id": "no spaces allowed",
        }),
    )
    .await;
    assert_eq!(refused.started["error"], "INVALID_REQUEST", "{:?}", refused.started);
}
