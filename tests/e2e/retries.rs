//! What follows when nodes fail jobs, and in which order jobs wait.

use serde_json::{Value, json};

use crate::raw_node::RawNode;
use crate::scheduler::{Scheduler, job, job_with};

/// Fails the job as often as it comes; gives the ended job.
async fn failed_always(s: &Scheduler, attempts: u64) -> Value {
    let mut node = RawNode::join(s, "n1", 1).await;
    let sent = s.post("/v1/dispatch/f2f", job()).await.body;
    assert_eq!((&sent["node_id"], &sent["attempt_id"]), (&json!("n1"), &json!(1)), "{sent}");
    for attempt in 1..=attempts {
        let assign = node.expect("job_assign").await;
        assert_eq!(assign["attempt_id"], attempt, "{assign}");
        node.ack(&assign).await;
        node.report("job_fail", &assign, json!({"reason": "MODEL_LOAD_FAILED"})).await;
    }
    let ended = s.ended(sent["job_id"].as_str().expect("an id")).await;
    assert_eq!(ended["state"], "FAILED", "{ended}");
    s.until_unused().await;
    ended
}

/// Requirements: JOB-05, JOB-21, JOB-22, JOB-23, JOB-26, CONF-01.
#[tokio::test]
async fn a_job_that_fails_three_times_has_failed_and_holds_nothing() {
    for (max_retry, attempts) in [(None, 3), (Some("0"), 1), (Some("1"), 2)] {
        let settings = max_retry.map(|retries| ("SCHEDULER__MAX_RETRY", retries));
        let s = Scheduler::with(settings.as_slice()).await;
        let ended = failed_always(&s, attempts).await;
        let tried = ended["attempts"].as_array().expect("attempts");
        assert_eq!(tried.len() as u64, attempts, "{ended}");
        for attempt in tried {
            assert_eq!(attempt["reason"], "MODEL_LOAD_FAILED", "{ended}");
        }
        let asked = [&ended["session_id"], &ended["src_lang"], &ended["tgt_lang"]];
        assert_eq!(asked, [&json!("room-1"), &json!("zh"), &json!("en")], "{ended}");
        assert_eq!((&ended["node_id"], &ended["attempt_id"]), (&json!("n1"), &json!(attempts)));
    }
}

/// Requirements: JOB-20, SLOT-08.
#[tokio::test]
async fn a_failed_job_goes_to_another_node_and_nobody_else_speaks_for_it() {
    let s = Scheduler::start().await;
    let mut nodes = [RawNode::join(&s, "n0", 4).await, RawNode::join(&s, "n1", 4).await];
    let (id, first) = s.dispatch(job()).await;
    let first = usize::from(first == "n1");
    let assign = nodes[first].expect("job_assign").await;
    // The other node has nothing to say about it.
    let body = json!({"job_id": id, "attempt_id": 1, "node_id": format!("n{}", 1 - first)});
    let refused = s.post("/v1/job/ack", body).await;
    assert_eq!(refused.error(), (409, "STALE_ATTEMPT"), "{refused:?}");
    assert_eq!(s.get(&format!("/v1/jobs/{id}")).await.body["state"], "DISPATCHED");
    nodes[first].report("job_fail", &assign, json!({"reason": "OUT_OF_MEMORY"})).await;
    let assign = nodes[1 - first].work().await;
    assert_eq!((&assign["job_id"], &assign["attempt_id"]), (&json!(id), &json!(2)));
    assert_eq!(s.ended(&id).await["state"], "DONE");
}

/// Requirements: PICK-25.
#[tokio::test]
async fn an_urgent_job_goes_first() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    s.dispatch(job()).await;
    let running = node.expect("job_assign").await;
    let mut waiting = vec![];
    for (n, priority) in [(1.0, 0), (2.0, 5), (3.0, 1)] {
        let client = s.new_client();
        let body = job_with(json!({"wait_ms": 15_000, "priority": priority}));
        waiting.push(tokio::spawn(async move { client.post("/v1/dispatch/f2f", body).await }));
        s.until_metric("lingua_queue_jobs", n).await;
    }
    node.done(&running, "hello").await;
    for priority in [5, 1, 0] {
        let assign = node.work().await;
        assert_eq!(assign["options"]["priority"].as_i64().unwrap_or(0), priority, "{assign}");
    }
    for reply in waiting {
        assert_eq!(reply.await.expect("a reply").status, 200);
    }
}

/// Requirements: BIND-04, BIND-07, PREF-07.
#[tokio::test]
async fn a_full_node_holds_no_bound_job_up_and_the_log_says_why_it_was_not_used() {
    let s = Scheduler::start().await;
    let mut nodes = [RawNode::join(&s, "n0", 1).await, RawNode::join(&s, "n1", 1).await];
    let bound = || job_with(json!({"bind_key": "k", "wait_ms": 0}));
    let (_, first) = s.dispatch(bound()).await;
    let (_, second) = s.dispatch(bound()).await;
    assert_ne!(first, second, "the first is full");
    let moved = nodes[usize::from(second == "n1")].expect("job_assign").await;
    assert_eq!(moved["bind"]["moved"], true, "{moved}");
    let unbound = nodes[usize::from(first == "n1")].expect("job_assign").await;
    nodes[usize::from(first == "n1")].done(&unbound, "hello").await;
    s.until_metric("lingua_node_used_slots", 1.0).await;
    let prefer = job_with(json!({"preferred_node_id": second, "wait_ms": 0}));
    assert_eq!(s.dispatch(prefer).await.1, first);
    let fields = [("message", "preferred node not used"), ("node_id", &*second)];
    let line = s.until_logged(&fields).await;
    assert_eq!(line["fields"]["reason"], "all slots taken", "{line}");
    let assign = nodes[usize::from(first == "n1")].expect("job_assign").await;
    assert!(assign["bind"].is_null(), "without a key nothing is bound: {assign}");
}
