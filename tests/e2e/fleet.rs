//! How the work is spread over the nodes of a fleet.
//!
//! Start at [`Fleet::join`]. Nodes are written from the protocol; jobs come from several clients.
//!
//! Bounds follow from chance: a choice that treats equal nodes equally spreads jobs at least as
//! evenly as independent draws would, and those leave the bounds less than once in a million runs.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::raw_node::{RawNode, ServingNode, register};
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job, within};
use crate::session::SessionClient;

/// Standard deviations that a share of many jobs stays within; beyond six lies one in 10⁹.
const DEVIATIONS: f64 = 6.0;

/// Long compared with what the messages take, so that a slow machine makes no node look slow.
const WORK: Duration = Duration::from_millis(60);

/// What a job costs while nobody knows how long jobs take here.
const UNKNOWN_MS: f64 = 1000.0;

/// Costs reach the cells with signs of life; this makes them frequent.
const SETTINGS: [(&str, &str); 2] =
    [("SCHEDULER__HEARTBEAT_INTERVAL_MS", "1000"), ("SCHEDULER__WAIT_MS", "15000")];

/// Equal nodes of four slots, and how many jobs each did.
struct Fleet<'a> {
    schedulers: Vec<&'a Scheduler>,
    nodes: Vec<ServingNode>,
}

impl<'a> Fleet<'a> {
    /// Registers so many nodes, in turn at each of the schedulers, and lets them do some jobs.
    async fn join(schedulers: &[&'a Scheduler], nodes: usize) -> Self {
        Self::join_with(schedulers, nodes, |_| WORK).await
    }

    async fn join_with(
        schedulers: &[&'a Scheduler],
        nodes: usize,
        work: fn(&Value) -> Duration,
    ) -> Self {
        let mut fleet = Self { schedulers: schedulers.to_vec(), nodes: vec![] };
        let numbers: Vec<usize> = (0..nodes).collect();
        for some in numbers.chunks(25) {
            let joined = some.iter().map(|n| async move {
                let s = schedulers[n % schedulers.len()];
                RawNode::join(s, &format!("n{n}"), 4).await.serve_each(4, work)
            });
            fleet.nodes.extend(join_all(joined).await);
        }
        // Some nodes with several jobs tell how long a job takes here.
        fleet.run((3 * nodes).max(80), 2 * nodes.min(40)).await;
        fleet.settle().await;
        fleet
    }

    /// Waits until the cells know how long jobs take here: before that, an unknown node and one
    /// that is known differ.
    async fn settle(&self) {
        within(async {
            loop {
                let costs: Vec<f64> = self.views().await.iter().map(cost).collect();
                let (least, most) =
                    costs.iter().fold((f64::MAX, 0.0), |(a, b), &c| (c.min(a), c.max(b)));
                if !costs.contains(&UNKNOWN_MS) && most <= 1.25 * least {
                    return;
                }
                // A node that seemed slow by chance is corrected by its next jobs.
                self.run(self.nodes.len(), 40).await;
            }
        })
        .await;
    }

    /// All nodes as the first scheduler shows them.
    async fn views(&self) -> Vec<Value> {
        let body = self.schedulers[0].get("/v1/nodes?limit=1000").await.body;
        let views = body["nodes"].as_array().expect("nodes").clone();
        assert_eq!(views.len(), self.nodes.len(), "{}", body["next"]);
        views
    }

    /// Sends so many jobs from so many clients; gives the number of jobs of each node.
    async fn run(&self, jobs: usize, clients: usize) -> BTreeMap<String, f64> {
        let clients = (0..clients).map(|client| async move {
            let http = self.schedulers[client % self.schedulers.len()].new_client();
            let mut nodes = vec![];
            for _ in (client..jobs).step_by(clients) {
                let reply = http.post("/v1/translate", job()).await;
                assert_eq!(reply.status, 200, "{}", reply.body);
                let node = reply.body["attempts"][0]["node_id"].as_str();
                nodes.push(node.expect("a node").to_owned());
            }
            nodes
        });
        let mut counts = BTreeMap::new();
        for node in join_all(clients).await.into_iter().flatten() {
            *counts.entry(node).or_insert(0.0) += 1.0;
        }
        counts
    }

    /// Each cell and each node gets its share, as far as chance allows.
    async fn check_shares(&self, jobs: usize, clients: usize) {
        let views = self.views().await;
        let counts = self.run(jobs, clients).await;
        let mut cells: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
        for view in &views {
            let count = counts.get(id(view)).copied().unwrap_or(0.0);
            let cell = cells.entry(view["cell"].as_u64().expect("a cell")).or_default();
            *cell = (cell.0 + 1.0, cell.1 + count);
            check_share(id(view), count, jobs, 1.0 / views.len() as f64);
        }
        assert!(cells.len() > 1, "{cells:?}");
        for (cell, (nodes, count)) in cells {
            check_share(&format!("cell {cell}"), count, jobs, nodes / views.len() as f64);
        }
    }
}

fn id(view: &Value) -> &str {
    view["node_id"].as_str().expect("an id")
}

fn cost(view: &Value) -> f64 {
    view["cost_ms"].as_f64().expect("a cost")
}

/// So many of all jobs are this share, as far as chance allows.
fn check_share(who: &str, count: f64, jobs: usize, share: f64) {
    let fair = jobs as f64 * share;
    // Small numbers are skewed: their upper tail is longer by about a sixth of the square.
    let most = DEVIATIONS * (fair * (1.0 - share)).sqrt() + DEVIATIONS * DEVIATIONS / 6.0;
    assert!((count - fair).abs() <= most, "{who} has {count} jobs, {fair:.0} ± {most:.0} are fair");
}

/// Requirements: CELL-08, PICK-12.
#[tokio::test]
async fn two_hundred_and_fifty_nodes_in_several_cells_share_the_work() {
    let s = Scheduler::with(&SETTINGS).await;
    let fleet = Fleet::join(&[&s], 250).await;
    fleet.check_shares(4000, 80).await;
}

/// Requirements: CELL-08.
#[tokio::test]
async fn the_last_of_a_hundred_and_one_nodes_is_like_the_others() {
    let s = Scheduler::with(&SETTINGS).await;
    let fleet = Fleet::join(&[&s], 101).await;
    fleet.check_shares(2000, 50).await;
}

/// Requirements: CELL-08, PICK-12.
#[tokio::test]
async fn nodes_of_two_instances_share_the_work_of_both() {
    let redis = Redis::start().await;
    let url = redis.url();
    let over = |id| [&SETTINGS[..], &[("STORE__URL", url.as_str()), ("INSTANCE__ID", id)]].concat();
    let (one, two) = (over("one"), over("two"));
    let (one, two) = tokio::join!(Scheduler::with(&one), Scheduler::with(&two));
    let fleet = Fleet::join(&[&one, &two], 60).await;
    fleet.check_shares(2000, 30).await;
}

/// Requirements: PICK-12.
#[tokio::test]
async fn a_node_that_joins_late_gets_its_share() {
    let s = Scheduler::with(&SETTINGS).await;
    let mut fleet = Fleet::join(&[&s], 10).await;
    fleet.nodes.push(RawNode::join(&s, "late", 4).await.serve(4, WORK));
    // Half and double the share are 5 and 10 standard deviations from it.
    let counts = fleet.run(1650, 12).await;
    let late = counts.get("late").copied().unwrap_or(0.0);
    assert!((75.0..=300.0).contains(&late), "{late} of 150: {counts:?}");
}

/// Requirements: PICK-12, PICK-19.
#[tokio::test]
async fn two_equal_nodes_get_three_of_six_jobs_each() {
    let s = Scheduler::with(&SETTINGS).await;
    let fleet = Fleet::join(&[&s], 2).await;
    for _ in 0..5 {
        let counts = fleet.run(6, 6).await;
        assert!(counts.values().all(|&count| count == 3.0), "{counts:?}");
        s.until_unused().await;
    }
}

/// Requirements: PICK-12, PICK-17.
#[tokio::test]
async fn turns_one_after_the_other_spread_over_ten_nodes() {
    let s = Scheduler::with(&SETTINGS).await;
    // As noisy as real work: the deviation of its logarithm is about 1.
    let varied = |assign: &Value| {
        let mut hash = DefaultHasher::new();
        assign["job_id"].as_str().hash(&mut hash);
        Duration::from_millis(2 << (hash.finish() % 5))
    };
    let fleet = Fleet::join_with(&[&s], 10, varied).await;
    let counts = fleet.run(400, 1).await;
    let shares = counts.values().map(|count| count / 400.0);
    let entropy = -shares.map(|share| share * share.ln()).sum::<f64>() / 10f64.ln();
    // By chance it is 0.995; below 0.97 less than once in ten million runs.
    assert!(entropy >= 0.97, "{entropy}: {counts:?}");
}

/// Requirements: PICK-12.
#[tokio::test]
async fn a_node_that_hears_people_speak_does_not_look_slow() {
    let s = Scheduler::with(&SETTINGS).await;
    let mut streaming = register("hears", 16);
    streaming["streaming"] = json!(true);
    let nodes = vec![
        RawNode::join_with(&s, streaming).await.serve(16, WORK),
        RawNode::join(&s, "whole", 16).await.serve(16, WORK),
    ];
    let fleet = Fleet { schedulers: vec![&s], nodes };
    let speakers = (0..12).map(|_| async {
        let mut client = SessionClient::start(&s).await;
        for _ in 0..4 {
            client.speak(100).await;
            tokio::time::sleep(Duration::from_millis(400)).await;
            client.turn(100).await;
            client.outcome().await;
        }
    });
    join_all(speakers).await;
    fleet.run(80, 4).await;
    fleet.settle().await;
    let counts = fleet.run(150, 1).await;
    check_share("the streaming node", counts.get("hears").copied().unwrap_or(0.0), 150, 0.5);
}
