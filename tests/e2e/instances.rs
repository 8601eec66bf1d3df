//! Jobs of one instance, nodes of another: real processes over a real Redis.

use serde_json::{Value, json};

use crate::events::Watch;
use crate::redis::{Redis, signal};
use crate::world::{Node, Scheduler, job, job_with, request};

async fn two(redis: &Redis) -> (Scheduler, Scheduler) {
    let url = redis.url();
    let (one, two) = tokio::join!(Scheduler::over(&url, "one"), Scheduler::over(&url, "two"));
    for s in [&one, &two] {
        let both = |body: &Value| body["instances"].as_array().map(Vec::len) == Some(2);
        s.until_it("/v1/cluster", |reply| both(&reply.body)).await;
    }
    (one, two)
}

#[tokio::test]
async fn a_job_of_one_runs_on_a_node_of_the_other() {
    let redis = Redis::start().await;
    let (one, two) = two(&redis).await;
    let mut node = Node::join(&two, "n1", 1).await;
    let translated = async { one.post("/v1/translate", job()).await };
    let (assign, reply) = tokio::join!(node.work(), translated);
    assert_eq!(reply.status, 200, "{:?}", reply.body);
    assert_eq!(reply.body["result"]["text_translated"], "hello");
    assert_eq!(assign["audio_ref"], "blob://1");
    assert!(reply.body["attempts"][0]["acked_ms"].is_u64(), "{:?}", reply.body);
    assert_eq!(two.used().await, 0);

    // Sound goes along.
    let mut sound = job();
    sound["audio_ref"] = Value::Null;
    sound["audio"] = json!({"format": "pcm16", "sample_rate": 16000, "data": "AQID"});
    let dispatched = async { one.dispatch(sound).await };
    let sent = async {
        let assign = node.expect("job_assign").await;
        (assign, node.next().await)
    };
    let ((assign, frame), (id, _)) = tokio::join!(sent, dispatched);
    assert_eq!((&assign["audio"]["bytes"], &frame["binary"]), (&json!(3), &json!([1, 2, 3])));

    // Partial texts, events and calling off work from the instance that has neither.
    let third = Scheduler::over(&redis.url(), "three").await;
    let mut watch = Watch::open(&third).await;
    node.say("job_ack", &assign, json!({})).await;
    let shows = |reply: &crate::world::Reply| reply.body["partial"] == "hel";
    let seen = async { third.until_it(&format!("/v1/jobs/{id}"), shows).await };
    let spoken = async {
        // Until somebody has heard it: events are asked for once in a second.
        loop {
            node.say("job_partial", &assign, json!({"text": "hel"})).await;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let event = async {
        loop {
            let event = watch.next("job").await;
            if event["text"] == "hel" {
                return event;
            }
        }
    };
    tokio::select! {
        (_, event) = async { tokio::join!(seen, event) } => assert_eq!(event["job_id"], json!(id)),
        () = spoken => {}
    }
    let cancelled = third.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await;
    assert_eq!(cancelled.body["state"], "CANCELLED", "{:?}", cancelled.body);
    assert_eq!(node.expect("job_cancel").await["job_id"], json!(id));
}

#[tokio::test]
async fn a_node_over_http_may_ask_any_instance() {
    let redis = Redis::start().await;
    let (one, two) = two(&redis).await;
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
        let beat = json!({"node_id": "p", "epoch": registered.body["epoch"], "running": running});
        let beaten = s.post("/v1/node/heartbeat", beat).await;
        assert_eq!((beaten.status, &beaten.body["cancel"]), (200, &json!([])), "{beaten:?}");
    }
    let mut done = about.clone();
    done["attempt_id"] = json!(2);
    let stale = one.post("/v1/job/done", done.clone()).await;
    assert_eq!((stale.status, &stale.body["error"]), (409, &json!("STALE_ATTEMPT")));
    done["attempt_id"] = json!(1);
    done["result"] = json!({"text_translated": "hello"});
    assert_eq!(one.post("/v1/job/done", done).await.status, 200);
    assert_eq!(one.ended(&id).await["result"]["text_translated"], "hello");

    // Without the instance that has its jobs, it has to register anew, wherever it likes.
    one.kill().await;
    let gone = two.until("/v1/node/p/jobs?wait_ms=10", 404).await;
    assert_eq!(gone["error"], "NODE_NOT_REGISTERED", "{gone}");
    assert_eq!(two.post("/v1/node/register", register).await.status, 200);
    let poll = two.get("/v1/node/p/jobs?wait_ms=10000");
    let (polled, (id, _)) = tokio::join!(poll, two.dispatch(job()));
    assert_eq!(polled.body["jobs"][0]["job_id"], json!(id), "{:?}", polled.body);
}

#[tokio::test]
async fn jobs_of_a_dead_instance_end_exactly_once() {
    let redis = Redis::start().await;
    let (one, two) = two(&redis).await;
    let mut node = Node::join(&two, "n1", 3).await;
    let (kept, _) = one.dispatch(job()).await;
    let working = node.expect("job_assign").await;
    node.say("job_ack", &working, json!({})).await;
    let mut sound = job();
    sound["audio_ref"] = Value::Null;
    sound["audio"] = json!({"format": "pcm16", "sample_rate": 16000, "data": "AQID"});
    let (lost, _) = one.dispatch(sound).await;
    node.expect("job_assign").await;
    one.kill().await;
    // The node's result finds the heir, and is confirmed when that has it.
    node.say("job_done", &working, json!({"result": {"text_translated": "hello"}})).await;
    let confirmed = node.expect("job_confirmed").await;
    assert_eq!((&confirmed["job_id"], &confirmed["accepted"]), (&json!(kept), &json!(true)));
    assert_eq!(two.ended(&kept).await["state"], "DONE");
    // Sound that was only in the dead one's memory is gone.
    let ended = two.ended(&lost).await;
    assert_eq!(ended["error"], "INSTANCE_LOST", "{ended}");
    two.until_it("/v1/nodes/n1", |reply| reply.body["used"] == 0).await;
}

#[tokio::test]
async fn a_client_asks_any_instance_again_by_its_key() {
    let redis = Redis::start().await;
    let (one, two) = two(&redis).await;
    let mut node = Node::join(&two, "n1", 1).await;
    let keyed = [("Idempotency-Key", "utterance-7")];
    let body = job().to_string();
    let asked = request(&one.address, "POST", "/v1/dispatch/f2f", &keyed, &body).await;
    assert_eq!(asked.status, 200, "{:?}", asked.body);
    let assign = node.expect("job_assign").await;
    node.say("job_ack", &assign, json!({})).await;
    one.kill().await;
    let again = request(&two.address, "POST", "/v1/translate", &keyed, &body);
    node.say("job_done", &assign, json!({"result": {"text_translated": "hello"}})).await;
    let again = again.await;
    assert_eq!(again.body["job_id"], asked.body["job_id"], "{:?}", again.body);
    assert_eq!(again.body["result"]["text_translated"], "hello", "{:?}", again.body);
}

#[tokio::test]
async fn a_node_that_moves_takes_its_result_along() {
    let redis = Redis::start().await;
    let (one, two) = two(&redis).await;
    let mut node = Node::join(&one, "n1", 1).await;
    let (id, _) = one.dispatch(job_with(json!({"wait_ms": 10000}))).await;
    let assign = node.expect("job_assign").await;
    node.say("job_ack", &assign, json!({})).await;
    // It comes back elsewhere. What it had is given again, because nobody knew whether it still had it.
    let mut moved = Node::join(&two, "n1", 1).await;
    assert_eq!(node.expect("error").await["error"], "STALE_EPOCH");
    moved.say("job_done", &assign, json!({"result": {"text_translated": "old"}})).await;
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
    moved.say("job_ack", &again, json!({})).await;
    moved.say("job_done", &again, json!({"result": {"text_translated": "new"}})).await;
    assert_eq!(one.ended(&id).await["result"]["text_translated"], "new");
}

#[tokio::test]
async fn an_instance_that_was_taken_for_dead_lets_go_of_what_others_have() {
    let redis = Redis::start().await;
    let (one, two) = two(&redis).await;
    let mut node = Node::join(&two, "n1", 1).await;
    let (id, _) = one.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    node.say("job_ack", &assign, json!({})).await;
    signal(&one.child, "STOP").await;
    node.say("job_done", &assign, json!({"result": {"text_translated": "hello"}})).await;
    assert_eq!(node.expect("job_confirmed").await["accepted"], true);
    assert_eq!(two.ended(&id).await["state"], "DONE");
    signal(&one.child, "CONT").await;
    assert_eq!(one.ended(&id).await["state"], "DONE", "it does not wait for a timer");
}
