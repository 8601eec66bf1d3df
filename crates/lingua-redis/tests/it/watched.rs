//! A master with a replica, behind three sentinels. The end-to-end tests start the same.

use crate::servers::Server;

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
