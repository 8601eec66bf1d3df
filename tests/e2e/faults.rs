//! What goes wrong, and what becomes of the jobs.

use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{Node, Scheduler, job, job_with, request};

#[tokio::test]
async fn an_ack_timeout_moves_the_job_to_another_node() {
    let s = Scheduler::with(&[("SCHEDULER__RESERVATION_TTL_MS", "300")]).await;
    let mut silent = Node::join(&s, "silent", 1).await;
    let (id, _) = s.dispatch(job()).await;
    let first = silent.expect("job_assign").await;
    let mut other = Node::join(&s, "other", 1).await;
    let second = other.work().await;
    assert_eq!((&second["job_id"], &second["attempt_id"]), (&json!(id), &json!(2)));
    assert!(second["fence"].as_u64() > first["fence"].as_u64());
    let cancel = silent.expect("job_cancel").await;
    assert_eq!((&cancel["job_id"], &cancel["attempt_id"]), (&json!(id), &json!(1)));
    let ended = s.ended(&id).await;
    assert_eq!(
        (&ended["state"], &ended["attempts"][0]["reason"]),
        (&json!("DONE"), &json!("ack_timeout"))
    );
}

#[tokio::test]
async fn a_node_that_dies_is_replaced_at_once_and_its_late_result_is_refused() {
    let s = Scheduler::start().await;
    let mut first = Node::join(&s, "first", 1).await;
    let (id, _) = s.dispatch(job()).await;
    let assign = first.expect("job_assign").await;
    first.say("job_ack", &assign, json!({})).await;
    let mut second = Node::join(&s, "second", 1).await;
    first.drop_dead();
    let again = second.expect("job_assign").await;
    assert_eq!(again["attempt_id"], 2);
    let mut back = Node::join(&s, "first", 1).await;
    back.say("job_done", &assign, json!({"result": {"text_translated": "late"}})).await;
    assert_eq!(back.expect("job_confirmed").await["accepted"], false);
    second.say("job_done", &again, json!({"result": {"text_translated": "hello"}})).await;
    assert_eq!(s.ended(&id).await["result"]["text_translated"], "hello");
}

#[tokio::test]
async fn a_refusal_goes_elsewhere_without_costing_a_retry() {
    let s = Scheduler::with(&[("SCHEDULER__MAX_RETRY", "0")]).await;
    let mut busy = Node::join(&s, "busy", 4).await;
    let (id, _) = s.dispatch(job()).await;
    let assign = busy.expect("job_assign").await;
    let mut free = Node::join(&s, "free", 4).await;
    busy.say("job_fail", &assign, json!({"reason": "BUSY"})).await;
    free.work().await;
    assert_eq!(s.ended(&id).await["state"], "DONE");
}

#[tokio::test]
async fn a_cancelled_job_is_called_off_on_its_node() {
    let s = Scheduler::start().await;
    let mut node = Node::join(&s, "n1", 1).await;
    let (id, _) = s.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    let cancelled = s.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await;
    assert_eq!((cancelled.status, &cancelled.body["state"]), (200, &json!("CANCELLED")));
    node.expect("job_cancel").await;
    node.say("job_done", &assign, json!({})).await;
    assert_eq!(node.expect("job_confirmed").await["accepted"], false);
    assert_eq!(s.ended(&id).await["state"], "CANCELLED");
    assert_eq!(s.used().await, 0);
}

#[tokio::test]
async fn a_waiting_job_is_woken_by_a_freed_slot() {
    let s = Scheduler::start().await;
    let mut node = Node::join(&s, "n1", 1).await;
    let (first, _) = s.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    let address = s.address.clone();
    let waiting = tokio::spawn(async move {
        let body = job_with(json!({"wait_ms": 15_000})).to_string();
        request(&address, "POST", "/v1/dispatch/f2f", &[], &body).await
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished());
    node.say("job_done", &assign, json!({})).await;
    let second = waiting.await.expect("answered");
    assert_eq!(second.status, 200, "{:?}", second.body);
    assert_eq!(s.ended(&first).await["state"], "DONE");
    node.work().await;
}

#[tokio::test]
async fn a_preferred_node_is_used_and_strict_means_strict() {
    let s = Scheduler::start().await;
    let mut wanted = Node::join(&s, "wanted", 1).await;
    let _other = Node::join(&s, "other", 8).await;
    let french = json!({"type": "register", "node_id": "french", "semantic_langs": ["fr"], "tts_langs": ["fr"]});
    let _french = Node::join_with(&s, french).await;
    let prefer = |node: &str, strict: bool| {
        job_with(json!({"preferred_node_id": node, "strict": strict, "wait_ms": 0}))
    };
    assert_eq!(s.dispatch(prefer("wanted", false)).await.1, "wanted");
    wanted.expect("job_assign").await;
    assert_eq!(s.dispatch(prefer("wanted", false)).await.1, "other", "full: somebody else");
    let strict = s.post("/v1/dispatch/f2f", prefer("wanted", true)).await;
    assert_eq!(
        (strict.status, &strict.body["error"]),
        (503, &json!("ALL_CANDIDATES_FULL_OR_FAILED"))
    );
    let incapable = s.post("/v1/dispatch/f2f", prefer("french", false)).await;
    assert_eq!(
        (incapable.status, &incapable.body["error"]),
        (422, &json!("PREFERRED_NODE_NOT_CAPABLE"))
    );
}

#[tokio::test]
async fn a_bound_turn_stays_and_moves_when_its_node_dies() {
    let s = Scheduler::start().await;
    let mut nodes = vec![];
    for id in ["a", "b", "c"] {
        nodes.push((id, Some(Node::join(&s, id, 8).await)));
    }
    let bound = || job_with(json!({"bind_key": "room-1/turn-3"}));
    let (_, home) = s.dispatch(bound()).await;
    for _ in 0..5 {
        assert_eq!(s.dispatch(bound()).await.1, home);
    }
    let host = nodes.iter_mut().find(|(id, _)| *id == home).unwrap();
    host.1.take().unwrap().close().await;
    let (_, moved) = loop {
        let next = s.dispatch(bound()).await;
        if next.1 != home {
            break next;
        }
    };
    let host = nodes.iter_mut().find(|(id, _)| *id == moved).unwrap().1.as_mut().unwrap();
    let told = loop {
        let assign = host.expect("job_assign").await;
        if assign["bind"]["moved"] == true {
            break assign;
        }
    };
    assert_eq!(told["bind"]["bind_key"], "room-1/turn-3");
    assert_eq!(s.dispatch(bound()).await.1, moved);
}

/// Jobs come from eight clients while nodes die without a word and come back. Every job that was accepted
/// ends once, and no node ever has more than its slots.
#[tokio::test]
async fn nodes_killed_under_load_lose_no_job() {
    let s = Scheduler::start().await;
    let mut nodes = vec![];
    for n in 0..6 {
        nodes.push(
            Node::join(&s, &format!("n{n}"), 3).await.automatic(3, Duration::from_millis(20)),
        );
    }
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..8 {
        let address = s.address.clone();
        clients.spawn(async move {
            let mut states = vec![];
            for _ in 0..50 {
                let body = job_with(json!({"wait_ms": 10_000})).to_string();
                let reply = request(&address, "POST", "/v1/translate", &[], &body).await;
                states.push((
                    client,
                    reply.status,
                    reply.body["state"].clone(),
                    reply.body["error"].clone(),
                ));
            }
            states
        });
    }
    for n in 0..6 {
        tokio::time::sleep(Duration::from_millis(60)).await;
        nodes[n].kill();
        nodes.push(
            Node::join(&s, &format!("n{n}"), 3).await.automatic(3, Duration::from_millis(20)),
        );
    }
    let mut ended = 0;
    while let Some(states) = clients.join_next().await {
        for (client, status, state, error) in states.expect("a client") {
            let exhausted = error == "ALL_CANDIDATES_FULL_OR_FAILED";
            assert!(state == "DONE" || exhausted, "client {client}: {status} {state} {error}");
            ended += 1;
        }
    }
    assert_eq!(ended, 400);
    nodes.iter().for_each(|node| node.check());
    let jobs = s.get("/v1/jobs?limit=1000").await.body;
    let jobs = jobs["jobs"].as_array().expect("jobs");
    assert_eq!(jobs.len(), 400);
    assert!(jobs.iter().all(|job| job["state"] == "DONE" || job["state"] == "FAILED"));
    assert_eq!(s.used().await, 0);
}

/// SIGTERM under load: everything accepted is answered, then the process ends by itself.
#[tokio::test]
async fn a_stop_under_load_answers_everything_it_accepted() {
    let s = Scheduler::start().await;
    let node = Node::join(&s, "n1", 4).await.automatic(4, Duration::from_millis(150));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let address = s.address.clone();
        clients.spawn(async move {
            let body = job_with(json!({"wait_ms": 10_000})).to_string();
            request(&address, "POST", "/v1/translate", &[], &body).await
        });
    }
    let accepted = async {
        while s.get("/v1/jobs").await.body["jobs"].as_array().map_or(0, Vec::len) < 12 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    crate::world::within(accepted).await;
    let address = s.address.clone();
    let stopping = tokio::spawn(s.terminate());
    tokio::time::sleep(Duration::from_millis(50)).await;
    let late = request(&address, "POST", "/v1/translate", &[], &job().to_string()).await;
    assert_eq!(late.status, 503, "{:?}", late.body);
    while let Some(reply) = clients.join_next().await {
        let reply = reply.expect("a client");
        assert_eq!(reply.body["state"], Value::from("DONE"), "{:?}", reply.body);
    }
    assert_eq!(stopping.await.expect("it stopped"), Some(0));
    node.check();
}
