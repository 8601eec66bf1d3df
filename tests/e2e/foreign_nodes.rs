//! Nodes that somebody wrote from the documents: they send few heartbeats, list nothing, and know
//! nothing of stores and leases.

use serde_json::{Value, json};

use crate::raw_node::{RawNode, register};
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job, job_with, within};

/// Times at which a lease and a sign of life run out soon.
const SHORT: [(&str, &str); 4] = [
    ("SCHEDULER__HEARTBEAT_INTERVAL_MS", "200"),
    ("SCHEDULER__HEARTBEAT_STALE_MS", "1500"),
    ("SCHEDULER__RUN_LEASE_MS", "1500"),
    ("SCHEDULER__RESERVATION_TTL_MS", "3000"),
];

/// Longer than leases and signs of life last.
const LONG_MS: u64 = 4_000;

async fn short_times(store: Option<&str>) -> Scheduler {
    let store = store.map(|url| ("STORE__URL", url));
    Scheduler::with(&SHORT.into_iter().chain(store).collect::<Vec<_>>()).await
}

/// Reads for a while, which answers pings; a message of this type must not come.
async fn read_without(node: &mut RawNode, kind: &str, ms: u64) {
    let reading = async {
        loop {
            let message = node.next().await;
            assert!(!message.is_null(), "the socket closed");
            assert_ne!(message["type"], kind, "{message}");
        }
    };
    tokio::time::timeout(std::time::Duration::from_millis(ms), reading).await.expect_err("reads");
}

async fn keeps_its_long_job_without_lists(s: &Scheduler) {
    let mut node = RawNode::join(s, "plain", 1).await;
    let (id, _) = s.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    node.ack(&assign).await;
    let ack = node.heartbeat(json!({"node_id": "plain", "health": "ready"})).await;
    assert_eq!(ack["cancel"], json!([]));
    // From here on nothing but pongs.
    read_without(&mut node, "job_cancel", LONG_MS).await;
    assert_eq!(s.used().await, 1);
    assert_eq!(s.get("/v1/nodes/plain").await.body["fresh"], true);
    node.done(&assign, "hello").await;
    assert_eq!(node.expect("job_confirmed").await["accepted"], true);
    let ended = s.ended(&id).await;
    assert_eq!((&ended["state"], &ended["attempt_id"]), (&json!("DONE"), &json!(1)));
    // A node that only answers pings still gets jobs.
    let (id, _) = s.dispatch(job()).await;
    node.work().await;
    assert_eq!(s.ended(&id).await["state"], "DONE");
}

/// Requirements: NODE-30, NODE-38, NODE-47.
#[tokio::test]
async fn a_node_that_lists_nothing_keeps_its_job_on_one_attempt() {
    keeps_its_long_job_without_lists(&short_times(None).await).await;
}

/// Requirements: NODE-38, NODE-47.
#[tokio::test]
async fn a_node_that_lists_nothing_keeps_its_job_over_redis() {
    let redis = Redis::start().await;
    keeps_its_long_job_without_lists(&short_times(Some(&redis.url())).await).await;
}

fn about(assign: &Value, node: &str) -> Value {
    json!({"job_id": assign["job_id"], "attempt_id": assign["attempt_id"], "node_id": node})
}

/// Requirements: NODE-30, NODE-38, NODE-47.
#[tokio::test]
async fn a_polling_node_lives_by_its_open_poll_and_its_calls() {
    let redis = Redis::start().await;
    for store in [None, Some(redis.url())] {
        let s = short_times(store.as_deref()).await;
        let registered = s.post("/v1/node/register", register("poller", 1)).await;
        assert_eq!(registered.status, 200, "{}", registered.body);
        let (id, _) = s.dispatch(job()).await;
        let polled = s.get("/v1/node/poller/jobs?wait_ms=5000").await;
        let assign = polled.body["jobs"][0].clone();
        assert_eq!(s.post("/v1/job/ack", about(&assign, "poller")).await.status, 200);
        let empty = s.get(&format!("/v1/node/poller/jobs?wait_ms={LONG_MS}")).await;
        assert_eq!(empty.body["jobs"], json!([]));
        let bare = s.post("/v1/node/heartbeat", json!({"node_id": "poller"})).await;
        assert_eq!((bare.status, &bare.body["cancel"]), (200, &json!([])), "{}", bare.body);
        let mut done = about(&assign, "poller");
        done["result"] = json!({"text_translated": "hello"});
        assert_eq!(s.post("/v1/job/done", done).await.status, 200);
        let ended = s.ended(&id).await;
        assert_eq!((&ended["state"], &ended["attempt_id"]), (&json!("DONE"), &json!(1)));
    }
}

/// Requirements: NODE-47.
#[tokio::test]
async fn a_list_that_lacks_a_job_ends_its_lease_with_a_cancel() {
    let s = short_times(None).await;
    let mut node = RawNode::join(&s, "forgetful", 1).await;
    let (id, _) = s.dispatch(job()).await;
    let first = node.expect("job_assign").await;
    node.ack(&first).await;
    node.heartbeat(json!({"running": []})).await;
    let cancel = node.expect("job_cancel").await;
    assert_eq!((&cancel["job_id"], &cancel["attempt_id"]), (&json!(id), &json!(1)));
    let again = node.work().await;
    assert_eq!((&again["job_id"], &again["attempt_id"]), (&json!(id), &json!(2)));
    // The first attempt is over; its ack is answered.
    node.ack(&first).await;
    let late = node.expect("error").await;
    assert_eq!((&late["error"], &late["fatal"]), (&json!("STALE_ATTEMPT"), &json!(false)));
}

/// Requirements: NODE-37, PICK-06.
#[tokio::test]
async fn a_heartbeat_without_a_load_leaves_it_as_it_is() {
    let redis = Redis::start().await;
    for store in [None, Some(redis.url())] {
        let s = short_times(store.as_deref()).await;
        let mut node = RawNode::join(&s, "busy", 1).await;
        node.heartbeat(json!({"current_load": {"cpu": 0.95, "gpu": 0.2}})).await;
        node.heartbeat(json!({})).await;
        node.heartbeat(json!({"current_load": {"gpu": 0.3}})).await;
        let load = s.get("/v1/nodes/busy").await.body["load"].clone();
        assert_eq!(load, json!({"cpu": 0.95, "gpu": 0.3, "memory": 0.0}));
        let full = s.post("/v1/translate", job_with(json!({"wait_ms": 0}))).await;
        assert_eq!(full.error(), (503, "ALL_CANDIDATES_FULL_OR_FAILED"));
        node.heartbeat(json!({"current_load": {"cpu": 0.1}})).await;
        let (id, _) = s.dispatch(job()).await;
        node.work().await;
        assert_eq!(s.ended(&id).await["state"], "DONE");
    }
}

#[tokio::test]
async fn a_registration_on_a_registered_socket_keeps_what_runs() {
    let redis = Redis::start().await;
    for store in [None, Some(redis.url())] {
        let s = short_times(store.as_deref()).await;
        let mut node = RawNode::join(&s, "again", 2).await;
        let (id, _) = s.dispatch(job()).await;
        let assign = node.expect("job_assign").await;
        node.ack(&assign).await;
        let mut more = register("again", 3);
        more["version"] = json!("3.1");
        node.send(more).await;
        let registered = node.expect("registered").await;
        assert!(registered["epoch"].as_u64() > node.registered["epoch"].as_u64(), "{registered}");
        let shown = s.get("/v1/nodes/again").await.body;
        assert_eq!((&shown["used"], &shown["max"]), (&json!(1), &json!(3)), "{shown}");
        // A heartbeat that was on its way still names the first epoch.
        node.heartbeat(json!({"epoch": node.registered["epoch"]})).await;
        read_without(&mut node, "job_cancel", LONG_MS).await;
        node.done(&assign, "hello").await;
        assert_eq!(node.expect("job_confirmed").await["accepted"], true);
        let ended = s.ended(&id).await;
        assert_eq!((&ended["state"], &ended["attempt_id"]), (&json!("DONE"), &json!(1)));
        node.send(register("other", 1)).await;
        assert_eq!(node.expect("error").await["error"], "INVALID_REQUEST");
    }
}

#[tokio::test]
async fn a_new_socket_goes_on_with_the_jobs_that_its_registration_lists() {
    let s = short_times(None).await;
    let mut first = RawNode::join(&s, "moves", 2).await;
    let (kept, _) = s.dispatch(job()).await;
    let assign = first.expect("job_assign").await;
    first.ack(&assign).await;
    let (lost, _) = s.dispatch(job()).await;
    let unlisted = first.expect("job_assign").await;
    first.ack(&unlisted).await;
    let running = json!([{"job_id": kept, "attempt_id": 1}]);
    let mut message = register("moves", 2);
    message["running"] = running;
    let mut second = RawNode::join_with(&s, message).await;
    let again = second.expect("job_assign").await;
    assert_eq!((&again["job_id"], &again["attempt_id"]), (&json!(lost), &json!(2)));
    second.done(&assign, "hello").await;
    let ended = s.ended(&kept).await;
    assert_eq!((&ended["state"], &ended["attempt_id"]), (&json!("DONE"), &json!(1)));
    assert_eq!(first.expect("error").await["error"], "STALE_EPOCH");
}

#[tokio::test]
async fn a_connected_node_that_the_store_forgot_is_registered_by_its_instance() {
    let redis = Redis::start().await;
    let s = short_times(Some(&redis.url())).await;
    let mut node = RawNode::join(&s, "patient", 1).await;
    redis.command("FLUSHALL").await;
    let registered = node.expect("registered").await;
    assert_ne!(registered["epoch"], node.registered["epoch"]);
    let (id, _) = s.dispatch(job()).await;
    node.work().await;
    assert_eq!(s.ended(&id).await["state"], "DONE");
    // A heartbeat with the epoch of the first registration is taken.
    node.heartbeat(json!({"epoch": node.registered["epoch"], "running": []})).await;

    let mut redis = redis;
    redis.kill().await;
    let _redis = Redis::start_on(redis.port).await;
    node.expect("registered").await;
    let (id, _) = s.dispatch(job_with(json!({"wait_ms": 10_000}))).await;
    node.work().await;
    assert_eq!(s.ended(&id).await["state"], "DONE");
}

/// Requirements: NODE-19.
#[tokio::test]
async fn a_node_that_reports_offline_is_signed_off() {
    let s = short_times(None).await;
    let mut node = RawNode::join(&s, "leaver", 1).await;
    let mut other = RawNode::join_with(&s, register("stays", 1)).await;
    let (id, on) = s.dispatch(job_with(json!({"preferred_node_id": "leaver"}))).await;
    assert_eq!(on, "leaver");
    node.expect("job_assign").await;
    node.heartbeat(json!({"health": "offline"})).await;
    assert_eq!(node.close_code().await, Some(1000));
    assert_eq!(other.work().await["job_id"], json!(id));
    assert_eq!(s.get("/v1/nodes/leaver").await.body["state"], "offline");

    s.post("/v1/node/register", register("poller", 1)).await;
    let bye = s.post("/v1/node/heartbeat", json!({"node_id": "poller", "health": "offline"})).await;
    assert_eq!(bye.status, 200, "{}", bye.body);
    let gone = s.post("/v1/node/heartbeat", json!({"node_id": "poller"})).await;
    assert_eq!(gone.error(), (404, "NODE_NOT_REGISTERED"));
    let mut absent = register("absent", 1);
    absent["health"] = json!("offline");
    assert_eq!(s.post("/v1/node/register", absent).await.error(), (400, "INVALID_REQUEST"));
}

#[tokio::test]
async fn a_socket_speaks_for_its_own_node_only() {
    let s = short_times(None).await;
    let mut own = RawNode::join(&s, "own", 1).await;
    let _other = RawNode::join(&s, "other", 1).await;
    own.send(json!({"type": "heartbeat", "node_id": "other", "health": "draining"})).await;
    let refused = own.expect("error").await;
    assert_eq!((&refused["error"], &refused["fatal"]), (&json!("INVALID_REQUEST"), &json!(false)));
    for node in ["own", "other"] {
        assert_eq!(s.get(&format!("/v1/nodes/{node}")).await.body["state"], "ready");
    }
    let mut hasty = RawNode::connect(&s.address, None).await;
    hasty.send(json!({"type": "heartbeat"})).await;
    let refused = hasty.next().await;
    assert_eq!(
        (&refused["error"], &refused["fatal"]),
        (&json!("NODE_NOT_REGISTERED"), &json!(true))
    );
    assert_eq!(hasty.close_code().await, Some(1008));
}

/// Requirements: NODE-46.
#[tokio::test]
async fn a_node_whose_repair_list_becomes_empty_gets_no_jobs_until_it_has_languages() {
    let redis = Redis::start().await;
    for store in [None, Some(redis.url())] {
        let s = short_times(store.as_deref()).await;
        let mut node = RawNode::join(&s, "mute", 1).await;
        node.heartbeat(json!({"language_capabilities": {"semantic_languages": []}})).await;
        let none = s.post("/v1/translate", job_with(json!({"wait_ms": 0}))).await;
        assert_eq!(none.error(), (503, "NO_CAPABLE_NODE"), "{}", none.body);
        node.heartbeat(json!({"semantic_langs": ["zh", "en"]})).await;
        let (id, _) = s.dispatch(job()).await;
        node.work().await;
        assert_eq!(s.ended(&id).await["state"], "DONE");
    }
}

/// Requirements: NODE-10.
#[tokio::test]
async fn the_record_of_a_node_without_a_name_goes_with_its_socket() {
    let redis = Redis::start().await;
    for store in [None, Some(redis.url())] {
        let s = short_times(store.as_deref()).await;
        let mut unnamed = register("", 1);
        unnamed.as_object_mut().expect("an object").remove("node_id");
        let mut node = RawNode::join_with(&s, unnamed).await;
        let name = node.registered["node_id"].as_str().expect("a name").to_owned();
        let digits = name.strip_prefix("node-").expect("a prefix");
        let is_digit = |c: char| c.is_ascii_digit() || ('A'..='F').contains(&c);
        assert!(digits.len() == 8 && digits.chars().all(is_digit), "{name}");
        let named = RawNode::join(&s, "named", 1).await;
        let (id, _) = s.dispatch(job_with(json!({"preferred_node_id": name}))).await;
        node.expect("job_assign").await;
        node.crash();
        s.until(&format!("/v1/nodes/{name}"), 404).await;
        let mut named = named;
        assert_eq!(named.work().await["job_id"], json!(id));
        named.crash();
        let gone = s.until_reply("/v1/nodes/named", |reply| reply.body["state"] == "offline").await;
        assert!(gone.body["silent_ms"].is_u64(), "{}", gone.body);
        let all = s.get("/v1/nodes").await.body;
        assert_eq!(all["nodes"].as_array().map(Vec::len), Some(1), "{all}");
    }
}

/// Requirements: CELL-01, CELL-02.
#[tokio::test]
async fn the_last_place_is_the_hundredth_of_the_thousandth_cell() {
    let redis = Redis::start().await;
    let s = Scheduler::over(&redis.url(), "one").await;
    // One byte for each cell, its nodes, and a bit for each place that is taken.
    let full = "d".repeat(999);
    redis.command(&format!("SET lingua:v1:{{dir}}:counts {full}c")).await;
    redis.command("SETBIT lingua:v1:{dir}:taken 127999 0").await;
    let last = s.post("/v1/node/register", register("last", 1)).await;
    assert_eq!(last.status, 200, "{}", last.body);
    assert_eq!(s.get("/v1/nodes/last").await.body["cell"], 999);
    let refused = s.post("/v1/node/register", register("late", 1)).await;
    assert_eq!(refused.error(), (503, "FLEET_FULL"), "{}", refused.body);
}

/// Requirements: CELL-09.
#[tokio::test]
async fn a_node_that_finds_no_place_is_told_that_the_fleet_is_full() {
    let redis = Redis::start().await;
    let s = short_times(Some(&redis.url())).await;
    let first = s.post("/v1/node/register", register("first", 1)).await;
    assert_eq!(first.status, 200, "{}", first.body);
    // One byte for each cell: a thousand cells with a hundred nodes each.
    let full = "d".repeat(1000);
    redis.command(&format!("SET lingua:v1:{{dir}}:counts {full}")).await;
    let refused = s.post("/v1/node/register", register("late", 1)).await;
    assert_eq!(refused.error(), (503, "FLEET_FULL"), "{}", refused.body);
    let mut late = RawNode::connect(&s.address, None).await;
    late.send(register("late", 1)).await;
    assert_eq!(late.next().await["error"], "FLEET_FULL");
    assert_eq!(late.close_code().await, Some(1013));
    // A node that has a place comes back.
    assert_eq!(s.post("/v1/node/register", register("first", 1)).await.status, 200);
    // When it is gone, its place is given away.
    let register_late = async || s.post("/v1/node/register", register("late", 1)).await.status;
    within(async { while register_late().await != 200 {} }).await;
    let first = s.post("/v1/node/register", register("first", 1)).await;
    assert_eq!(first.error(), (503, "FLEET_FULL"), "{}", first.body);
}

/// Requirements: NODE-36.
#[tokio::test]
async fn what_a_node_says_at_one_instance_holds_at_all() {
    let redis = Redis::start().await;
    let one = Scheduler::over(&redis.url(), "one").await;
    let two = Scheduler::over(&redis.url(), "two").await;
    one.post("/v1/node/register", register("roams", 2)).await;
    let say = |s: &Scheduler, mut what: Value| {
        what["node_id"] = json!("roams");
        let client = s.new_client();
        async move { assert_eq!(client.post("/v1/node/heartbeat", what).await.status, 200) }
    };
    say(&two, json!({"health": "degraded"})).await;
    say(&two, json!({"max_concurrent_jobs": 5})).await;
    let shown = two.get("/v1/nodes/roams").await.body;
    assert_eq!((&shown["state"], &shown["max"]), (&json!("degraded"), &json!(5)), "{shown}");
    say(&one, json!({"current_load": {"cpu": 0.5}})).await;
    let shown = one.get("/v1/nodes/roams").await.body;
    assert_eq!((&shown["state"], &shown["max"]), (&json!("degraded"), &json!(5)), "{shown}");
    let none = two.post("/v1/translate", job_with(json!({"wait_ms": 0}))).await;
    assert_eq!(none.status, 503, "{}", none.body);
}
