//! What two instances over one Redis show.

use crate::raw_node::RawNode;
use crate::redis::{Redis, free_port};
use crate::scheduler::{Scheduler, job, run};

/// Requirements: STORE-01, STORE-06, OBS-03.
#[tokio::test]
async fn two_instances_show_the_same_nodes_and_jobs() {
    let redis = Redis::start().await;
    let url = redis.url();
    let one = Scheduler::with(&[("STORE__URL", &url), ("INSTANCE__ID", "one")]).await;
    let two = Scheduler::with(&[("STORE__URL", &url), ("INSTANCE__ID", "two")]).await;
    let mut node = RawNode::join(&one, "n1", 2).await;
    let seen = two.get("/v1/nodes/n1").await;
    assert_eq!((seen.status, &seen.body["state"]), (200, &"ready".into()), "{:?}", seen.body);

    let sent = tokio::spawn(async move {
        let accepted = one.dispatch(job()).await;
        (one, accepted)
    });
    node.work().await;
    let (one, (job_id, _)) = sent.await.expect("dispatched");
    assert_eq!(one.ended(&job_id).await["state"], "DONE");
    assert_eq!(two.ended(&job_id).await["state"], "DONE");
    let cluster = two.get("/v1/cluster").await.body;
    assert_eq!(cluster["store"]["kind"], "redis");
    assert_eq!(cluster["instances"].as_array().map(Vec::len), Some(2), "{cluster}");

    // `lingua inspect` reads the same from the store.
    for (args, expected) in [
        (vec!["inspect"], "c0"),
        (vec!["inspect", "cell", "c0"], "n1"),
        (vec!["inspect", "node", "n1"], "0 of 2"),
        (vec!["inspect", "job", &job_id], "DONE"),
    ] {
        let args = [args, vec!["--store", &url]].concat();
        let (code, out, error) = run(&args, &[]).await;
        assert_eq!(code, Some(0), "{args:?}: {error}");
        assert!(out.contains(expected), "{args:?}: {out}");
    }
}

#[tokio::test]
async fn an_instance_starts_before_its_store() {
    let port = free_port();
    let url = format!("redis://127.0.0.1:{port}");
    let s = Scheduler::with(&[("STORE__URL", &url)]).await;
    assert_eq!(s.get("/readyz").await.status, 503);
    let _redis = Redis::start_on(port).await;
    s.until("/readyz", 200).await;
    RawNode::join(&s, "n1", 1).await;
}
