//! Records in Redis that somebody else wrote: the others are still served.

use serde_json::json;

use crate::raw_node::RawNode;
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job, job_with};

const UNREADABLE: &str = "lingua_store_unreadable_records_total";

#[tokio::test]
async fn one_foreign_record_spoils_no_list_and_no_cell() {
    let redis = Redis::start().await;
    let s = Scheduler::over(&redis.url(), "one").await;
    let mut node = RawNode::join(&s, "n1", 4).await;
    let (id, _) = s.dispatch(job()).await;
    node.work().await;
    s.ended(&id).await;
    let client = redis::Client::open(redis.url()).expect("a URL");
    let mut connection = client.get_multiplexed_async_connection().await.expect("connected");
    let keys: Vec<String> =
        redis::cmd("KEYS").arg("*").query_async(&mut connection).await.expect("keys");
    // A foreign entry in every hash, list of jobs and set that the store keeps.
    for key in &keys {
        let kind: String =
            redis::cmd("TYPE").arg(key).query_async(&mut connection).await.expect("a type");
        let command = match &*kind {
            "zset" => redis::cmd("ZADD").arg((key, 1, "foreign")).to_owned(),
            "set" => redis::cmd("SADD").arg((key, "foreign name")).to_owned(),
            "hash" => redis::cmd("HSET").arg((key, "foreign", "x")).to_owned(),
            _ => continue,
        };
        let added: i64 = command.query_async(&mut connection).await.expect("written");
        assert!(added >= 0);
    }
    for path in ["/v1/jobs", "/v1/jobs?state=DONE", "/v1/nodes", "/v1/cluster", "/v1/pools"] {
        let reply = s.get(path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    }
    assert_eq!(s.get("/v1/jobs").await.body["jobs"][0]["job_id"], id);
    assert_eq!(s.get("/v1/nodes").await.body["nodes"][0]["node_id"], "n1");
    // The cell still grants slots, also after it looked for expired leases.
    for _ in 0..3 {
        tokio::time::sleep(std::time::Duration::from_millis(400)).await;
        let (id, _) = s.dispatch(job_with(json!({"wait_ms": 0}))).await;
        node.work().await;
        assert_eq!(s.ended(&id).await["state"], "DONE");
    }
    assert!(s.metric(UNREADABLE).await > 0.0);
}
