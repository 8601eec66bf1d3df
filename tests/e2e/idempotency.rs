//! Idempotency keys: what a client that sends a request again may rely on.

use serde_json::{Value, json};

use crate::http::{HttpClient, Reply};
use crate::raw_node::RawNode;
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job, job_with, new_token};

/// A request with a key, over the dispatch route.
async fn keyed(s: &HttpClient, key: &str, body: &Value) -> Reply {
    let headers = [("Idempotency-Key", key)];
    s.send("POST", "/v1/dispatch/f2f", &headers, &body.to_string()).await
}

/// A scheduler of each store; the Redis server lives as long as the test.
async fn on_both_stores() -> (Redis, [Scheduler; 2]) {
    let redis = Redis::start().await;
    let over_redis = Scheduler::over(&redis.url(), "one").await;
    (redis, [Scheduler::start().await, over_redis])
}

/// Requirements: JOB-27.
#[tokio::test]
async fn a_key_that_was_used_with_another_body_is_refused() {
    let (_redis, schedulers) = on_both_stores().await;
    for s in schedulers {
        let mut node = RawNode::join(&s, "n1", 4).await;
        let first = keyed(&s, "order-1", &job()).await;
        assert_eq!(first.status, 200, "{:?}", first.body);
        let other = keyed(&s, "order-1", &job_with(json!({"priority": 1}))).await;
        assert_eq!(other.error(), (422, "IDEMPOTENCY_KEY_REUSED"));
        let detail = other.body["detail"].as_str().expect("a detail");
        assert!(detail.contains("Idempotency-Key") && detail.contains("new key"), "{detail}");
        node.work().await;
        let other = keyed(&s, "order-1", &job_with(json!({"priority": 1}))).await;
        assert_eq!(other.error(), (422, "IDEMPOTENCY_KEY_REUSED"), "also after the job ended");
        let same = keyed(&s, "order-1", &job()).await;
        assert_eq!(same.body["job_id"], first.body["job_id"], "nothing was changed");
        assert_eq!(s.get("/v1/jobs").await.body["jobs"].as_array().map(Vec::len), Some(1));
    }
}

#[tokio::test]
async fn many_requests_with_one_key_at_once_make_one_job() {
    let (_redis, schedulers) = on_both_stores().await;
    for s in schedulers {
        let _node = RawNode::join(&s, "n1", 20).await;
        let clients: Vec<HttpClient> = (0..12).map(|_| s.new_client()).collect();
        let body = job();
        let sent = clients.iter().map(|client| keyed(client, "at-once", &body));
        let replies = futures_util::future::join_all(sent).await;
        for reply in &replies {
            assert_eq!(reply.status, 200, "{:?}", reply.body);
            assert_eq!(reply.body["job_id"], replies[0].body["job_id"]);
        }
        assert_eq!(s.get("/v1/jobs").await.body["jobs"].as_array().map(Vec::len), Some(1));
    }
}

#[tokio::test]
async fn a_job_id_says_nothing_about_its_key() {
    let mut ids = vec![];
    for _ in 0..2 {
        let s = Scheduler::start().await;
        let _node = RawNode::join(&s, "n1", 4).await;
        ids.push(keyed(&s, "order-1", &job()).await.body["job_id"].clone());
    }
    assert!(ids[0].is_string() && ids[0] != ids[1], "{ids:?}");
}

/// The answers say "send it again": with the key, so that it is done once.
#[tokio::test]
async fn a_key_whose_job_found_no_node_or_no_slot_starts_a_new_job() {
    let (_redis, schedulers) = on_both_stores().await;
    for s in schedulers {
        let body = job_with(json!({"wait_ms": 0}));
        let none = keyed(&s, "order-1", &body).await;
        assert_eq!(none.error(), (503, "NO_CAPABLE_NODE"));
        let mut node = RawNode::join(&s, "n1", 1).await;
        let (_, _) = s.dispatch(job()).await;
        let occupied = node.expect("job_assign").await;
        node.ack(&occupied).await;
        let full = keyed(&s, "order-1", &body).await;
        assert_eq!(full.error(), (503, "ALL_CANDIDATES_FULL_OR_FAILED"));
        assert_ne!(full.body["job_id"], none.body["job_id"], "another job");
        node.done(&occupied, "hello").await;
        s.until_unused().await;
        let sent = keyed(&s, "order-1", &body).await;
        assert_eq!(sent.status, 200, "{:?}", sent.body);
        let assign = node.work().await;
        assert_eq!(assign["job_id"], sent.body["job_id"]);
        let again = keyed(&s, "order-1", &body).await;
        assert_eq!(again.body["job_id"], sent.body["job_id"], "a job that succeeded stays");
    }
}

#[tokio::test]
async fn a_key_whose_job_failed_on_its_node_keeps_its_job() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let first = keyed(&s, "order-1", &job()).await;
    let assign = node.expect("job_assign").await;
    node.ack(&assign).await;
    let failure = json!({"reason": "BAD_AUDIO", "retryable": false});
    node.report("job_fail", &assign, failure).await;
    assert_eq!(s.ended(first.body["job_id"].as_str().expect("an id")).await["state"], "FAILED");
    let again = keyed(&s, "order-1", &job()).await;
    assert_eq!(again.error(), (502, "NODE_FAILED"));
    assert_eq!(again.body["job_id"], first.body["job_id"]);
}

#[tokio::test]
async fn a_key_whose_job_was_lost_with_its_instance_starts_a_new_job() {
    let redis = Redis::start().await;
    let one = Scheduler::over(&redis.url(), "one").await;
    let two = Scheduler::over(&redis.url(), "two").await;
    let mut node = RawNode::join(&two, "n1", 2).await;
    let mut body = job();
    body.as_object_mut().expect("an object").remove("audio_ref");
    body["audio"] = json!({"format": "pcm16", "sample_rate": 16000, "data": "AAAAAA=="});
    let first = keyed(&one, "order-1", &body).await;
    assert_eq!(first.status, 200, "{:?}", first.body);
    let lost = first.body["job_id"].as_str().expect("an id").to_owned();
    node.expect("job_assign").await;
    node.crash();
    one.kill().await;
    let path = format!("/v1/jobs/{lost}");
    let ended = two.until_reply(&path, |reply| reply.body["state"] == "FAILED").await;
    assert_eq!(ended.body["error"], "INSTANCE_LOST");
    let mut node = RawNode::join(&two, "n2", 2).await;
    let second = keyed(&two, "order-1", &body).await;
    assert_eq!(second.status, 200, "{:?}", second.body);
    assert_ne!(second.body["job_id"], lost.as_str());
    assert_eq!(node.work().await["job_id"], second.body["job_id"]);
}

/// Requirements: JOB-27.
#[tokio::test]
async fn a_key_belongs_to_the_tenant_of_the_token() {
    let mut file = String::new();
    let mut tokens = vec![];
    for tenant in [Some("alice"), Some("alice"), Some("bob"), None] {
        let mut args = vec!["--role", "admin"];
        args.extend(tenant.into_iter().flat_map(|tenant| ["--tenant", tenant]));
        let (token, config) = new_token(&args).await;
        tokens.push(token);
        file += &config;
    }
    let s = Scheduler::from_toml(&file).await;
    let register = crate::raw_node::register("n1", 9);
    let _node = RawNode::join_at(&s.address, Some(&tokens[0]), register).await;
    let mut ids = vec![];
    for token in &tokens {
        let bearer = format!("Bearer {token}");
        let headers = [("Idempotency-Key", "order-1"), ("Authorization", &bearer)];
        let reply = s.send("POST", "/v1/dispatch/f2f", &headers, &job().to_string()).await;
        assert_eq!(reply.status, 200, "{:?}", reply.body);
        ids.push(reply.body["job_id"].as_str().expect("an id").to_owned());
    }
    assert_eq!(ids[0], ids[1], "two tokens of one tenant share their keys");
    let others: std::collections::BTreeSet<&String> = ids[1..].iter().collect();
    assert_eq!(others.len(), 3, "tenants do not: {ids:?}");
}
