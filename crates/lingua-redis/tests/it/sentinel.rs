//! The store on a master with a replica, behind three sentinels.

use std::sync::OnceLock;

use lingua_core::Rules;
use lingua_redis::RedisStore;
use lingua_store::ManualClock;

use crate::servers::options;
pub(crate) use crate::watched::Watched;

async fn shared() -> &'static Watched {
    static WATCHED: OnceLock<Watched> = OnceLock::new();
    static STARTING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _starting = STARTING.lock().await;
    if let Some(watched) = WATCHED.get() {
        return watched;
    }
    let watched = Watched::start().await;
    WATCHED.get_or_init(|| watched)
}

async fn behind_sentinels(rules: Rules, clock: ManualClock) -> RedisStore {
    let url = shared().await.url();
    RedisStore::connect(options(&url, rules, Some(clock))).await.unwrap()
}

lingua_store::conformance_suite!(behind_sentinels, in_one_test, 40);
