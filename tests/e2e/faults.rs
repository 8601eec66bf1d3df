//! What goes wrong with nodes and jobs, and how the jobs end.

use std::time::Duration;

use serde_json::json;

use crate::http::Reply;
use crate::raw_node::RawNode;
use crate::scheduler::{Scheduler, job, job_with, within};

/// Requirements: SLOT-17, JOB-19, CONF-02.
#[tokio::test]
async fn a_job_that_is_not_acked_in_time_moves_to_another_node() {
    let s = Scheduler::with(&[("SCHEDULER__RESERVATION_TTL_MS", "300")]).await;
    let mut silent = RawNode::join(&s, "silent", 1).await;
    let (id, _) = s.dispatch(job()).await;
    let first = silent.expect("job_assign").await;
    let mut other = RawNode::join(&s, "other", 1).await;
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

/// Requirements: JOB-24, JOB-29.
#[tokio::test]
async fn a_job_of_a_crashed_node_is_retried_and_its_late_result_is_refused() {
    let s = Scheduler::start().await;
    let mut first = RawNode::join(&s, "first", 1).await;
    let (id, _) = s.dispatch(job()).await;
    let assign = first.expect("job_assign").await;
    first.ack(&assign).await;
    let mut second = RawNode::join(&s, "second", 1).await;
    first.crash();
    let again = second.expect("job_assign").await;
    assert_eq!(again["attempt_id"], 2);
    let mut back = RawNode::join(&s, "first", 1).await;
    back.done(&assign, "late").await;
    assert_eq!(back.expect("job_confirmed").await["accepted"], false);
    second.done(&again, "hello").await;
    assert_eq!(s.ended(&id).await["result"]["text_translated"], "hello");
}

#[tokio::test]
async fn a_refused_job_goes_to_another_node_and_uses_no_retry() {
    let s = Scheduler::with(&[("SCHEDULER__MAX_RETRY", "0")]).await;
    let mut busy = RawNode::join(&s, "busy", 4).await;
    let (id, _) = s.dispatch(job()).await;
    let assign = busy.expect("job_assign").await;
    let mut free = RawNode::join(&s, "free", 4).await;
    busy.report("job_fail", &assign, json!({"reason": "BUSY"})).await;
    free.work().await;
    assert_eq!(s.ended(&id).await["state"], "DONE");
}

/// Requirements: JOB-30.
#[tokio::test]
async fn a_cancelled_job_is_cancelled_on_its_node() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let (id, _) = s.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    let cancelled = s.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await;
    assert_eq!((cancelled.status, &cancelled.body["state"]), (200, &json!("CANCELLED")));
    node.expect("job_cancel").await;
    node.report("job_done", &assign, json!({})).await;
    assert_eq!(node.expect("job_confirmed").await["accepted"], false);
    assert_eq!(s.ended(&id).await["state"], "CANCELLED");
    assert_eq!(s.used().await, 0);
}

/// Requirements: PICK-20, JOB-13.
#[tokio::test]
async fn a_waiting_job_gets_the_next_free_slot() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let (first, _) = s.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    let client = s.new_client();
    let waiting = tokio::spawn(async move {
        client.post("/v1/dispatch/f2f", job_with(json!({"wait_ms": 15_000}))).await
    });
    s.until_metric("lingua_queue_jobs", 1.0).await;
    node.report("job_done", &assign, json!({})).await;
    let second = waiting.await.expect("a reply");
    assert_eq!(second.status, 200, "{:?}", second.body);
    assert_eq!(s.ended(&first).await["state"], "DONE");
    node.work().await;
}

/// Requirements: PICK-05, JOB-13, PREF-01, PREF-02, PREF-03, PREF-05.
#[tokio::test]
async fn a_full_preferred_node_is_replaced_unless_strict() {
    let s = Scheduler::start().await;
    let mut wanted = RawNode::join(&s, "wanted", 1).await;
    let _other = RawNode::join(&s, "other", 8).await;
    let langs = ["fr"];
    let french = json!({
        "type": "register", "node_id": "french", "semantic_langs": langs, "tts_langs": langs,
    });
    let _french = RawNode::join_with(&s, french).await;
    let prefer = |node: &str, strict: bool| {
        job_with(json!({"preferred_node_id": node, "strict": strict, "wait_ms": 0}))
    };
    assert_eq!(s.dispatch(prefer("wanted", false)).await.1, "wanted");
    wanted.expect("job_assign").await;
    assert_eq!(s.dispatch(prefer("wanted", false)).await.1, "other", "the preferred node is full");
    let strict = s.post("/v1/dispatch/f2f", prefer("wanted", true)).await;
    assert_eq!(strict.error(), (503, "ALL_CANDIDATES_FULL_OR_FAILED"));
    let incapable = s.post("/v1/dispatch/f2f", prefer("french", false)).await;
    assert_eq!(incapable.error(), (422, "PREFERRED_NODE_NOT_CAPABLE"));
}

/// Requirements: PICK-01, BIND-02, BIND-03.
#[tokio::test]
async fn a_bind_key_stays_on_its_node_and_moves_when_the_node_is_gone() {
    let s = Scheduler::start().await;
    let mut nodes = vec![];
    for id in ["a", "b", "c"] {
        nodes.push((id, Some(RawNode::join(&s, id, 8).await)));
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
    let moved_job = loop {
        let assign = host.expect("job_assign").await;
        if assign["bind"]["moved"] == true {
            break assign;
        }
    };
    assert_eq!(moved_job["bind"]["bind_key"], "room-1/turn-3");
    assert_eq!(s.dispatch(bound()).await.1, moved);
}

/// Eight clients send jobs while nodes crash and come back. Every accepted job ends once, and no
/// node ever has more jobs than slots.
///
/// Requirements: PICK-16, SLOT-01, SLOT-15.
#[tokio::test]
async fn crashing_nodes_under_load_lose_no_job() {
    let s = Scheduler::start().await;
    let mut nodes = vec![];
    for n in 0..6 {
        nodes
            .push(RawNode::join(&s, &format!("n{n}"), 3).await.serve(3, Duration::from_millis(20)));
    }
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..8 {
        let requests = s.new_client();
        clients.spawn(async move {
            let mut states = vec![];
            for _ in 0..50 {
                let job = job_with(json!({"wait_ms": 10_000}));
                let reply = requests.post("/v1/translate", job).await;
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
        nodes
            .push(RawNode::join(&s, &format!("n{n}"), 3).await.serve(3, Duration::from_millis(20)));
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

/// A stop under load: the scheduler answers everything that it accepted, then ends by itself.
#[tokio::test]
async fn a_stop_under_load_answers_every_accepted_job_and_refuses_new_ones() {
    let s = Scheduler::start().await;
    let node = RawNode::join(&s, "n1", 4).await;
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let client = s.new_client();
        clients.spawn(async move {
            client.post("/v1/translate", job_with(json!({"wait_ms": 10_000}))).await
        });
    }
    let jobs = |reply: &Reply| reply.body["jobs"].as_array().map_or(0, Vec::len);
    s.until_reply("/v1/jobs", |reply| jobs(reply) == 12).await;
    s.begin_stop().await;
    // The node has done nothing yet, so all 12 jobs are open when the scheduler begins to stop.
    let refused = within(async {
        loop {
            let reply = s.post("/v1/translate", job_with(json!({"wait_ms": 0}))).await;
            if reply.error() != (503, "ALL_CANDIDATES_FULL_OR_FAILED") {
                return reply;
            }
        }
    })
    .await;
    assert_eq!(refused.error(), (503, "SCHEDULER_DEPENDENCY_DOWN"), "{}", refused.body);
    let node = node.serve(4, Duration::from_millis(1));
    while let Some(reply) = clients.join_next().await {
        let reply = reply.expect("a client");
        assert_eq!(reply.body["state"], "DONE", "{}", reply.body);
    }
    assert_eq!(s.exit_code().await, Some(0));
    node.check();
}
