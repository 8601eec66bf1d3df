//! The leader, and the pool table that all instances show.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::raw_node::{RawNode, register};
use crate::redis::Redis;
use crate::scheduler::{Scheduler, signal, within};

#[derive(Debug, Clone, PartialEq)]
struct SeenTable {
    term: u64,
    version: u64,
    generated_by: String,
    generated_ms: u64,
    pools: Vec<Value>,
}

impl SeenTable {
    fn ready(&self, pool: &str) -> u64 {
        let found = self.pools.iter().find(|row| row["pool"] == pool);
        found.and_then(|row| row["ready"].as_u64()).unwrap_or(0)
    }
}

async fn table(s: &Scheduler) -> SeenTable {
    let (cluster, pools) = (s.get("/v1/cluster").await.body, s.get("/v1/pools").await.body);
    let number = |key: &str| cluster[key].as_u64().unwrap_or(0);
    SeenTable {
        term: number("term"),
        version: number("table_version"),
        generated_by: pools["generated_by"].as_str().unwrap_or_default().to_owned(),
        generated_ms: pools["generated_ms"].as_u64().unwrap_or(0),
        pools: pools["pools"].as_array().cloned().unwrap_or_default(),
    }
}

/// Waits until all instances show the same table, and the table fits.
async fn until_agreed(all: &[&Scheduler], fits: impl Fn(&SeenTable) -> bool) -> SeenTable {
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

/// The time of this machine, which Redis and the instances have, too.
fn unix_ms() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as u64
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

/// Requirements: LEAD-02, LEAD-11, LEAD-12, LEAD-13, LEAD-15, OBS-26.
#[tokio::test]
async fn a_table_says_who_made_it_and_a_new_instance_takes_it_over() {
    let redis = Redis::start().await;
    let url = redis.url();
    let (one, two) = tokio::join!(Scheduler::over(&url, "one"), Scheduler::over(&url, "two"));
    // Whichever instance a node registers at: the leader makes the table.
    let _at_one = RawNode::join(&one, "n1", 1).await;
    let at_two = RawNode::join(&two, "n2", 1).await;
    // Epochs follow the clock.
    let joined_ms = at_two.registered["epoch"].as_u64().expect("an epoch");
    let made = until_agreed(&[&one, &two], |table| table.ready("zh:en") == 2).await;
    assert_eq!(made.generated_by, leader(&one).await);
    assert!(made.generated_ms >= joined_ms, "{joined_ms}: {made:?}");
    for key in ["table", "leader"] {
        let left = redis.command(&format!("PTTL lingua:v1:{{hub}}:{key}")).await;
        assert_eq!(left, ":-1", "{key} does not expire");
    }
    // An instance that comes later takes the table over as it is, and says how old it was by then.
    let age_s = (unix_ms() - made.generated_ms) as f64 / 1000.0;
    let lag_s = two.metric("lingua_pool_table_lag_seconds").await;
    assert!((0.0..=age_s).contains(&lag_s), "{lag_s} of {age_s}");
    let three = Scheduler::over(&url, "three").await;
    let taken = until_agreed(&[&one, &three], |table| table.ready("zh:en") == 2).await;
    assert_eq!(taken, made);
    let lag_s = three.metric("lingua_pool_table_lag_seconds").await;
    assert!(lag_s >= age_s, "{lag_s}, {age_s}");
}

/// Requirements: LEAD-05, LEAD-06.
#[tokio::test]
async fn a_leader_that_was_paused_does_not_go_on_leading() {
    let redis = Redis::start().await;
    let url = redis.url();
    let one = Scheduler::over(&url, "one").await;
    until_agreed(&[&one], |table| table.version > 0 && table.generated_by == "one").await;
    let two = Scheduler::over(&url, "two").await;
    signal(&one.child, "STOP").await;
    let _node = RawNode::join(&two, "n1", 1).await;
    let after =
        until_agreed(&[&two], |table| table.generated_by == "two" && table.ready("zh:en") == 1)
            .await;
    signal(&one.child, "CONT").await;
    let shown = until_agreed(&[&one, &two], |table| table.ready("zh:en") == 1).await;
    assert_eq!((shown.term, &*shown.generated_by), (after.term, "two"), "{after:?}");
    one.until_metric("lingua_leader", 0.0).await;
    assert_eq!(two.metric("lingua_leader").await, 1.0);
}
