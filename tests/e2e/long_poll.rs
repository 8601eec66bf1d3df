//! Nodes that poll over HTTP instead of a WebSocket.

use serde_json::json;

use crate::raw_node::register;
use crate::scheduler::{Scheduler, job};

/// Requirements: POOL-04, POOL-10, NODE-02, NODE-12, NODE-13, NODE-17, NODE-23, NODE-31,
/// NODE-32, NODE-44, JOB-16, JOB-17.
#[tokio::test]
async fn a_polling_node_does_a_job_over_http() {
    let s = Scheduler::start().await;
    let registered = s.post("/v1/node/register", register("poller", 1)).await;
    assert_eq!(
        (registered.status, &registered.body["ok"]),
        (200, &json!(true)),
        "{:?}",
        registered.body
    );
    assert_eq!(
        (&registered.body["status"], &registered.body["pairs"]),
        (&json!("ready"), &json!(4))
    );
    let epoch = registered.body["epoch"].clone();

    let poll = s.get("/v1/node/poller/jobs?wait_ms=10000");
    let (polled, (id, _)) = tokio::join!(poll, s.dispatch(job()));
    let assign = polled.body["jobs"][0].clone();
    assert_eq!(assign["job_id"], json!(id));
    let about = json!({"job_id": id, "attempt_id": 1, "node_id": "poller"});
    let with = |more: serde_json::Value| {
        let mut about = about.clone();
        for (key, value) in more.as_object().into_iter().flatten() {
            about[key] = value.clone();
        }
        about
    };
    assert_eq!(s.post("/v1/job/ack", about.clone()).await.status, 200);
    let heartbeat = json!({
        "node_id": "poller", "epoch": epoch,
        "current_load": {"cpu": 0.3, "gpu": 0.5, "memory": 0.4},
        "running": [{"job_id": id, "attempt_id": 1}],
    });
    let reply = s.post("/v1/node/heartbeat", heartbeat).await;
    assert_eq!((reply.status, &reply.body["drain"]), (200, &json!(false)), "{}", reply.body);

    let wrong = s.post("/v1/job/done", with(json!({"attempt_id": 2, "status": "ok"}))).await;
    assert_eq!(wrong.error(), (409, "STALE_ATTEMPT"));
    let done = with(json!({"status": "ok", "result": {"text_translated": "hello"}}));
    assert_eq!(s.post("/v1/job/done", done.clone()).await.status, 200);
    let twice = s.post("/v1/job/done", done).await;
    assert_eq!(twice.error(), (409, "STALE_ATTEMPT"));
    assert_eq!(s.ended(&id).await["result"]["text_translated"], "hello");

    let stale = s.post("/v1/node/heartbeat", json!({"node_id": "poller", "epoch": 1})).await;
    assert_eq!(stale.error(), (409, "STALE_EPOCH"));
    let empty = s.get("/v1/node/poller/jobs?wait_ms=10").await;
    assert_eq!(empty.body["jobs"], json!([]));
    assert_eq!(s.post("/v1/node/offline", json!({"node_id": "poller"})).await.status, 200);
    let gone = s.post("/v1/node/heartbeat", json!({"node_id": "poller"})).await;
    assert_eq!(gone.error(), (404, "NODE_NOT_REGISTERED"));
}

/// Requirements: SLOT-11, JOB-16, JOB-20.
#[tokio::test]
async fn a_failure_over_http_is_retried_or_final() {
    let s = Scheduler::start().await;
    s.post("/v1/node/register", register("p", 1)).await;
    let (id, _) = s.dispatch(job()).await;
    for attempt in 1..=2 {
        let polled = s.get("/v1/node/p/jobs?wait_ms=10000").await;
        assert_eq!(polled.body["jobs"][0]["attempt_id"], json!(attempt));
        let fail = json!({
            "job_id": id, "attempt_id": attempt, "node_id": "p", "status": "error",
            "reason": "MODEL_LOAD_FAILED", "retryable": attempt == 1,
        });
        assert_eq!(s.post("/v1/job/fail", fail).await.status, 200);
    }
    let ended = s.ended(&id).await;
    assert_eq!((&ended["state"], &ended["error"]), (&json!("FAILED"), &json!("NODE_FAILED")));
    assert_eq!(ended["attempts"].as_array().map(Vec::len), Some(2));
}
