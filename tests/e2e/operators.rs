//! What operators see: views that outlive the store, pools by cell, log lines.

use serde_json::{Value, json};

use crate::raw_node::{RawNode, register};
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job, job_with, run};

/// Requirements: LEAD-18.
#[tokio::test]
async fn the_last_table_and_nodes_stay_readable_while_the_store_is_away() {
    let mut redis = Redis::start().await;
    let s = Scheduler::over(&redis.url(), "one").await;
    let _node = RawNode::join(&s, "n1", 2).await;
    s.until_reply("/v1/pools", |reply| reply.text.contains("zh:en")).await;
    s.until("/v1/pools/zh:en", 200).await;
    let fresh = s.get("/v1/nodes").await.body;
    assert!(fresh["stale"].is_null() && fresh["as_of_ms"].is_null(), "{fresh}");
    redis.kill().await;
    let is_down = |reply: &crate::http::Reply| reply.text.contains("lingua_store_up 0");
    s.until_reply("/metrics", is_down).await;
    for (path, expected) in [
        ("/v1/nodes", "n1"),
        ("/v1/nodes/n1", "n1"),
        ("/v1/pools", "zh:en"),
        ("/v1/pools/zh:en", "n1"),
        ("/v1/cluster", "one"),
    ] {
        let is_stale = |reply: &crate::http::Reply| reply.body["stale"] == true;
        let reply = s.until_reply(path, is_stale).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        assert!(reply.body["as_of_ms"].as_u64() > Some(0), "{path}: {}", reply.text);
        assert!(reply.text.contains(expected), "{path}: {}", reply.text);
    }
    assert_eq!(s.get("/v1/cluster").await.body["store"]["up"], false);
    assert_eq!(s.get("/v1/nodes/n2").await.status, 404);
    let url = format!("http://{}", s.address);
    let (code, out, error) = run(&["nodes", "--url", &url], &[]).await;
    assert_eq!(code, Some(0), "{error}");
    assert!(out.contains("n1") && out.contains("The store does not answer"), "{out}");
}

/// Requirements: LEAD-19.
#[tokio::test]
async fn an_outage_of_the_store_leaves_few_warnings() {
    let mut redis = Redis::start().await;
    let s = Scheduler::over(&redis.url(), "one").await;
    s.until("/readyz", 200).await;
    redis.kill().await;
    let first = s.until_logged(&[("message", "the store did not answer")]).await;
    assert_eq!(first["level"], "WARN", "{first}");
    assert!(first["fields"]["reason"].is_string(), "{first}");
    let next = |line: &Value| line["fields"]["left_out"].as_u64() > Some(0);
    while !s.log_lines(&[("message", "the store did not answer")]).iter().any(next) {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    // Two periods of at least 5 s began; other tasks add one line each at most.
    let warnings = s.log_lines(&[]).iter().filter(|line| line["level"] == "WARN").count();
    assert!(warnings <= 5, "{warnings}: {:?}", s.log_lines(&[]));
}

/// Requirements: OBS-04, OBS-07.
#[tokio::test]
async fn a_node_shows_its_pools_and_a_pool_its_cells() {
    let s = Scheduler::start().await;
    let _node = RawNode::join(&s, "n1", 3).await;
    let node = s.get("/v1/nodes/n1").await.body;
    let pools = node["pools"].as_array().expect("pools");
    for pool in ["zh:en", "en:zh", "*:en", "*:zh"] {
        assert!(pools.contains(&json!(pool)), "{pool} is missing: {node}");
    }
    let pool = s.get("/v1/pools/zh:en").await.body;
    let cell = json!({"cell": 0, "nodes": 1, "ready": 1, "free": 3, "slots": 3});
    assert_eq!(pool["cells"], json!([cell]), "{pool}");
    let url = format!("http://{}", s.address);
    let (_, out, error) = run(&["nodes", "show", "n1", "--url", &url], &[]).await;
    assert!(out.contains("*:en"), "{out} {error}");
    let (_, out, error) = run(&["pools", "show", "zh:en", "--url", &url], &[]).await;
    assert!(out.contains("c0: 1 of 1 nodes ready, 3 of 3 slots free"), "{out} {error}");
}

/// Requirements: CONF-07, CONF-09.
#[tokio::test]
async fn pools_that_the_table_leaves_out_are_counted_and_can_be_switched_off() {
    let limits = [("POOLS__MAX_POOLS", "1"), ("POOLS__MIXED", "false")];
    let s = Scheduler::with(&limits).await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let shown = s.until_reply("/v1/pools", |reply| reply.body["left_out"] == 3).await.body;
    assert_eq!(shown["pools"].as_array().map(Vec::len), Some(1), "no mixed pools: {shown}");
    s.until_metric("lingua_pools_left_out", 3.0).await;
    let url = format!("http://{}", s.address);
    let (_, out, _) = run(&["pools", "--url", &url], &[]).await;
    assert!(out.contains("3 more are left out"), "{out}");
    // Jobs of such pools are served all the same.
    let mut auto = job();
    auto["src_lang"] = json!("auto");
    let (_, at) = s.dispatch(auto).await;
    assert_eq!(at, "n1");
    node.work().await;

    let s = Scheduler::with(&[("POOLS__GENERATE", "false")]).await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    s.until_metric("lingua_node_max_slots", 1.0).await;
    let shown = s.get("/v1/pools").await.body;
    assert_eq!(shown["pools"], json!([]), "{shown}");
    s.dispatch(job()).await;
    node.work().await;
}

/// Requirements: OBS-20, OBS-21.
#[tokio::test]
async fn a_registration_is_one_line_and_a_refused_one_too() {
    let s = Scheduler::start().await;
    let _node = RawNode::join(&s, "n1", 1).await;
    let line = s.until_logged(&[("step", "register_complete"), ("node_id", "n1")]).await;
    for field in ["checked_ms", "stored_ms", "elapsed_ms", "epoch", "pairs"] {
        assert!(line["fields"][field].is_u64(), "{field}: {line}");
    }
    let request = line["spans"].as_array().and_then(|spans| spans[0]["request_id"].as_str());
    assert!(request.is_some_and(|id| !id.is_empty()), "{line}");
    let polling = s.post("/v1/node/register", register("n2", 1)).await;
    assert_eq!(polling.status, 200, "{}", polling.text);
    s.until_logged(&[("step", "register_complete"), ("node_id", "n2")]).await;
    let about = |id: &str| s.log_lines(&[("node_id", id)]).len();
    assert_eq!((about("n1"), about("n2")), (1, 1), "the steps are at DEBUG");

    let mut without = register("n3", 1);
    without["tts_langs"] = json!([]);
    assert_eq!(s.post("/v1/node/register", without.clone()).await.status, 422);
    let refused = [("step", "register_refused"), ("reason", "TTS_LANGUAGES_REQUIRED")];
    let line = s.until_logged(&refused).await;
    assert_eq!(line["fields"]["node_id"], "n3", "{line}");
    let mut node = RawNode::connect(&s.address, None).await;
    without["node_id"] = json!("n4");
    node.send(without).await;
    assert_eq!(node.next().await["error"], "TTS_LANGUAGES_REQUIRED");
    s.until_logged(&[refused[0], ("node_id", "n4")]).await;
}

/// Requirements: OBS-22.
#[tokio::test]
async fn heartbeats_are_logged_at_debug() {
    for (level, is_logged) in [("debug", true), ("info", false)] {
        let s = Scheduler::with(&[("LOG__LEVEL", level)]).await;
        let mut node = RawNode::join(&s, "n1", 1).await;
        node.heartbeat(json!({"health": "ready", "current_load": {"cpu": 0.25}})).await;
        let said = [("message", "heartbeat"), ("node_id", "n1")];
        if is_logged {
            let line = s.until_logged(&said).await;
            assert_eq!(line["level"], "DEBUG", "{line}");
        }
        s.begin_stop().await;
        s.until_logged(&[("message", "stopped")]).await;
        assert_eq!(s.log_lines(&said).len(), usize::from(is_logged));
    }
}

/// Requirements: OBS-19.
#[tokio::test]
async fn a_refused_job_leaves_a_line_with_its_reason_and_ids() {
    let s = Scheduler::start().await;
    let headers = [("X-Request-Id", "order-7")];
    let body = job_with(json!({"wait_ms": 0})).to_string();
    let refused = s.send("POST", "/v1/dispatch/f2f", &headers, &body).await;
    assert_eq!(refused.error(), (503, "NO_CAPABLE_NODE"));
    let line = s.until_logged(&[("reason", "NO_CAPABLE_NODE")]).await;
    assert_eq!((&line["level"], &line["fields"]["pair"]), (&json!("INFO"), &json!("zh:en")));
    let spans = line["spans"].to_string();
    for part in ["\"job_id\":\"job-", "\"trace_id\":\"order-7\"", "\"request_id\":\"order-7\""] {
        assert!(spans.contains(part), "{part} is not in {line}");
    }
    let invalid = s.send("POST", "/v1/dispatch/f2f", &headers, "{}").await;
    assert_eq!(invalid.status, 400, "{}", invalid.text);
    let line = s.until_logged(&[("message", "the job was refused")]).await;
    assert_eq!(line["fields"]["reason"], "INVALID_REQUEST", "{line}");
    assert_eq!(line["spans"][0]["trace_id"], "order-7", "{line}");
    // Refused after it was read: the line has the ids that the job would have had.
    let mut forbidden = job();
    forbidden["audio_ref"] = json!("file:///etc/passwd");
    forbidden["trace_id"] = json!("trace-8");
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("00-{trace}-b7ad6b7169203331-01");
    for (headers, body, expected) in [
        (headers, forbidden.to_string(), "trace-8"),
        ([("traceparent", &*parent)], "{}".to_owned(), trace),
    ] {
        let refused = s.send("POST", "/v1/translate", &headers, &body).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
        let lines = s.log_lines(&[("message", "the job was refused")]);
        let line = lines.last().expect("a line");
        assert_eq!(line["spans"][0]["trace_id"], expected, "{line}");
        let has_job = line["spans"][0]["job_id"].as_str().is_some_and(|id| id.starts_with("job-"));
        assert_eq!(has_job, expected == "trace-8", "{line}");
    }
    // A flood of refusals does not flood the log.
    for _ in 0..100 {
        s.send("POST", "/v1/dispatch/f2f", &headers, "{}").await;
    }
    let lines = s.log_lines(&[("message", "the job was refused")]).len();
    assert!(lines < 90, "{lines} lines for 101 refusals");
}

/// Requirements: OBS-19.
#[tokio::test]
async fn a_retry_names_the_node_that_failed() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    s.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    node.report("job_fail", &assign, json!({"reason": "BUSY"})).await;
    let line = s.until_logged(&[("message", "retrying")]).await;
    assert_eq!(line["fields"]["node_id"], "n1", "{line}");
}

#[tokio::test]
async fn the_heartbeat_interval_grows_with_the_fleet() {
    let s = Scheduler::with(&[("SCHEDULER__HEARTBEAT_INTERVAL_MS", "10")]).await;
    let told = async |id: &str| {
        let reply = s.post("/v1/node/register", register(id, 1)).await;
        reply.body["heartbeat_interval_ms"].as_u64().expect("an interval")
    };
    assert_eq!(told("n0").await, 10);
    for n in 1..60 {
        told(&format!("n{n}")).await;
    }
    s.until_metric("lingua_nodes{state=\"ready\"}", 60.0).await;
    let all = |reply: &crate::http::Reply| reply.body["nodes"]["ready"] == 60;
    s.until_reply("/v1/cluster", all).await;
    assert_eq!(told("n60").await, 60, "at most 1000 heartbeats in a second");
}

/// Requirements: LEAD-14.
#[tokio::test]
async fn a_table_whose_change_was_not_told_is_read_all_the_same() {
    let redis = Redis::start().await;
    let s = Scheduler::over(&redis.url(), "one").await;
    let _node = RawNode::join(&s, "n1", 1).await;
    s.until_reply("/v1/pools", |reply| reply.text.contains("zh:en")).await;
    // Another leader publishes, and its change is lost.
    let before = s.get("/v1/pools").await.body["table_version"].as_u64().expect("a version");
    let raised = redis.command("HINCRBY lingua:v1:{hub}:table version 1000").await;
    assert_eq!(raised, format!(":{}", before + 1000));
    s.until_reply("/v1/pools", |reply| reply.body["table_version"].as_u64() >= Some(before + 1000))
        .await;
}

#[tokio::test]
async fn a_second_process_with_the_same_name_does_not_start() {
    let redis = Redis::start().await;
    let url = redis.url();
    let first = Scheduler::over(&url, "one").await;
    first.until("/readyz", 200).await;
    let settings = [("LINGUA_STORE__URL", url.as_str()), ("LINGUA_LOG__FORMAT", "text")];
    let args = ["serve", "--listen", "127.0.0.1:0", "--instance-id", "one"];
    let (code, _, error) = run(&args, &settings).await;
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("waiting until its lease ends"), "{error}");
    assert!(error.contains("another running process is instance one"), "{error}");
    assert!(error.contains("--instance-id"), "{error}");
    // The first one is not disturbed.
    let mut node = RawNode::join(&first, "n1", 1).await;
    first.dispatch(job()).await;
    node.work().await;
    // After a crash the name is free as soon as its lease has ended, after a stop at once.
    first.kill().await;
    let second = Scheduler::over(&url, "one").await;
    second.until("/readyz", 200).await;
    assert_eq!(second.terminate().await, Some(0));
    let third = Scheduler::over(&url, "one").await;
    third.until("/readyz", 200).await;
    assert!(third.log_lines(&[("level", "WARN")]).is_empty());
}

#[tokio::test]
async fn an_instance_that_lost_its_name_to_another_process_stops() {
    let redis = Redis::start().await;
    let url = redis.url();
    let paused = Scheduler::over(&url, "one").await;
    paused.until("/readyz", 200).await;
    crate::scheduler::signal(&paused.child, "STOP").await;
    let successor = Scheduler::over(&url, "one").await;
    successor.until("/readyz", 200).await;
    crate::scheduler::signal(&paused.child, "CONT").await;
    assert_eq!(paused.exit_code().await, Some(1));
    assert_eq!(successor.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn offline_takes_a_node_away() {
    let s = Scheduler::start().await;
    let _node = RawNode::join(&s, "n1", 1).await;
    let url = format!("http://{}", s.address);
    let (code, out, error) = run(&["offline", "n1", "--url", &url], &[]).await;
    assert_eq!(code, Some(0), "{error}");
    assert!(out.contains("n1 is offline"), "{out}");
    assert_ne!(s.get("/v1/nodes/n1").await.body["state"], "ready");
    let (code, _, error) = run(&["offline", "nobody", "--url", &url], &[]).await;
    assert_eq!(code, Some(1));
    assert!(error.contains("NODE_NOT_REGISTERED") && error.contains("'lingua nodes'"), "{error}");
}

#[tokio::test]
async fn the_front_page_links_the_reference_and_answers_end_with_a_newline() {
    let s = Scheduler::start().await;
    let front = s.get("/").await;
    assert_eq!(front.status, 200);
    assert!(front.text.contains("href=\"/docs\""), "{}", front.text);
    for path in ["/v1/nodes", "/v1/pools", "/v1/cluster", "/v1/jobs", "/openapi.json", "/nowhere"] {
        let reply = s.get(path).await;
        assert!(reply.text.ends_with("}\n"), "{path}: {:?}", reply.text);
    }
    let line = s.log_lines(&[("message", "listening")]).pop().expect("a line");
    assert_eq!(line["fields"]["url"], format!("http://{}", s.address));
}
