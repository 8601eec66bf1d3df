//! The store on a Cluster of three masters and three replicas.

use std::sync::OnceLock;

use lingua_core::Rules;
use lingua_redis::RedisStore;
use lingua_store::ManualClock;

pub(crate) use crate::clustered::Cluster;
use crate::servers::options;

async fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    static STARTING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _starting = STARTING.lock().await;
    if let Some(cluster) = CLUSTER.get() {
        return cluster;
    }
    let cluster = Cluster::start().await;
    CLUSTER.get_or_init(|| cluster)
}

async fn on_cluster(rules: Rules, clock: ManualClock) -> RedisStore {
    let url = shared().await.url();
    RedisStore::connect(options(&url, rules, Some(clock))).await.unwrap()
}

lingua_store::conformance_suite!(on_cluster, in_one_test, 40);
