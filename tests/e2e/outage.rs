//! What happens while the store is away, and after: refused, told, and back without a restart.

use std::time::Duration;

use serde_json::json;

use crate::redis::{Cable, Redis, free_port};
use crate::world::{Node, Reply, Scheduler, job, within};

/// While the store is away: new work is refused, `/readyz` says so, the process is well and the nodes stay.
async fn is_refused(s: &Scheduler) {
    let told = s.until("/readyz", 503).await;
    assert_eq!(told["error"], "SCHEDULER_DEPENDENCY_DOWN", "{told}");
    let shows_it = |reply: &Reply| reply.text.contains("lingua_store_up 0");
    s.until_it("/metrics", shows_it).await;
    let refused = s.post("/v1/dispatch/f2f", job()).await;
    assert_eq!(
        (refused.status, &refused.body["error"]),
        (503, &json!("SCHEDULER_DEPENDENCY_DOWN"))
    );
    assert_eq!(s.get("/healthz").await.status, 200, "the process itself is well");
    assert_eq!(s.metric(r#"lingua_connections{kind="node"}"#).await, 1.0, "the node stays");
}

/// The store is back: work goes on, on the same connection of the same node.
async fn goes_on(s: &Scheduler, node: &mut Node) {
    s.until("/readyz", 200).await;
    let done = async {
        loop {
            let reply = s.post("/v1/translate", job()).await;
            if reply.status == 200 {
                return reply.body;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // What is refused now and then on the way back is no job: it works for whatever comes.
    let working = async {
        loop {
            // It is trusted again when it has given a sign of life.
            node.send(json!({"type": "heartbeat"})).await;
            let message = node.next().await;
            match message["type"].as_str() {
                Some("job_assign") => {
                    node.say("job_ack", &message, json!({})).await;
                    node.say("job_done", &message, json!({"result": {"text": "hello"}})).await;
                }
                _ => assert!(!message.is_null(), "the connection was closed"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let body = within(async {
        tokio::select! {
            body = done => body,
            () = working => unreachable!("it works for ever"),
        }
    })
    .await;
    assert_eq!(body["state"], "DONE", "{body}");
    s.until_it("/v1/nodes", |reply| reply.body["nodes"][0]["used"] == 0).await;
    assert_eq!(s.metric("lingua_store_up").await, 1.0);
}

#[tokio::test]
async fn a_store_that_sleeps() {
    let redis = Redis::start().await;
    let s = Scheduler::over(&redis.url(), "one").await;
    let mut node = Node::join(&s, "n1", 1).await;
    redis.signal("STOP").await;
    is_refused(&s).await;
    redis.signal("CONT").await;
    goes_on(&s, &mut node).await;
}

#[tokio::test]
async fn a_store_that_is_cut_off() {
    let redis = Redis::start().await;
    let cable = Cable::to(redis.port).await;
    let s = Scheduler::over(&cable.url(), "one").await;
    let mut node = Node::join(&s, "n1", 1).await;
    cable.cut();
    is_refused(&s).await;
    cable.mend();
    goes_on(&s, &mut node).await;
}

#[tokio::test]
async fn a_store_without_memory_and_one_that_may_not_be_written() {
    let redis = Redis::start().await;
    let s = Scheduler::over(&redis.url(), "one").await;
    let mut node = Node::join(&s, "n1", 1).await;
    for (fault, cure) in [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    ] {
        assert_eq!(redis.say(fault).await, "+OK", "{fault}");
        is_refused(&s).await;
        assert_eq!(redis.say(cure).await, "+OK", "{cure}");
        goes_on(&s, &mut node).await;
    }
}

#[tokio::test]
async fn a_script_cache_that_is_flushed() {
    let redis = Redis::start().await;
    let s = Scheduler::over(&redis.url(), "one").await;
    let mut node = Node::join(&s, "n1", 1).await;
    assert_eq!(redis.say("SCRIPT FLUSH").await, "+OK");
    goes_on(&s, &mut node).await;
}

#[tokio::test]
async fn a_store_that_is_killed_and_comes_back_empty() {
    let mut redis = Redis::start().await;
    let s = Scheduler::over(&redis.url(), "one").await;
    let mut node = Node::join(&s, "n1", 1).await;
    let (id, _) = s.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    node.say("job_ack", &assign, json!({})).await;
    redis.kill().await;
    is_refused(&s).await;
    let _redis = Redis::start_on(redis.port).await;
    s.until("/readyz", 200).await;
    // The node is told to register again, as soon as it says that it is alive.
    node.send(json!({"type": "heartbeat"})).await;
    assert_eq!(node.expect("error").await["error"], "NODE_NOT_REGISTERED");
    let mut again = Node::join(&s, "n1", 1).await;
    // The job that it had is written again by its owner, and done.
    again.say("job_done", &assign, json!({"result": {"text_translated": "hello"}})).await;
    again.expect("job_confirmed").await;
    let working = tokio::spawn(async move {
        loop {
            let message = again.next().await;
            if message["type"] == "job_assign" {
                again.say("job_ack", &message, json!({})).await;
                again.say("job_done", &message, json!({"result": {"text": "again"}})).await;
            }
            if message.is_null() {
                return;
            }
        }
    });
    let ended = s.ended(&id).await;
    assert_eq!(ended["state"], "DONE", "{ended:#}");
    s.until_it("/v1/nodes", |reply| reply.body["nodes"][0]["used"] == 0).await;
    working.abort();
}

#[tokio::test]
async fn a_store_that_is_still_loading() {
    let dir = tempfile::TempDir::new().expect("a folder");
    let folder = ["--dir", dir.path().to_str().expect("a path")];
    let mut redis = Redis::start_with(free_port(), &folder).await;
    let s = Scheduler::over(&redis.url(), "one").await;
    let mut node = Node::join(&s, "n1", 1).await;
    // Two seconds for what is to be loaded, and it answers meanwhile: LOADING.
    let fill = r#"EVAL "for n = 1, 2000 do redis.call('SET', 'x' .. n, n) end" 0"#;
    assert_eq!(redis.say(fill).await, "$-1");
    assert_eq!(redis.say("SAVE").await, "+OK");
    redis.kill().await;
    let slowly = ["--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"];
    let redis = Redis::start_with(redis.port, &[&folder[..], &slowly].concat()).await;
    assert!(redis.say("GET x").await.starts_with("-LOADING"), "it loads");
    is_refused(&s).await;
    goes_on(&s, &mut node).await;
}

#[tokio::test]
async fn a_store_that_forgot_its_last_writes_oversells_nobody() {
    let dir = tempfile::TempDir::new().expect("a folder");
    let folder = ["--dir", dir.path().to_str().expect("a path")];
    let mut redis = Redis::start_with(free_port(), &folder).await;
    let s = Scheduler::over(&redis.url(), "one").await;
    let mut node = Node::join(&s, "n1", 1).await;
    assert_eq!(redis.say("SAVE").await, "+OK");
    // From here on nothing will have happened.
    let (id, _) = s.dispatch(job()).await;
    let first = node.expect("job_assign").await;
    node.say("job_ack", &first, json!({})).await;
    s.until_it(&format!("/v1/jobs/{id}"), |reply| reply.body["state"] == "ACKED").await;
    redis.kill().await;
    let _redis = Redis::start_with(redis.port, &folder).await;
    s.until("/readyz", 200).await;
    s.until_it("/v1/nodes", |reply| reply.body["nodes"][0]["used"] == 0).await;
    // The slot looks free and is not: nothing is granted before the node has reported what it runs.
    let mut strict = job();
    strict["options"] = json!({"wait_ms": 300});
    let refused = s.post("/v1/dispatch/f2f", strict).await;
    assert_eq!(refused.body["error"], "ALL_CANDIDATES_FULL_OR_FAILED", "{:?}", refused.body);
    // It reports what it runs, is told to stop that, and gets the job again.
    let running = json!([{"job_id": id, "attempt_id": 1}]);
    node.send(json!({"type": "heartbeat", "running": running})).await;
    let ack = node.expect("heartbeat_ack").await;
    assert_eq!(ack["cancel"], running, "{ack}");
    let again = node.expect("job_assign").await;
    assert_eq!((&again["job_id"], &again["attempt_id"]), (&json!(id), &json!(2)));
    node.say("job_ack", &again, json!({})).await;
    node.say("job_done", &again, json!({"result": {"text_translated": "hello"}})).await;
    let ended = s.ended(&id).await;
    assert_eq!(ended["state"], "DONE", "{ended:#}");
    s.until_it("/v1/nodes", |reply| reply.body["nodes"][0]["used"] == 0).await;
}
