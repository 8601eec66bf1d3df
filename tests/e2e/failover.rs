//! The store fails over while jobs run: Sentinel promotes a replica, a Cluster loses a master.
//!
//! Meanwhile each new job is accepted or refused with `SCHEDULER_DEPENDENCY_DOWN`. Every accepted
//! job ends once, and work resumes without a restart.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::clustered::{Cluster, MASTERS, SLOTS};
use crate::scheduler::{Scheduler, binary, job_with, within};
use crate::watched::Watched;

/// Clients that each send one job after the other.
const CLIENTS: usize = 4;

/// Jobs in a row that must be DONE before the failover, and again after it.
const IN_A_ROW: usize = 40;

/// Two instances over one store, with nodes, and clients that send jobs without a pause.
struct Load {
    instances: [Scheduler; 2],
    nodes: Vec<Child>,
    /// Status and body of each reply, in order.
    replies: Arc<Mutex<Vec<(u16, Value)>>>,
    clients: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    async fn start(url: &str) -> Self {
        let settings = |name| {
            [
                ("STORE__URL", url),
                ("STORE__TIMEOUT_MS", "500"),
                ("STORE__RECONNECT_MAX_MS", "200"),
                ("INSTANCE__ID", name),
                ("SCHEDULER__HEARTBEAT_INTERVAL_MS", "200"),
                // Leases that could not be released expire soon.
                ("SCHEDULER__RUN_LEASE_MS", "2000"),
                ("SCHEDULER__RESERVATION_TTL_MS", "1000"),
            ]
        };
        let instances =
            [Scheduler::with(&settings("one")).await, Scheduler::with(&settings("two")).await];
        let mut nodes = vec![];
        for (at, instance) in instances.iter().enumerate() {
            instance.until("/readyz", 200).await;
            let (url, id) = (format!("http://{}", instance.address), format!("n{at}"));
            let mut node = Command::new(binary());
            node.args(["node", "--url", &url, "--id", &id, "--slots", "4", "--work-ms", "5"]);
            node.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            nodes.push(node.kill_on_drop(true).spawn().expect("it starts"));
            let is_ready = |reply: &crate::http::Reply| reply.body["state"] == "ready";
            instance.until_reply(&format!("/v1/nodes/{id}"), is_ready).await;
        }
        let replies = Arc::new(Mutex::new(vec![]));
        let mut clients = vec![];
        for client in 0..CLIENTS {
            let client = instances[client % 2].new_client();
            let replies = Arc::clone(&replies);
            clients.push(tokio::spawn(async move {
                loop {
                    let job = job_with(serde_json::json!({"wait_ms": 3000}));
                    let reply = client.post("/v1/translate", job).await;
                    replies.lock().push((reply.status, reply.body));
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }));
        }
        let load = Self { instances, nodes, replies, clients };
        load.until_steady().await;
        load
    }

    /// Waits until the last replies were all results.
    async fn until_steady(&self) {
        let from = self.replies.lock().len();
        let is_done = |(status, body): &(u16, Value)| *status == 200 && body["state"] == "DONE";
        within(async {
            loop {
                let row =
                    self.replies.lock()[from..].iter().rev().take_while(|a| is_done(a)).count();
                if row >= IN_A_ROW {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    /// Stops the clients and checks that both instances agree with every reply.
    async fn check(mut self) {
        for client in self.clients.drain(..) {
            client.abort();
        }
        let replies = std::mem::take(&mut *self.replies.lock());
        let (mut done, mut refused) = (0, 0);
        for (status, body) in &replies {
            let Some(id) = body["job_id"].as_str() else {
                let error = body["error"].as_str().unwrap_or_default();
                assert_eq!((*status, error), (503, "SCHEDULER_DEPENDENCY_DOWN"), "{body}");
                refused += 1;
                continue;
            };
            let has_ended = |reply: &crate::http::Reply| {
                ["DONE", "FAILED"].iter().any(|state| reply.body["state"] == *state)
            };
            let path = format!("/v1/jobs/{id}");
            let states = [
                self.instances[0].until_reply(&path, has_ended).await.body["state"].clone(),
                self.instances[1].until_reply(&path, has_ended).await.body["state"].clone(),
            ];
            assert_eq!(states[0], states[1], "{id} ended once");
            if body["state"] == "DONE" {
                assert_eq!(states[0], "DONE", "{id} was reported as done");
            }
            done += usize::from(states[0] == "DONE");
        }
        assert!(done >= 2 * IN_A_ROW, "{done} done, {refused} refused of {}", replies.len());
        self.instances[0].until_unused().await;
        for node in &mut self.nodes {
            assert!(node.try_wait().expect("a reply").is_none(), "no node was restarted");
        }
    }
}

#[tokio::test]
async fn work_resumes_after_sentinel_promoted_a_replica() {
    let mut watched = Watched::start().await;
    let load = Load::start(&watched.url()).await;
    watched.master.kill();
    let is_master = |info: &str| info.contains("role:master");
    watched.replica.ask_until(&["INFO", "replication"], is_master).await;
    load.until_steady().await;
    load.check().await;
}

/// Requirements: SLOT-14.
#[tokio::test]
async fn work_resumes_after_a_cluster_lost_the_master_of_all_nodes() {
    let mut cluster = Cluster::start().await;
    let load = Load::start(&cluster.url()).await;
    let (owner, _) = owner_of_nodes(&cluster).await;
    cluster.servers[owner].kill();
    let is_master = |info: &str| info.contains("role:master");
    cluster.servers[MASTERS + owner].ask_until(&["INFO", "replication"], is_master).await;
    load.until_steady().await;
    load.check().await;
}

#[tokio::test]
async fn work_goes_on_while_a_hash_slot_moves_to_another_master() {
    let cluster = Cluster::start().await;
    let load = Load::start(&cluster.url()).await;
    let (from, slot) = owner_of_nodes(&cluster).await;
    let (from, to) = (&cluster.servers[from], &cluster.servers[(from + 1) % MASTERS]);
    let from_id: String = from.ask(&["CLUSTER", "MYID"]).await.expect("a reply");
    let to_id: String = to.ask(&["CLUSTER", "MYID"]).await.expect("a reply");
    let set = ["CLUSTER", "SETSLOT", &slot];
    to.ask::<()>(&[&set[..], &["IMPORTING", &from_id]].concat()).await.expect("a reply");
    from.ask::<()>(&[&set[..], &["MIGRATING", &to_id]].concat()).await.expect("a reply");
    // Meanwhile the old master redirects with ASK; a script whose keys are in two places waits.
    let port = to.port.to_string();
    let mut moved = 0;
    loop {
        let keys: Vec<String> =
            from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "2"]).await.expect("a reply");
        if keys.is_empty() {
            break;
        }
        let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        migrate.extend(keys.iter().map(String::as_str));
        // A key that expired meanwhile is not moved; the reply is NOKEY.
        from.ask::<String>(&migrate).await.expect("a reply");
        moved += keys.len();
    }
    assert!(moved > 0, "the slot holds the keys of the nodes");
    // From now on the masters redirect with MOVED.
    for server in [to, from] {
        server.ask::<()>(&[&set[..], &["NODE", &to_id]].concat()).await.expect("a reply");
    }
    load.until_steady().await;
    load.check().await;
}

/// The master that holds the only cell with nodes, and the hash slot of that cell.
async fn owner_of_nodes(cluster: &Cluster) -> (usize, String) {
    let slot = cluster.servers[0].ask(&["CLUSTER", "KEYSLOT", "{c0}"]).await;
    let slot: usize = slot.expect("a reply");
    ((slot * MASTERS / SLOTS).min(MASTERS - 1), slot.to_string())
}
