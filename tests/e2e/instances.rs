//! Several instances over one Redis: jobs of one instance run on nodes of another.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::events::EventStream;
use crate::raw_node::RawNode;
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job, job_with, signal};

async fn two_instances(redis: &Redis) -> (Scheduler, Scheduler) {
    let url = redis.url();
    let (one, two) = tokio::join!(Scheduler::over(&url, "one"), Scheduler::over(&url, "two"));
    for s in [&one, &two] {
        let both = |body: &Value| body["instances"].as_array().map(Vec::len) == Some(2);
        s.until_reply("/v1/cluster", |reply| both(&reply.body)).await;
    }
    (one, two)
}

/// Requirements: NODE-21, JOB-07, STORE-02, STORE-10.
#[tokio::test]
async fn a_job_of_one_instance_runs_on_a_node_of_another() {
    let redis = Redis::start().await;
    let (one, two) = two_instances(&redis).await;
    let mut node = RawNode::join(&two, "n1", 1).await;
    let translated = async { one.post("/v1/translate", job()).await };
    let (assign, reply) = tokio::join!(node.work(), translated);
    assert_eq!(reply.status, 200, "{:?}", reply.body);
    assert_eq!(reply.body["result"]["text_translated"], "hello");
    assert_eq!(assign["audio_ref"], "blob://1");
    assert!(reply.body["attempts"][0]["acked_ms"].is_u64(), "{:?}", reply.body);
    assert_eq!(two.used().await, 0);

    // Audio is forwarded, too.
    let mut spoken = job();
    spoken["audio_ref"] = Value::Null;
    spoken["audio"] = json!({"format": "pcm16", "sample_rate": 16000, "data": "AQID"});
    let dispatched = async { one.dispatch(spoken).await };
    let sent = async {
        let assign = node.expect("job_assign").await;
        (assign, node.next().await)
    };
    let ((assign, frame), (id, _)) = tokio::join!(sent, dispatched);
    assert_eq!((&assign["audio"]["bytes"], &frame["binary"]), (&json!(3), &json!([1, 2, 3])));

    // Partial texts, events and cancelling work from a third instance, too.
    let third = Scheduler::over(&redis.url(), "three").await;
    let mut events = EventStream::open(&third).await;
    node.ack(&assign).await;
    let shows = |reply: &crate::http::Reply| reply.body["partial"] == "hel";
    let seen = async { third.until_reply(&format!("/v1/jobs/{id}"), shows).await };
    let report = async {
        // Repeated because the third instance subscribes to events only once a second.
        loop {
            node.report("job_partial", &assign, json!({"text": "hel"})).await;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let event = async {
        loop {
            let event = events.next("job").await;
            if event["text"] == "hel" {
                return event;
            }
        }
    };
    tokio::select! {
        (_, event) = async { tokio::join!(seen, event) } => assert_eq!(event["job_id"], json!(id)),
        () = report => {}
    }
    let cancelled = third.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await;
    assert_eq!(cancelled.body["state"], "CANCELLED", "{:?}", cancelled.body);
    assert_eq!(node.expect("job_cancel").await["job_id"], json!(id));
}

#[tokio::test]
async fn a_polling_node_may_use_any_instance() {
    let redis = Redis::start().await;
    let (one, two) = two_instances(&redis).await;
    let register =
        json!({"node_id": "p", "semantic_langs": ["zh", "en"], "tts_langs": ["zh", "en"]});
    let registered = one.post("/v1/node/register", register.clone()).await;
    assert_eq!(registered.status, 200, "{:?}", registered.body);
    let poll = two.get("/v1/node/p/jobs?wait_ms=10000");
    let (polled, (id, _)) = tokio::join!(poll, two.dispatch(job()));
    assert_eq!(polled.body["jobs"][0]["job_id"], json!(id), "{:?}", polled.body);
    assert_eq!(polled.body["jobs"][0]["audio_ref"], "blob://1");
    let about = json!({"job_id": id, "attempt_id": 1, "node_id": "p"});
    assert_eq!(one.post("/v1/job/ack", about.clone()).await.status, 200);
    let running = json!([{"job_id": id, "attempt_id": 1}]);
    for s in [&one, &two] {
        let heartbeat =
            json!({"node_id": "p", "epoch": registered.body["epoch"], "running": running});
        let reply = s.post("/v1/node/heartbeat", heartbeat).await;
        assert_eq!((reply.status, &reply.body["cancel"]), (200, &json!([])), "{reply:?}");
    }
    let mut done = about.clone();
    done["attempt_id"] = json!(2);
    let stale = one.post("/v1/job/done", done.clone()).await;
    assert_eq!(stale.error(), (409, "STALE_ATTEMPT"));
    done["attempt_id"] = json!(1);
    done["result"] = json!({"text_translated": "hello"});
    assert_eq!(one.post("/v1/job/done", done).await.status, 200);
    assert_eq!(one.ended(&id).await["result"]["text_translated"], "hello");

    // When the instance of its registration is gone, the node registers again at any other.
    one.kill().await;
    let gone = two.until("/v1/node/p/jobs?wait_ms=10", 404).await;
    assert_eq!(gone["error"], "NODE_NOT_REGISTERED", "{gone}");
    assert_eq!(two.post("/v1/node/register", register).await.status, 200);
    let poll = two.get("/v1/node/p/jobs?wait_ms=10000");
    let (polled, (id, _)) = tokio::join!(poll, two.dispatch(job()));
    assert_eq!(polled.body["jobs"][0]["job_id"], json!(id), "{:?}", polled.body);
}

/// Requirements: SLOT-13.
#[tokio::test]
async fn jobs_of_a_dead_instance_end_exactly_once() {
    let redis = Redis::start().await;
    let (one, two) = two_instances(&redis).await;
    let mut node = RawNode::join(&two, "n1", 3).await;
    let (kept, _) = one.dispatch(job()).await;
    let working = node.expect("job_assign").await;
    node.ack(&working).await;
    let mut spoken = job();
    spoken["audio_ref"] = Value::Null;
    spoken["audio"] = json!({"format": "pcm16", "sample_rate": 16000, "data": "AQID"});
    let (lost, _) = one.dispatch(spoken).await;
    node.expect("job_assign").await;
    one.kill().await;
    // The result reaches the instance that takes the job over, which confirms it.
    node.done(&working, "hello").await;
    let confirmed = node.expect("job_confirmed").await;
    assert_eq!((&confirmed["job_id"], &confirmed["accepted"]), (&json!(kept), &json!(true)));
    assert_eq!(two.ended(&kept).await["state"], "DONE");
    // Inline audio was only in the memory of the dead instance.
    let ended = two.ended(&lost).await;
    assert_eq!(ended["error"], "INSTANCE_LOST", "{ended}");
    two.until_reply("/v1/nodes/n1", |reply| reply.body["used"] == 0).await;
}

/// Requirements: JOB-27.
#[tokio::test]
async fn an_idempotency_key_is_known_to_every_instance() {
    let redis = Redis::start().await;
    let (one, two) = two_instances(&redis).await;
    let mut node = RawNode::join(&two, "n1", 1).await;
    let keyed = [("Idempotency-Key", "utterance-7")];
    let body = job().to_string();
    let first = one.send("POST", "/v1/dispatch/f2f", &keyed, &body).await;
    assert_eq!(first.status, 200, "{:?}", first.body);
    let assign = node.expect("job_assign").await;
    node.ack(&assign).await;
    one.kill().await;
    let again = two.send("POST", "/v1/translate", &keyed, &body);
    node.done(&assign, "hello").await;
    let again = again.await;
    assert_eq!(again.body["job_id"], first.body["job_id"], "{:?}", again.body);
    assert_eq!(again.body["result"]["text_translated"], "hello", "{:?}", again.body);
}

#[tokio::test]
async fn a_node_that_moves_to_another_instance_gets_its_job_again() {
    let redis = Redis::start().await;
    let (one, two) = two_instances(&redis).await;
    let mut node = RawNode::join(&one, "n1", 1).await;
    let (id, _) = one.dispatch(job_with(json!({"wait_ms": 10000}))).await;
    let assign = node.expect("job_assign").await;
    node.ack(&assign).await;
    // The node connects to the other instance. Its job is assigned again, because nobody knows
    // whether the node still has it.
    let mut moved = RawNode::join(&two, "n1", 1).await;
    assert_eq!(node.expect("error").await["error"], "STALE_EPOCH");
    moved.done(&assign, "old").await;
    let mut confirmed = Value::Null;
    let mut again = Value::Null;
    while confirmed.is_null() || again.is_null() {
        let message = moved.next().await;
        match message["type"].as_str() {
            Some("job_confirmed") => confirmed = message,
            Some("job_assign") => again = message,
            _ => assert!(!message.is_null(), "the socket closed"),
        }
    }
    assert_eq!(confirmed["accepted"], false, "a stale attempt: {confirmed}");
    assert_eq!((&again["job_id"], &again["attempt_id"]), (&json!(id), &json!(2)));
    moved.ack(&again).await;
    moved.done(&again, "new").await;
    assert_eq!(one.ended(&id).await["result"]["text_translated"], "new");
}

#[tokio::test]
async fn a_paused_instance_gives_up_the_jobs_that_others_took_over() {
    let redis = Redis::start().await;
    let (one, two) = two_instances(&redis).await;
    let mut node = RawNode::join(&two, "n1", 1).await;
    let (id, _) = one.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    node.ack(&assign).await;
    signal(&one.child, "STOP").await;
    node.done(&assign, "hello").await;
    assert_eq!(node.expect("job_confirmed").await["accepted"], true);
    assert_eq!(two.ended(&id).await["state"], "DONE");
    signal(&one.child, "CONT").await;
    assert_eq!(
        one.ended(&id).await["state"],
        "DONE",
        "the instance learns the end without a timeout"
    );
}

/// Requirements: SLOT-02, SLOT-03.
#[tokio::test]
async fn racing_instances_never_send_a_node_more_jobs_than_it_has_slots() {
    let redis = Redis::start().await;
    let (one, two) = two_instances(&redis).await;
    let mut nodes = vec![];
    for (n, s) in [&one, &two, &one].into_iter().enumerate() {
        // These nodes refuse nothing: they count what is sent to them.
        let node = RawNode::join(s, &format!("n{n}"), 2).await;
        nodes.push(node.serve(2, Duration::from_millis(15)));
    }
    let clients = (0..16).map(|n| {
        let client = [&one, &two][n % 2].new_client();
        async move {
            for _ in 0..12 {
                let body = job_with(json!({"wait_ms": 15_000}));
                let done = client.post("/v1/translate", body).await.body;
                assert_eq!(done["state"], "DONE", "{done}");
                assert_eq!(done["attempt_id"], 1, "nothing was refused or retried: {done}");
            }
        }
    });
    join_all(clients).await;
    nodes.iter().for_each(|node| node.check());
    one.until_unused().await;
}

/// Requirements: PREF-08.
#[tokio::test]
async fn every_instance_decides_alike_about_a_preferred_node() {
    let redis = Redis::start().await;
    let (one, two) = two_instances(&redis).await;
    let mut wanted = RawNode::join(&one, "wanted", 1).await;
    let _other = RawNode::join(&two, "other", 8).await;
    let prefer = |node: &str| job_with(json!({"preferred_node_id": node, "wait_ms": 0}));
    let strict = || job_with(json!({"preferred_node_id": "wanted", "strict": true, "wait_ms": 0}));
    assert_eq!(two.dispatch(prefer("wanted")).await.1, "wanted", "it is free");
    let running = wanted.expect("job_assign").await;
    for s in [&one, &two] {
        assert_eq!(s.dispatch(prefer("wanted")).await.1, "other", "it is full");
        let full = s.post("/v1/dispatch/f2f", strict()).await;
        assert_eq!(full.error(), (503, "ALL_CANDIDATES_FULL_OR_FAILED"), "{}", full.body);
        let unknown = s.post("/v1/dispatch/f2f", prefer("nobody")).await;
        assert_eq!(unknown.error(), (422, "PREFERRED_NODE_NOT_CAPABLE"), "{}", unknown.body);
    }
    wanted.done(&running, "hello").await;
    assert_eq!(wanted.expect("job_confirmed").await["accepted"], true);
    two.post("/v1/nodes/wanted/drain", json!({})).await;
    for s in [&one, &two] {
        assert_eq!(s.dispatch(prefer("wanted")).await.1, "other", "it drains");
    }
    one.post("/v1/nodes/wanted/resume", json!({})).await;
    assert_eq!(two.dispatch(prefer("wanted")).await.1, "wanted");
}
