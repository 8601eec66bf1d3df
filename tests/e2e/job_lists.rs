//! Lists of jobs: newest first, in pages, by state, session and node.

use std::time::Duration;

use serde_json::{Value, json};

use crate::http::Reply;
use crate::raw_node::RawNode;
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job, job_with, run};

/// The ids of all pages, and how many pages there were.
async fn pages(s: &Scheduler, query: &str) -> (Vec<String>, usize) {
    let (mut ids, mut cursor, mut count) = (vec![], String::new(), 0);
    loop {
        let page = s.get(&format!("/v1/jobs?{query}{cursor}")).await;
        assert_eq!(page.status, 200, "{:?}", page.body);
        let jobs = page.body["jobs"].as_array().expect("jobs");
        ids.extend(jobs.iter().map(|job| job["job_id"].as_str().expect("an id").to_owned()));
        count += 1;
        match page.body["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return (ids, count),
        }
    }
}

async fn submit(s: &Scheduler, key: Option<&str>, body: Value) -> String {
    let headers: Vec<(&str, &str)> = key.iter().map(|key| ("Idempotency-Key", *key)).collect();
    let reply = s.send("POST", "/v1/translate", &headers, &body.to_string()).await;
    reply.body["job_id"].as_str().expect("an id").to_owned()
}

async fn check_pages(s: &Scheduler) {
    let _node = RawNode::join(s, "n1", 4).await.serve(4, Duration::ZERO);
    let mut expected = vec![];
    for n in 0..25 {
        let key = format!("order-{n}");
        expected.push(submit(s, (n % 2 == 0).then_some(key.as_str()), job()).await);
    }
    expected.reverse();
    assert_eq!(pages(s, "limit=7").await, (expected.clone(), 4));
    assert_eq!(pages(s, "limit=1000").await.0, expected);
}

#[tokio::test]
async fn every_job_is_on_one_page_newest_first_with_and_without_keys() {
    check_pages(&Scheduler::start().await).await;
    let redis = Redis::start().await;
    check_pages(&Scheduler::over(&redis.url(), "one").await).await;
}

async fn check_filters(s: &Scheduler) {
    let a = RawNode::join(s, "a", 1).await.serve(1, Duration::ZERO);
    let mut on_a = vec![];
    for n in 0..6 {
        let mut body = job();
        body["session_id"] = json!(format!("room-{}", n % 2));
        on_a.push(submit(s, None, body).await);
    }
    on_a.reverse();
    a.kill();
    let is_gone = |reply: &Reply| reply.body["state"] == "offline" || reply.status == 404;
    s.until_reply("/v1/nodes/a", is_gone).await;
    let mut failed = vec![];
    for _ in 0..3 {
        let body = json!({"src_lang": "ko", "tgt_lang": "en", "text": "x"});
        failed.push(submit(s, None, body).await);
    }
    failed.reverse();
    let mut b = RawNode::join(s, "b", 2).await;
    let (open, _) = s.dispatch(job_with(json!({"preferred_node_id": "b"}))).await;
    let assign = b.expect("job_assign").await;
    b.ack(&assign).await;
    let acked = |reply: &Reply| reply.body["state"] == "ACKED";
    s.until_reply(&format!("/v1/jobs/{open}"), acked).await;
    assert_eq!(pages(s, "limit=2&node=a").await.0, on_a);
    assert_eq!(pages(s, "limit=2&state=failed").await.0, failed);
    assert_eq!(pages(s, "limit=2&state=DONE").await.0, on_a);
    assert_eq!(pages(s, "state=ACKED").await.0, [open.as_str()]);
    assert_eq!(pages(s, "node=b").await.0, [open.as_str()]);
    let of_room: Vec<&String> = on_a.iter().step_by(2).collect();
    let (found, _) = pages(s, "limit=1&session=room-1&state=DONE").await;
    assert_eq!(found.iter().collect::<Vec<_>>(), of_room);
    assert!(pages(s, "session=nobody").await.0.is_empty());
    let url = format!("http://{}", s.address);
    let args = ["jobs", "--session", "room-1", "--node", "a", "--limit", "2", "--url", &url];
    let (code, out, err) = run(&args, &[]).await;
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains(of_room[0].as_str()) && out.contains(of_room[1].as_str()), "{out}");
    assert!(!out.contains(of_room[2].as_str()), "{out}");
}

#[tokio::test]
async fn jobs_are_found_by_state_session_and_node() {
    check_filters(&Scheduler::start().await).await;
    let redis = Redis::start().await;
    check_filters(&Scheduler::over(&redis.url(), "one").await).await;
}

/// However many jobs the store has, one page reads a bounded number of records.
#[tokio::test]
async fn the_work_for_one_page_of_a_rare_state_is_bounded() {
    const JOBS: usize = 12_000;
    let redis = Redis::start().await;
    let s = Scheduler::over(&redis.url(), "one").await;
    let _node = RawNode::join(&s, "n1", 64).await.serve(64, Duration::ZERO);
    let text = json!({"src_lang": "zh", "tgt_lang": "en", "text": "x"}).to_string();
    let rare = submit(&s, None, json!({"src_lang": "ko", "tgt_lang": "en", "text": "x"})).await;
    let clients: Vec<_> = (0..32).map(|_| s.new_client()).collect();
    let sent = clients.iter().map(async |client| {
        for _ in 0..JOBS / 32 {
            let reply = client.send("POST", "/v1/translate", &[], &text).await;
            assert_eq!(reply.status, 200, "{:?}", reply.body);
        }
    });
    futures_util::future::join_all(sent).await;
    let heads = async || -> u64 {
        let stats = redis.info("commandstats").await;
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_hget:calls="));
        calls.and_then(|calls| calls.split(',').next()?.parse().ok()).unwrap_or(0)
    };
    let before = heads().await;
    let page = s.get("/v1/jobs?state=FAILED").await;
    assert_eq!(page.body["jobs"], json!([]), "it is further down");
    let read = heads().await - before;
    assert!(read <= 11_000, "{read} records were read for one page");
    let (found, count) = pages(&s, "state=FAILED").await;
    assert_eq!((found, count), (vec![rare], 2));
}

#[tokio::test]
async fn a_bad_query_is_refused_with_the_field_and_what_to_do() {
    let s = Scheduler::start().await;
    for (query, field) in [
        ("state=LOST", "state"),
        ("limit=0", "limit"),
        ("limit=many", "limit"),
        ("cursor=7", "cursor"),
        ("node=a%20b", "node"),
    ] {
        let reply = s.get(&format!("/v1/jobs?{query}")).await;
        assert_eq!(reply.error(), (400, "INVALID_REQUEST"), "{query}");
        let detail = reply.body["detail"].as_str().expect("a detail");
        assert!(detail.contains(field), "{query}: {detail}");
    }
}
