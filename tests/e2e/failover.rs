//! The store fails over while jobs run: Sentinel promotes a replica, a Cluster loses a master.
//!
//! Meanwhile new work is refused with `SCHEDULER_DEPENDENCY_DOWN` or accepted; what was accepted ends once, and all goes on without a
//! restart.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::clustered::{Cluster, MASTERS, SLOTS};
use crate::watched::Watched;
use crate::world::{Scheduler, binary, job_with, request, within};

/// How many clients ask at once, each of them one job after the other.
const CLIENTS: usize = 4;

/// So many jobs in a row have to be done, before the failover and after it.
const IN_A_ROW: usize = 40;

/// Two instances over one store, with nodes, and clients that ask without end.
struct Load {
    instances: [Scheduler; 2],
    nodes: Vec<Child>,
    /// What was answered, in turn.
    answers: Arc<Mutex<Vec<(u16, Value)>>>,
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
                // What a slot could not be given back for is over soon.
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
            let is_ready = |reply: &crate::world::Reply| reply.body["state"] == "ready";
            instance.until_it(&format!("/v1/nodes/{id}"), is_ready).await;
        }
        let answers = Arc::new(Mutex::new(vec![]));
        let mut clients = vec![];
        for client in 0..CLIENTS {
            let address = instances[client % 2].address.clone();
            let answers = Arc::clone(&answers);
            clients.push(tokio::spawn(async move {
                loop {
                    let body = job_with(serde_json::json!({"wait_ms": 3000})).to_string();
                    let reply = request(&address, "POST", "/v1/translate", &[], &body).await;
                    answers.lock().push((reply.status, reply.body));
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }));
        }
        let load = Self { instances, nodes, answers, clients };
        load.goes_well().await;
        load
    }

    /// Waits until the last answers were all results.
    async fn goes_well(&self) {
        let from = self.answers.lock().len();
        let is_done = |(status, body): &(u16, Value)| *status == 200 && body["state"] == "DONE";
        within(async {
            loop {
                let row =
                    self.answers.lock()[from..].iter().rev().take_while(|a| is_done(a)).count();
                if row >= IN_A_ROW {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    /// No more jobs: what was answered was right, and is what both instances say.
    async fn ends_well(mut self) {
        for client in self.clients.drain(..) {
            client.abort();
        }
        let answers = std::mem::take(&mut *self.answers.lock());
        let (mut done, mut refused) = (0, 0);
        for (status, body) in &answers {
            let Some(id) = body["job_id"].as_str() else {
                let error = body["error"].as_str().unwrap_or_default();
                assert_eq!((*status, error), (503, "SCHEDULER_DEPENDENCY_DOWN"), "{body}");
                refused += 1;
                continue;
            };
            let is_over = |reply: &crate::world::Reply| {
                ["DONE", "FAILED"].iter().any(|state| reply.body["state"] == *state)
            };
            let path = format!("/v1/jobs/{id}");
            let states = [
                self.instances[0].until_it(&path, is_over).await.body["state"].clone(),
                self.instances[1].until_it(&path, is_over).await.body["state"].clone(),
            ];
            assert_eq!(states[0], states[1], "{id} ended once");
            if body["state"] == "DONE" {
                assert_eq!(states[0], "DONE", "{id} was said to be done");
            }
            done += usize::from(states[0] == "DONE");
        }
        assert!(done >= 2 * IN_A_ROW, "{done} done, {refused} refused of {}", answers.len());
        within(async {
            while self.instances[0].used().await > 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        for node in &mut self.nodes {
            assert!(node.try_wait().expect("asked").is_none(), "no node had to be started again");
        }
    }
}

#[tokio::test]
async fn sentinel_promotes_a_replica_and_work_goes_on() {
    let mut watched = Watched::start().await;
    let load = Load::start(&watched.url()).await;
    watched.master.kill();
    let is_master = |info: &str| info.contains("role:master");
    watched.replica.ask_until(&["INFO", "replication"], is_master).await;
    load.goes_well().await;
    load.ends_well().await;
}

#[tokio::test]
async fn a_cluster_loses_the_master_of_all_nodes_and_work_goes_on() {
    let mut cluster = Cluster::start().await;
    let load = Load::start(&cluster.url()).await;
    let (owner, _) = owner_of_nodes(&cluster).await;
    cluster.servers[owner].kill();
    let is_master = |info: &str| info.contains("role:master");
    cluster.servers[MASTERS + owner].ask_until(&["INFO", "replication"], is_master).await;
    load.goes_well().await;
    load.ends_well().await;
}

#[tokio::test]
async fn all_nodes_move_to_another_master_of_a_cluster_and_work_goes_on() {
    let cluster = Cluster::start().await;
    let load = Load::start(&cluster.url()).await;
    let (from, slot) = owner_of_nodes(&cluster).await;
    let (from, to) = (&cluster.servers[from], &cluster.servers[(from + 1) % MASTERS]);
    let from_id: String = from.ask(&["CLUSTER", "MYID"]).await.expect("asked");
    let to_id: String = to.ask(&["CLUSTER", "MYID"]).await.expect("asked");
    let set = ["CLUSTER", "SETSLOT", &slot];
    to.ask::<()>(&[&set[..], &["IMPORTING", &from_id]].concat()).await.expect("asked");
    from.ask::<()>(&[&set[..], &["MIGRATING", &to_id]].concat()).await.expect("asked");
    // ASK: a key that has gone is looked for there; a script whose keys are in two places has to wait.
    let port = to.port.to_string();
    let mut moved = 0;
    loop {
        let keys: Vec<String> =
            from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "2"]).await.expect("asked");
        if keys.is_empty() {
            break;
        }
        let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        migrate.extend(keys.iter().map(String::as_str));
        // A key that has run out meanwhile needs not to be moved.
        from.ask::<String>(&migrate).await.expect("it moves");
        moved += keys.len();
    }
    assert!(moved > 0, "the nodes are there");
    // MOVED: everybody is told where they are now.
    for server in [to, from] {
        server.ask::<()>(&[&set[..], &["NODE", &to_id]].concat()).await.expect("asked");
    }
    load.goes_well().await;
    load.ends_well().await;
}

/// Which master has all nodes, and their slot: they are in one cell.
async fn owner_of_nodes(cluster: &Cluster) -> (usize, String) {
    let slot = cluster.servers[0].ask(&["CLUSTER", "KEYSLOT", "{c0}"]).await;
    let slot: usize = slot.expect("asked");
    ((slot * MASTERS / SLOTS).min(MASTERS - 1), slot.to_string())
}
