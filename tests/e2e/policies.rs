//! What `selection.policy` changes, and which nodes are avoided.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::raw_node::{RawNode, register};
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job, job_with};

/// A scheduler with this policy, and two silent nodes with so many slots and jobs.
async fn with_jobs(settings: &[(&str, &str)], nodes: [(&str, usize, usize); 2]) -> Scheduler {
    let patient =
        [("SCHEDULER__HEARTBEAT_STALE_MS", "600000"), ("SCHEDULER__RESERVATION_TTL_MS", "600000")];
    let s = Scheduler::with(&[&patient, settings].concat()).await;
    for (id, slots, _) in nodes {
        let reply = s.post("/v1/node/register", register(id, slots)).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
    for (id, _, jobs) in nodes {
        for _ in 0..jobs {
            let prefers = job_with(json!({"preferred_node_id": id}));
            assert_eq!(s.dispatch(prefers).await.1, id);
        }
    }
    s
}

/// Sends so many jobs, which do not end; gives the number of jobs of each node.
async fn sent(s: &Scheduler, jobs: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..jobs {
        let (_, node) = s.dispatch(job_with(json!({"wait_ms": 0}))).await;
        *counts.entry(node).or_default() += 1;
    }
    counts
}

fn policy(name: &'static str) -> (&'static str, &'static str) {
    ("SELECTION__POLICY", name)
}

/// Requirements: PICK-11, PICK-13, PICK-14, CONF-04, CONF-10.
#[tokio::test]
async fn each_policy_chooses_as_its_name_says() {
    // A quarter of the small node is in use, an eighth of the large one: more jobs, less load.
    let unequal = [("large", 64, 8), ("small", 4, 1)];
    let s = with_jobs(&[policy("least_loaded")], unequal).await;
    assert_eq!(sent(&s, 7).await, [("large".to_owned(), 7)].into());

    // A sample of twenty has both nodes: the one with fewer jobs gets all, until they are equal.
    let one_busy = [("busy", 1000, 20), ("idle", 1000, 0)];
    let s = with_jobs(&[policy("sample")], one_busy).await;
    assert_eq!(sent(&s, 20).await, [("idle".to_owned(), 20)].into());

    // A sample of one does not compare. That leaves the bounds once in 10⁹ runs.
    let by_chance = |counts: &BTreeMap<String, usize>| {
        assert!(counts.len() == 2 && counts.values().all(|n| (20..=80).contains(n)), "{counts:?}");
    };
    let s = with_jobs(&[policy("sample"), ("SELECTION__SAMPLE_K", "1")], one_busy).await;
    by_chance(&sent(&s, 100).await);
    let s = with_jobs(&[policy("random")], one_busy).await;
    by_chance(&sent(&s, 100).await);
}

/// Requirements: PICK-15.
#[tokio::test]
async fn one_call_finds_the_only_free_slot_even_if_the_sample_is_small() {
    let settings = [policy("sample"), ("SELECTION__SAMPLE_K", "1")];
    let s = with_jobs(&settings, [("full", 19, 19), ("free", 20, 19)]).await;
    let granted = r#"lingua_reserve_total{outcome="granted"}"#;
    let full = r#"lingua_reserve_total{outcome="full"}"#;
    let before = (s.metric(granted).await, s.metric(full).await);
    assert_eq!(sent(&s, 1).await, [("free".to_owned(), 1)].into());
    assert_eq!((s.metric(granted).await, s.metric(full).await), (before.0 + 1.0, before.1));
}

/// Requirements: PICK-22.
#[tokio::test]
async fn a_node_that_fails_is_avoided_for_a_while() {
    let s = Scheduler::with(&[("SCHEDULER__HEARTBEAT_INTERVAL_MS", "14000")]).await;
    let mut bad = RawNode::join(&s, "bad", 4).await;
    let _good = RawNode::join(&s, "good", 4).await.serve(4, std::time::Duration::ZERO);
    let failing = tokio::spawn(async move {
        loop {
            let assign = bad.next().await;
            if assign["type"] == "job_assign" {
                bad.report("job_fail", &assign, json!({"reason": "MODEL_LOAD_FAILED"})).await;
            }
        }
    });
    let mut failed = 0;
    for _ in 0..100 {
        let done = s.post("/v1/translate", job()).await.body;
        assert_eq!((&done["state"], &done["node_id"]), (&json!("DONE"), &json!("good")), "{done}");
        failed += usize::from(done["attempts"][0]["node_id"] == "bad");
    }
    failing.abort();
    // A node that always fails is always free: without the rule it would get half of the jobs.
    assert!((1..=15).contains(&failed), "{failed} of 100 jobs were tried on the bad node first");
}

/// Requirements: PICK-21.
#[tokio::test]
async fn a_pair_that_no_pool_table_has_yet_is_found_at_once() {
    let redis = Redis::start().await;
    let url = redis.url();
    let (one, two) = tokio::join!(Scheduler::over(&url, "one"), Scheduler::over(&url, "two"));
    for (n, lang) in ["fr", "de", "ja", "ko", "it"].into_iter().enumerate() {
        let pair = format!("zh:{lang}");
        let mut body = job_with(json!({"wait_ms": 0}));
        body["tgt_lang"] = Value::from(lang);
        // Both instances know that no cell has such a node.
        for s in [&one, &two] {
            let nobody = s.post("/v1/dispatch/f2f", body.clone()).await;
            assert_eq!(nobody.error(), (503, "NO_CAPABLE_NODE"), "{}", nobody.body);
        }
        let id = format!("n{n}");
        let mut node = register(&id, 2);
        node["tts_langs"] = json!([lang]);
        node["nmt_pairs"] = json!([["zh", lang]]);
        let reply = one.post("/v1/node/register", node).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        for s in [&two, &one] {
            assert_eq!(s.dispatch(body.clone()).await.1, id, "{pair}");
        }
    }
}
