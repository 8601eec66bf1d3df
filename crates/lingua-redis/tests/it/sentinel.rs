//! The store on a master with a replica, behind three sentinels.

use std::sync::OnceLock;

use lingua_core::Rules;
use lingua_redis::RedisStore;
use lingua_store::ManualClock;

use crate::servers::{Server, options};

const SENTINELS: usize = 3;

/// A master, a replica, and who watches them.
pub(crate) struct Watched {
    pub(crate) master: Server,
    pub(crate) replica: Server,
    pub(crate) sentinels: Vec<Server>,
}

impl Watched {
    pub(crate) async fn start() -> Self {
        let master = Server::start(&["--repl-diskless-sync-delay", "0"]).await;
        let of = format!("127.0.0.1 {}", master.port);
        let replica = Server::start(&["--replicaof", &of]).await;
        let linked = |info: &str| info.contains("master_link_status:up");
        replica.ask_until(&["INFO", "replication"], linked).await;
        let mut sentinels = vec![];
        for _ in 0..SENTINELS {
            sentinels.push(Server::start_sentinel(master.port).await);
        }
        for sentinel in &sentinels {
            // They have found the replica and each other.
            let ready = |info: &str| info.contains("slaves=1,sentinels=3");
            sentinel.ask_until(&["INFO", "sentinel"], ready).await;
        }
        Self { master, replica, sentinels }
    }

    pub(crate) fn url(&self) -> String {
        let addresses = self.sentinels.iter().map(|server| format!("127.0.0.1:{}", server.port));
        format!("redis+sentinel://{}/lingua", addresses.collect::<Vec<_>>().join(","))
    }
}

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
