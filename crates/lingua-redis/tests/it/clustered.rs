//! A Cluster of three masters and three replicas. The end-to-end tests start the same.

use crate::servers::{Server, free_port};

pub(crate) const MASTERS: usize = 3;
pub(crate) const SLOTS: usize = 16_384;

/// A running Cluster: the first three are the masters.
pub(crate) struct Cluster {
    pub(crate) servers: Vec<Server>,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::start_with(MASTERS).await
    }

    /// With so many replicas, of a master each; measurements have none, as they would only be in
    /// the way.
    pub(crate) async fn start_with(replicas: usize) -> Self {
        let mut servers = vec![];
        for _ in 0..MASTERS + replicas {
            let bus = free_port().to_string();
            let settings = ["--cluster-enabled", "yes", "--cluster-port", &bus];
            let timeouts = ["--cluster-node-timeout", "2000", "--repl-diskless-sync-delay", "0"];
            servers.push((Server::start(&[settings, timeouts].concat()).await, bus));
        }
        for (i, (server, _)) in servers.iter().enumerate() {
            server.ask::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(i + 1).to_string()]).await.unwrap();
            if i < MASTERS {
                let (from, upto) = (i * SLOTS / MASTERS, (i + 1) * SLOTS / MASTERS - 1);
                let (from, upto) = (from.to_string(), upto.to_string());
                server.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", &from, &upto]).await.unwrap();
            }
            let (port, bus) = (servers[0].0.port.to_string(), &servers[0].1);
            server.ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, bus]).await.unwrap();
        }
        let servers: Vec<Server> = servers.into_iter().map(|(server, _)| server).collect();
        for server in &servers {
            let known = format!("cluster_known_nodes:{}", MASTERS + replicas);
            server.ask_until(&["CLUSTER", "INFO"], |info| info.contains(&known)).await;
        }
        for i in 0..replicas {
            let master: String = servers[i].ask(&["CLUSTER", "MYID"]).await.unwrap();
            let replica = &servers[MASTERS + i];
            replica.ask_until(&["CLUSTER", "REPLICATE", &master], |reply| reply == "ok").await;
        }
        for server in &servers {
            server.ask_until(&["CLUSTER", "INFO"], |info| info.contains("cluster_state:ok")).await;
            let linked = |nodes: &str| nodes.matches("slave ").count() == replicas;
            server.ask_until(&["CLUSTER", "NODES"], linked).await;
        }
        for replica in &servers[MASTERS..] {
            let linked = |info: &str| info.contains("master_link_status:up");
            replica.ask_until(&["INFO", "replication"], linked).await;
        }
        Self { servers }
    }

    pub(crate) fn url(&self) -> String {
        let addresses = self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port));
        format!("redis+cluster://{}", addresses.collect::<Vec<_>>().join(","))
    }
}
