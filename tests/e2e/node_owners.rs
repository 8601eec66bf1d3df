//! A node id belongs to the token that registered it.

use serde_json::{Value, json};

use crate::callers::{Caller, secret, token};
use crate::floods::thread_ms;
use crate::raw_node::{RawNode, register};
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job, within};

fn tokens() -> String {
    token("red", "node", "")
        + &token("blue", "node", "nodes = [\"blue-*\", \"fixed\"]\nnodes_max = 2")
        + &token("app", "client", "")
        + &token("ops", "admin", "")
}

/// Everything that a node may call, in the name of `node` and about `job`.
fn calls(node: &str, job: &str) -> Vec<(&'static str, String, Value)> {
    let about = json!({"job_id": job, "attempt_id": 1, "node_id": node});
    let with = |more: Value| {
        let mut about = about.clone();
        for (key, value) in more.as_object().into_iter().flatten() {
            about[key] = value.clone();
        }
        about
    };
    let post = |path: &str, body| ("POST", path.to_owned(), body);
    vec![
        post("/v1/node/register", register(node, 1)),
        post("/v1/node/heartbeat", json!({"node_id": node})),
        ("GET", format!("/v1/node/{node}/jobs?wait_ms=10"), json!({})),
        post("/v1/job/ack", about.clone()),
        post("/v1/job/partial", with(json!({"text": "forged"}))),
        post("/v1/job/done", with(json!({"status": "ok", "result": {"text_translated": "x"}}))),
        post("/v1/job/fail", with(json!({"status": "error", "reason": "X"}))),
        post("/v1/node/offline", json!({"node_id": node})),
    ]
}

#[tokio::test]
async fn nobody_else_may_speak_for_a_node() {
    let s = Scheduler::from_toml(&tokens()).await;
    let [red, blue, app, ops] = ["red", "blue", "app", "ops"].map(|name| Caller::new(&s, name));
    assert_eq!(red.post("/v1/node/register", register("blue-1", 1)).await.status, 200);
    let sent = app.post("/v1/dispatch/f2f", job()).await;
    let id = sent.body["job_id"].as_str().expect("a job").to_owned();
    for other in [&blue, &ops] {
        for (method, path, body) in calls("blue-1", &id) {
            if path == "/v1/node/offline" && std::ptr::eq(other, &ops) {
                continue;
            }
            let reply = other.send(method, &path, &body.to_string()).await;
            assert_eq!(reply.error(), (403, "NODE_ID_TAKEN"), "{path}: {}", reply.body);
        }
    }
    let mut forged = RawNode::connect(&s.address, Some(&secret("blue"))).await.socket;
    let mut message = register("blue-1", 1);
    message["type"] = json!("register");
    forged.send(message).await;
    assert_eq!(forged.expect("error").await["error"], "NODE_ID_TAKEN");
    // The owner goes on undisturbed.
    for (method, path, body) in calls("blue-1", &id).into_iter().skip(2).take(4) {
        let reply = red.send(method, &path, &body.to_string()).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    }
    let ended = app.get(&format!("/v1/jobs/{id}?wait_ms=5000")).await;
    assert_eq!(ended.body["result"]["text_translated"], "x");
    let offline = ops.post("/v1/node/offline", json!({"node_id": "blue-1"})).await;
    assert_eq!(offline.status, 200, "an administrator may sign a node off: {}", offline.body);
    let again = blue.post("/v1/node/register", register("blue-1", 1)).await;
    assert_eq!(again.error(), (403, "NODE_ID_TAKEN"), "its record lives");
    assert_eq!(red.post("/v1/node/register", register("blue-1", 1)).await.status, 200);
}

#[tokio::test]
async fn a_token_registers_the_ids_and_the_number_that_it_may() {
    let s = Scheduler::from_toml(&tokens()).await;
    let blue = Caller::new(&s, "blue");
    for (id, expected) in [
        ("red-1", (403, "FORBIDDEN")),
        ("fixed-1", (403, "FORBIDDEN")),
        ("fixed", (200, "")),
        ("blue-1", (200, "")),
        ("blue-1", (200, "")),
        ("blue-2", (403, "FORBIDDEN")),
    ] {
        let reply = blue.post("/v1/node/register", register(id, 1)).await;
        let code = reply.body["error"].as_str().unwrap_or_default();
        assert_eq!((reply.status, code), expected, "{id}: {}", reply.body);
    }
    let s = Scheduler::from_toml(&tokens()).await;
    let mut nameless = register("x", 1);
    nameless["node_id"].take();
    let reply = Caller::new(&s, "blue").post("/v1/node/register", nameless).await;
    let id = reply.body["node_id"].as_str().expect("an id").to_owned();
    assert!(id.starts_with("blue-"), "{id}");
}

/// The places of nodes that are gone do not count for ever.
#[tokio::test]
async fn a_token_gets_the_place_of_its_node_that_is_gone() {
    let times = "[scheduler]\nheartbeat_interval_ms = 200\nheartbeat_stale_ms = 600\n";
    let s = Scheduler::from_toml(&format!("{times}{}", tokens())).await;
    let blue = Caller::new(&s, "blue");
    for id in ["blue-1", "blue-2"] {
        assert_eq!(blue.post("/v1/node/register", register(id, 1)).await.status, 200);
    }
    let late = async || blue.post("/v1/node/register", register("blue-3", 1)).await.status;
    assert_eq!(late().await, 403, "both are there");
    within(async { while late().await != 200 {} }).await;
}

/// Looking for places that can be given away means reading the whole fleet. It is done once a
/// second, so that a name too many costs about as much as a name that is not allowed.
#[tokio::test]
async fn a_flood_of_new_names_costs_little_for_each_however_large_the_fleet() {
    const FLEET: usize = 1_000;
    const NAMES: usize = 1_000;
    let s = Scheduler::from_toml(&tokens()).await;
    let (red, blue) = (Caller::new(&s, "red"), Caller::new(&s, "blue"));
    for n in 0..FLEET {
        let reply = red.post("/v1/node/register", register(&format!("red-{n}"), 1)).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
    }
    for id in ["blue-a", "blue-b"] {
        assert_eq!(blue.post("/v1/node/register", register(id, 1)).await.status, 200);
    }
    let refused_ms = async |prefix: &str| {
        let before_ms = thread_ms(&s);
        for n in 0..NAMES {
            let id = format!("{prefix}-{n}");
            let reply = blue.post("/v1/node/register", register(&id, 1)).await;
            assert_eq!(reply.error(), (403, "FORBIDDEN"), "{}", reply.text);
        }
        thread_ms(&s) - before_ms
    };
    // Refused before the store is asked, and after.
    let (unasked_ms, asked_ms) = (refused_ms("other").await, refused_ms("blue").await);
    assert!(
        asked_ms <= 3 * unasked_ms.max(100),
        "{NAMES} names: {unasked_ms} ms by their pattern, {asked_ms} ms by their number"
    );
    assert!(s.get("/healthz").await.status == 200);
}

/// The limit of a tenant holds for all its tokens together.
#[tokio::test]
async fn a_tenant_registers_the_number_of_node_ids_that_it_may() {
    let times = "[scheduler]\nheartbeat_interval_ms = 200\nheartbeat_stale_ms = 600\n";
    let of = |tenant: &str| format!("tenant = \"{tenant}\"");
    let tokens = token("red", "node", &of("gpus"))
        + &token("blue", "node", &format!("{}\nnodes_max = 2", of("gpus")))
        + &token("free", "node", &of("others"))
        + "[[auth.tenants]]\nname = \"gpus\"\nlimits = { nodes_max = 3 }\n";
    let s = Scheduler::from_toml(&format!("{times}{tokens}")).await;
    let join = async |name: &str, id: &str| {
        RawNode::join_at(&s.address, Some(&secret(name)), register(id, 1)).await
    };
    let [red, blue, free] = ["red", "blue", "free"].map(|name| Caller::new(&s, name));
    let _connected = [join("red", "n1").await, join("red", "n2").await];
    let mut third = join("blue", "n3").await;
    for (caller, id) in [(&red, "n4"), (&blue, "n5")] {
        let refused = caller.post("/v1/node/register", register(id, 1)).await;
        assert_eq!(refused.error(), (403, "FORBIDDEN"), "{}", refused.text);
        assert!(refused.text.contains("nodes_max") && refused.text.contains("gpus"), "{refused:?}");
    }
    assert_eq!(free.post("/v1/node/register", register("n6", 1)).await.status, 200);
    // What is there may register again.
    let again = RawNode::join_at(&s.address, Some(&secret("blue")), register("n3", 1)).await;
    assert_eq!(third.expect("error").await["error"], "STALE_EPOCH");
    for (caller, limit, left) in [(&red, json!(3), 0), (&blue, json!(2), 0)] {
        let me = caller.get("/v1/me").await.body;
        assert_eq!((&me["limits"]["nodes_max"], &me["left"]["nodes"]), (&limit, &json!(left)));
    }
    let me = free.get("/v1/me").await.body;
    assert!(me["limits"]["nodes_max"].is_null() && me["left"]["nodes"].is_null(), "{me}");
    // A node that is gone gives its place up.
    drop(again);
    let late = async || blue.post("/v1/node/register", register("n5", 1)).await.status;
    within(async { while late().await != 200 {} }).await;
}

#[tokio::test]
async fn a_node_is_not_called_by_dots() {
    let s = Scheduler::start().await;
    for id in [".", ".."] {
        let reply = s.post("/v1/node/register", register(id, 1)).await;
        assert_eq!(reply.error(), (400, "INVALID_REQUEST"), "{}", reply.body);
    }
}

/// The owner is in the store: every instance knows it, and it survives a restart.
#[tokio::test]
async fn every_instance_knows_the_owner_of_a_node() {
    let redis = Redis::start().await;
    let config = |name: &str| {
        let store = format!("[store]\nurl = \"{}\"\n", redis.url());
        format!("{store}[instance]\nid = \"{name}\"\n{}", tokens())
    };
    let one = Scheduler::from_toml(&config("one")).await;
    let two = Scheduler::from_toml(&config("two")).await;
    let red = Caller::new(&one, "red");
    assert_eq!(red.post("/v1/node/register", register("blue-1", 1)).await.status, 200);
    let (red, blue) = (Caller::new(&two, "red"), Caller::new(&two, "blue"));
    let id = "job-00000000000000000000000000000001";
    for (method, path, body) in calls("blue-1", id) {
        let reply = blue.send(method, &path, &body.to_string()).await;
        assert_eq!(reply.error(), (403, "NODE_ID_TAKEN"), "{path}: {}", reply.body);
    }
    let heartbeat = red.post("/v1/node/heartbeat", json!({"node_id": "blue-1"})).await;
    assert_eq!(heartbeat.status, 200, "{}", heartbeat.body);
}

#[tokio::test]
async fn the_owner_of_a_node_survives_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = format!("[store]\ndata_dir = \"{}\"\n{}", dir.path().display(), tokens());
    let s = Scheduler::from_toml(&data).await;
    let red = Caller::new(&s, "red");
    assert_eq!(red.post("/v1/node/register", register("blue-1", 1)).await.status, 200);
    s.terminate().await;
    let s = Scheduler::from_toml(&data).await;
    let reply = Caller::new(&s, "blue").post("/v1/node/register", register("blue-1", 1)).await;
    assert_eq!(reply.error(), (403, "NODE_ID_TAKEN"));
    let reply = Caller::new(&s, "red").post("/v1/node/register", register("blue-1", 1)).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
}

/// A node that names another node's job in its heartbeat gets neither the job nor its text.
#[tokio::test]
async fn a_heartbeat_speaks_for_its_own_node_only() {
    let s = Scheduler::from_toml(&tokens()).await;
    let app = Caller::new(&s, "app");
    let join = async |name: &str, id| {
        RawNode::join_at(&s.address, Some(&secret(name)), register(id, 1)).await
    };
    let mut owner = join("red", "honest").await;
    let sent = app.post("/v1/dispatch/f2f", job()).await;
    let assign = owner.socket.expect("job_assign").await;
    owner.ack(&assign).await;
    let mut thief = join("blue", "blue-thief").await;
    let claimed = json!([{"job_id": assign["job_id"], "attempt_id": 1}]);
    for _ in 0..3 {
        let ack = thief.heartbeat(json!({"running": claimed})).await;
        assert_eq!(ack["cancel"], claimed, "it has no lease");
    }
    let heartbeat = json!({"node_id": "blue-polls", "running": claimed});
    let blue = Caller::new(&s, "blue");
    let mut polls = register("blue-polls", 1);
    polls["running"] = claimed.clone();
    assert_eq!(blue.post("/v1/node/register", polls).await.status, 200);
    assert_eq!(blue.post("/v1/node/heartbeat", heartbeat).await.status, 200);
    owner.done(&assign, "hello").await;
    let path = format!("/v1/jobs/{}?wait_ms=5000", sent.body["job_id"].as_str().expect("an id"));
    let ended = app.get(&path).await.body;
    assert_eq!((&ended["state"], &ended["attempt_id"]), (&json!("DONE"), &json!(1)), "{ended}");
    assert_eq!(ended["node_id"], "honest");
}
