//! Who leads, and that everybody shows the same table.

use std::time::Duration;

use serde_json::Value;

use tokio::time::Instant;

use crate::redis::Redis;
use crate::world::{Node, Scheduler};

/// Term, version and pools.
async fn table(s: &Scheduler) -> (u64, u64, Value) {
    let (cluster, pools) = (s.get("/v1/cluster").await.body, s.get("/v1/pools").await.body);
    let number = |key: &str| cluster[key].as_u64().unwrap_or(0);
    (number("term"), number("table_version"), pools["pools"].clone())
}

/// Waits until all show the same table, and one that fits.
async fn agree(all: &[&Scheduler], fits: impl Fn(&(u64, u64, Value)) -> bool) -> (u64, u64, Value) {
    let agreed = async {
        loop {
            let mut tables = vec![];
            for s in all {
                tables.push(table(s).await);
            }
            if tables.iter().all(|t| *t == tables[0] && fits(t)) {
                return tables.remove(0);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    crate::world::within(agreed).await
}

async fn leader(s: &Scheduler) -> String {
    s.get("/v1/cluster").await.body["leader"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn another_leads_soon_after_the_leader_was_killed() {
    let redis = Redis::start().await;
    let url = redis.url();
    let mut all = vec![];
    for name in ["one", "two", "three"] {
        // With the lease that everybody has: 9 s.
        let settings = [("STORE__URL", url.as_str()), ("INSTANCE__ID", name)];
        all.push((name, Scheduler::with(&settings).await));
    }
    let _node = Node::join(&all[0].1, "n1", 2).await;
    let refs: Vec<&Scheduler> = all.iter().map(|(_, s)| s).collect();
    let has_pools = |t: &(u64, u64, Value)| t.2.as_array().is_some_and(|pools| !pools.is_empty());
    let (term, version, _) = agree(&refs, has_pools).await;
    let who = leader(refs[0]).await;
    let leading: Vec<f64> = {
        let mut leading = vec![];
        for s in &refs {
            leading.push(s.metric("lingua_leader").await);
        }
        leading
    };
    assert_eq!(leading.iter().sum::<f64>(), 1.0, "{leading:?}");

    let at = all.iter().position(|(name, _)| *name == who).expect("one of them leads");
    let (_, dead) = all.remove(at);
    let refs: Vec<&Scheduler> = all.iter().map(|(_, s)| s).collect();
    let seen = refs[0].metric("lingua_leader_changes_total").await;
    let killed = Instant::now();
    dead.kill().await;
    let (term_after, version_after, _) = agree(&refs, |t| t.0 > term).await;
    let took = killed.elapsed();
    assert!(took < Duration::from_secs(10), "it took {took:?}");
    assert!(version_after > version, "{version} became {version_after} in term {term_after}");
    assert_ne!(leader(refs[0]).await, who);
    assert!(refs[0].metric("lingua_leader_changes_total").await > seen);
}

#[tokio::test]
async fn followers_show_a_change_within_a_second() {
    let redis = Redis::start().await;
    let url = redis.url();
    let (one, two) = tokio::join!(Scheduler::over(&url, "one"), Scheduler::over(&url, "two"));
    let all = [&one, &two];
    let has = |pair: &str, t: &(u64, u64, Value)| t.2.to_string().contains(pair);
    let _first = Node::join(&one, "n1", 2).await;
    agree(&all, |t| has("zh:en", t)).await;
    let register = serde_json::json!({
        "type": "register", "node_id": "n2",
        "asr_langs": ["ja", "fr"], "semantic_langs": ["ja", "fr"], "tts_langs": ["ja", "fr"],
    });
    let joined = Instant::now();
    let node = Node::join_with(&two, register).await;
    agree(&all, |t| has("ja:fr", t)).await;
    let took = joined.elapsed();
    assert!(took < Duration::from_secs(1), "it took {took:?}");
    node.close().await;
    agree(&all, |t| {
        t.2.as_array().is_some_and(|pools| {
            pools.iter().all(|pool| pool["pair"] != "ja:fr" || pool["ready"] == 0)
        })
    })
    .await;
}
