//! The leader, and the pool table that all instances show.

use std::time::Duration;

use serde_json::Value;

use crate::raw_node::{RawNode, register};
use crate::redis::Redis;
use crate::scheduler::{Scheduler, within};

#[derive(Debug, Clone, PartialEq)]
struct PoolTable {
    term: u64,
    version: u64,
    pools: Vec<Value>,
}

impl PoolTable {
    fn ready(&self, pool: &str) -> u64 {
        let found = self.pools.iter().find(|row| row["pool"] == pool);
        found.and_then(|row| row["ready"].as_u64()).unwrap_or(0)
    }
}

async fn table(s: &Scheduler) -> PoolTable {
    let (cluster, pools) = (s.get("/v1/cluster").await.body, s.get("/v1/pools").await.body);
    let number = |key: &str| cluster[key].as_u64().unwrap_or(0);
    let pools = pools["pools"].as_array().cloned().unwrap_or_default();
    PoolTable { term: number("term"), version: number("table_version"), pools }
}

/// Waits until all instances show the same table, and the table fits.
async fn until_agreed(all: &[&Scheduler], fits: impl Fn(&PoolTable) -> bool) -> PoolTable {
    within(async {
        loop {
            let mut tables = vec![];
            for s in all {
                tables.push(table(s).await);
            }
            if tables.iter().all(|table| *table == tables[0] && fits(table)) {
                return tables.remove(0);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

async fn leader(s: &Scheduler) -> String {
    s.get("/v1/cluster").await.body["leader"].as_str().unwrap_or_default().to_owned()
}

/// Requirements: LEAD-01, LEAD-04, LEAD-05, LEAD-07, LEAD-08, LEAD-09, OBS-23, OBS-24, OBS-25.
#[tokio::test]
async fn another_instance_leads_after_the_leader_was_killed() {
    let redis = Redis::start().await;
    let url = redis.url();
    let mut all = vec![];
    for name in ["one", "two", "three"] {
        // With the default lease of 9 s.
        let settings = [("STORE__URL", url.as_str()), ("INSTANCE__ID", name)];
        all.push((name, Scheduler::with(&settings).await));
    }
    let _node = RawNode::join(&all[0].1, "n1", 2).await;
    let instances: Vec<&Scheduler> = all.iter().map(|(_, s)| s).collect();
    let before = until_agreed(&instances, |table| table.ready("zh:en") == 1).await;
    let first = leader(instances[0]).await;
    let mut leaders = 0.0;
    for s in &instances {
        leaders += s.metric("lingua_leader").await;
    }
    assert_eq!(leaders, 1.0, "exactly one instance leads");

    let at = all.iter().position(|(name, _)| *name == first).expect("one of them leads");
    let (_, killed) = all.remove(at);
    let instances: Vec<&Scheduler> = all.iter().map(|(_, s)| s).collect();
    let changes = instances[0].metric("lingua_leader_changes_total").await;
    killed.kill().await;
    let after = until_agreed(&instances, |table| table.term > before.term).await;
    assert!(after.version > before.version, "{before:?} {after:?}");
    assert_ne!(leader(instances[0]).await, first);
    assert!(instances[0].metric("lingua_leader_changes_total").await > changes);
}

/// Requirements: POOL-19, POOL-22, LEAD-03, OBS-09.
#[tokio::test]
async fn followers_show_a_new_pool_and_the_loss_of_its_last_node() {
    let redis = Redis::start().await;
    let url = redis.url();
    let (one, two) = tokio::join!(Scheduler::over(&url, "one"), Scheduler::over(&url, "two"));
    let all = [&one, &two];
    let _first = RawNode::join(&one, "n1", 2).await;
    until_agreed(&all, |table| table.ready("zh:en") == 1).await;
    let mut other = register("n2", 1);
    for field in ["asr_langs", "semantic_langs", "tts_langs"] {
        other[field] = serde_json::json!(["ja", "fr"]);
    }
    let node = RawNode::join_with(&two, other).await;
    until_agreed(&all, |table| table.ready("ja:fr") == 1).await;
    node.close().await;
    until_agreed(&all, |table| table.ready("ja:fr") == 0).await;
}
