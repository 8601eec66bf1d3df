//! The HTTP routes: what they return, and the errors for bad requests.

use serde_json::{Value, json};

use crate::http::Reply;
use crate::raw_node::{RawNode, register};
use crate::scheduler::{Scheduler, job, job_with, run, within};

#[tokio::test]
async fn health_readiness_and_unknown_routes() {
    let s = Scheduler::start().await;
    assert_eq!((s.get("/healthz").await.status, s.get("/readyz").await.status), (200, 200));
    let reply = s.get("/no/such/route").await;
    assert_eq!(reply.error(), (404, "INVALID_REQUEST"));
    assert_eq!(s.get("/v1/translate").await.status, 405);
    assert!(reply.header("x-request-id").is_some(), "{reply:?}");
}

/// Requirements: NODE-05, NODE-06, NODE-07, NODE-16, NODE-32, JOB-09, JOB-10.
#[tokio::test]
async fn bad_requests_get_a_status_a_code_and_a_detail() {
    let s = Scheduler::start().await;
    let cases = [
        ("/v1/dispatch/f2f", "{", 400, "INVALID_REQUEST"),
        ("/v1/dispatch/f2f", "{}", 400, "INVALID_REQUEST"),
        ("/v1/dispatch/f2f", r#"{"src_lang":"zh","tgt_lang":"en"}"#, 400, "INVALID_REQUEST"),
        (
            "/v1/dispatch/f2f",
            r#"{"src_lang":"??","tgt_lang":"en","text":"x"}"#,
            422,
            "INVALID_LANGUAGE",
        ),
        (
            "/v1/dispatch/f2f",
            r#"{"src_lang":"zh","tgt_lang":"auto","text":"x"}"#,
            422,
            "INVALID_LANGUAGE",
        ),
        (
            "/v1/dispatch/f2f",
            r#"{"src_lang":"zh","tgt_lang":"en","text":"x"}"#,
            503,
            "NO_CAPABLE_NODE",
        ),
        (
            "/v1/translate",
            r#"{"src_lang":"zh","tgt_lang":"en","text":"x"}"#,
            503,
            "NO_CAPABLE_NODE",
        ),
        ("/v1/node/register", r#"{"semantic_langs":["zh"]}"#, 422, "TTS_LANGUAGES_REQUIRED"),
        (
            "/v1/node/register",
            r#"{"asr_langs":["zh"],"tts_langs":["zh"]}"#,
            422,
            "SEMANTIC_LANGUAGES_REQUIRED",
        ),
        (
            "/v1/node/register",
            r#"{"language_capabilities":{"semantic_languages":["zh"],"tts_languages":["zh"]}}"#,
            422,
            "ASR_LANGUAGES_REQUIRED",
        ),
        (
            "/v1/node/register",
            r#"{"semantic_langs":["zh"],"tts_langs":["zh"],"max_concurrent_jobs":0}"#,
            400,
            "INVALID_REQUEST",
        ),
        ("/v1/node/heartbeat", r#"{"node_id":"nobody"}"#, 404, "NODE_NOT_REGISTERED"),
        ("/v1/node/offline", r#"{"node_id":"nobody"}"#, 404, "NODE_NOT_REGISTERED"),
        ("/v1/job/ack", r#"{"job_id":"job-1","attempt_id":1,"node_id":"n"}"#, 404, "JOB_NOT_FOUND"),
        ("/v1/nodes/nobody/drain", "", 404, "NODE_NOT_FOUND"),
        ("/v1/jobs/job-00000000000000000000000000000001/cancel", "", 404, "JOB_NOT_FOUND"),
        ("/v1/explain", r#"{"src_lang":"zh"}"#, 400, "INVALID_REQUEST"),
    ];
    for (path, body, status, code) in cases {
        let reply = s.send("POST", path, &[], body).await;
        assert_eq!(reply.error(), (status, code), "{path} {body}");
        assert!(reply.body["detail"].as_str().is_some_and(|d| !d.is_empty()), "{:?}", reply.body);
    }
    for (path, code) in [
        ("/v1/nodes/nobody", "NODE_NOT_FOUND"),
        ("/v1/pools/zh:en", "POOL_NOT_FOUND"),
        ("/v1/jobs/job-00000000000000000000000000000001", "JOB_NOT_FOUND"),
        ("/v1/jobs/nonsense", "JOB_NOT_FOUND"),
        ("/v1/node/nobody/jobs", "NODE_NOT_REGISTERED"),
    ] {
        let reply = s.get(path).await;
        assert_eq!(reply.error(), (404, code), "{path}");
    }
    let reply = s.get("/v1/jobs?state=BORED").await;
    assert_eq!(reply.error(), (400, "INVALID_REQUEST"));
}

/// Requirements: NODE-05, NODE-06, NODE-07, NODE-08.
#[tokio::test]
async fn an_empty_list_is_refused_like_a_missing_one() {
    let s = Scheduler::start().await;
    let nested = json!({"language_capabilities": {
        "asr_languages": ["zh"], "semantic_languages": ["zh"], "tts_languages": ["en"],
    }});
    for (kind, code) in [
        ("asr", "ASR_LANGUAGES_REQUIRED"),
        ("semantic", "SEMANTIC_LANGUAGES_REQUIRED"),
        ("tts", "TTS_LANGUAGES_REQUIRED"),
    ] {
        for empty in [json!([]), Value::Null] {
            let mut in_both = [nested.clone(), register("n1", 1)];
            in_both[0]["language_capabilities"][format!("{kind}_languages")] = empty.clone();
            in_both[1][format!("{kind}_langs")] = empty.clone();
            for (message, is_flat) in in_both.into_iter().zip([false, true]) {
                // In the flat shape the repair list stands in for one that is missing.
                if is_flat && kind == "asr" && empty.is_null() {
                    continue;
                }
                let reply = s.post("/v1/node/register", message.clone()).await;
                assert_eq!(reply.error(), (422, code), "{message}");
            }
        }
    }
    assert_eq!(s.get("/v1/nodes").await.body["nodes"], json!([]));
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let s = Scheduler::with(&[("SERVER__BODY_BYTES_MAX", "10000")]).await;
    let body = format!(r#"{{"src_lang":"zh","tgt_lang":"en","text":"{}"}}"#, "x".repeat(20_000));
    let huge = s.send("POST", "/v1/translate", &[], &body).await;
    assert_eq!(huge.error(), (413, "PAYLOAD_TOO_LARGE"));
}

/// Requirements: NODE-14, SLOT-16, JOB-26, OBS-02, OBS-11, OBS-16.
#[tokio::test]
async fn listings_show_nodes_pools_jobs_and_instances() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 3).await;
    let reply = tokio::spawn({
        let client = s.new_client();
        async move { client.post("/v1/translate", job()).await }
    });
    node.work().await;
    let done = within(reply).await.expect("a reply");
    assert_eq!((done.status, &done.body["state"]), (200, &json!("DONE")), "{:?}", done.body);
    assert_eq!(done.body["result"]["text_translated"], "hello");
    assert_eq!(done.body["attempts"][0]["node_id"], "n1");

    let nodes = s.get("/v1/nodes").await.body;
    let seen = &nodes["nodes"][0];
    assert_eq!(
        (&seen["node_id"], &seen["used"], &seen["max"]),
        (&json!("n1"), &json!(0), &json!(3))
    );
    assert_eq!(s.get("/v1/nodes/n1").await.body["state"], "ready");
    let pool = s.get("/v1/pools/zh:en").await.body;
    assert_eq!((&pool["nodes"], &pool["free"]), (&json!(1), &json!(3)));
    assert_eq!(s.get("/v1/pools/auto:en").await.status, 200);
    let jobs = s.get("/v1/jobs?state=done&limit=5").await.body;
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(1));
    let cluster = s.get("/v1/cluster").await.body;
    assert_eq!(cluster["instances"].as_array().map(Vec::len), Some(1));
    let explained = s.post("/v1/explain", job()).await.body;
    assert_eq!(explained["chosen"], "n1");
    assert_eq!(explained["nodes"][0]["verdict"], "chosen");
    let metrics = s.get("/metrics").await.text;
    for name in
        ["lingua_jobs_total{state=\"DONE\"} 1", "lingua_reserve_total{outcome=\"granted\"} 1"]
    {
        assert!(metrics.contains(name), "{name} is not in\n{metrics}");
    }
}

/// Requirements: POOL-07, POOL-11, POOL-15, LEAD-16, OBS-01.
#[tokio::test]
async fn the_pool_table_lists_exact_and_mixed_pools() {
    let s = Scheduler::start().await;
    let _node = RawNode::join(&s, "n1", 3).await;
    let has_pools = |reply: &Reply| reply.body["pools"][0].is_object();
    let listed = s.until_reply("/v1/pools", has_pools).await.body;
    let names: Vec<&str> =
        listed["pools"].as_array().unwrap().iter().filter_map(|p| p["pool"].as_str()).collect();
    for name in ["zh:en", "en:zh", "*:en", "*:zh"] {
        assert!(names.contains(&name), "{name} is not one of {names:?}");
    }
}

#[tokio::test]
async fn a_deadline_is_answered_with_504() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let late = s.post("/v1/translate", job_with(json!({"deadline_ms": 300}))).await;
    assert_eq!(late.error(), (504, "DEADLINE_EXCEEDED"));
    assert!(late.body["job_id"].as_str().is_some(), "{:?}", late.body);
    node.expect("job_cancel").await;
}

/// Requirements: JOB-27.
#[tokio::test]
async fn the_same_idempotency_key_gives_the_same_job() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 4).await;
    let key = [("Idempotency-Key", "order-77")];
    let send = || async { s.send("POST", "/v1/dispatch/f2f", &key, &job().to_string()).await };
    let first = send().await;
    assert_eq!(first.status, 200, "{:?}", first.body);
    let second = send().await;
    assert_eq!(first.body["job_id"], second.body["job_id"]);
    let assign = node.work().await;
    assert_eq!(assign["job_id"], first.body["job_id"]);
    assert_eq!(send().await.body["job_id"], first.body["job_id"], "also after the job ended");
    assert_eq!(s.get("/v1/jobs").await.body["jobs"].as_array().map(Vec::len), Some(1));
}

/// Requirements: NODE-09, NODE-34.
#[tokio::test]
async fn a_heartbeat_that_changes_slots_keeps_the_version() {
    let s = Scheduler::start().await;
    let mut register = register("n1", 1);
    register["version"] = json!("3.0");
    let mut node = RawNode::join_with(&s, register).await;
    node.heartbeat(json!({"max_concurrent_jobs": 7})).await;
    let shown = s.get("/v1/nodes/n1").await.body;
    assert_eq!((&shown["version"], &shown["max"]), (&json!("3.0"), &json!(7)));
    let url = format!("http://{}", s.address);
    let (code, out, err) = run(&["nodes", "show", "n1", "--url", &url], &[]).await;
    assert_eq!(code, Some(0), "{err}");
    assert!(out.lines().any(|line| line.contains("version") && line.contains("3.0")), "{out}");
}

#[tokio::test]
async fn jobs_are_listed_newest_first() {
    let s = Scheduler::start().await;
    let _node = RawNode::join(&s, "n1", 8).await;
    let mut ids = vec![];
    for _ in 0..4 {
        ids.push(s.dispatch(job()).await.0);
    }
    ids.reverse();
    let listed = s.get("/v1/jobs?limit=3").await.body;
    let listed = listed["jobs"].as_array().expect("jobs").iter();
    let listed: Vec<&str> = listed.map(|job| job["job_id"].as_str().expect("an id")).collect();
    assert_eq!(listed, ids[..3]);
}

#[tokio::test]
async fn a_stop_lets_the_open_request_end() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let client = s.new_client();
    let open = tokio::spawn(async move { client.post("/v1/translate", job()).await });
    let assign = node.expect("job_assign").await;
    node.report("job_ack", &assign, json!({})).await;
    let stopping = tokio::spawn(s.terminate());
    node.expect("drain").await;
    node.report("job_done", &assign, json!({"result": {"text_translated": "hello"}})).await;
    assert_eq!(open.await.expect("no panic").body["state"], "DONE");
    assert_eq!(stopping.await.expect("no panic"), Some(0));
}
