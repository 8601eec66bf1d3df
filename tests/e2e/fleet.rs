//! How the work is spread over the nodes of a fleet.
//!
//! Start at [`Fleet::join`]. Nodes are written from the protocol; jobs come from several clients.
//!
//! A cell gets its share of the jobs up to a tenth. A node's bounds follow from chance: a choice
//! that treats equal nodes equally spreads jobs at least as evenly as independent draws would, and
//! those leave the bounds less than once in a million runs.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::raw_node::{RawNode, ServingNode, register};
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job, within};
use crate::session::SessionClient;

/// How far a cell's jobs may be off its share. With [`JOBS`] that is five standard deviations of
/// independent draws, and more.
const CELL_OFF: f64 = 0.1;

/// So improbable is what is not put down to chance: the logarithm of 10⁹.
const SURPRISE: f64 = 20.7;

/// Jobs of a run with several cells.
const JOBS: usize = 12_000;

/// Long compared with what the messages take, so that a slow machine makes no node look slow.
const WORK: Duration = Duration::from_millis(60);

/// Longer than [`UNKNOWN_MS`], beyond the band within which costs count as equal.
const LONG_WORK: Duration = Duration::from_millis(1500);

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
        let fleet = Self::connect(schedulers, nodes, |_| 4, work).await;
        // Some nodes with several jobs tell how long a job takes here.
        fleet.run((3 * nodes).max(80), 2 * nodes.min(40)).await;
        fleet.settle().await;
        fleet
    }

    /// Registers so many nodes with so many slots each.
    async fn connect(
        schedulers: &[&'a Scheduler],
        nodes: usize,
        slots: fn(usize) -> usize,
        work: fn(&Value) -> Duration,
    ) -> Self {
        let mut fleet = Self { schedulers: schedulers.to_vec(), nodes: vec![] };
        let numbers: Vec<usize> = (0..nodes).collect();
        for some in numbers.chunks(25) {
            let joined = some.iter().map(|&n| async move {
                let s = schedulers[n % schedulers.len()];
                let node = RawNode::join(s, &format!("n{n}"), slots(n)).await;
                node.serve_each(slots(n), work)
            });
            fleet.nodes.extend(join_all(joined).await);
        }
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

    /// Each cell gets its share up to a tenth, and each node as far as chance allows.
    async fn check_shares(&self, clients: usize) {
        let views = self.views().await;
        let counts = self.run(JOBS, clients).await;
        for view in &views {
            check_chance(id(view), jobs_of(&counts, id(view)), JOBS as f64 / views.len() as f64);
        }
        check_cells(&views, &counts, |_| 1.0);
    }
}

/// Each of several cells has its share of the jobs up to a tenth, by what its nodes weigh.
fn check_cells(views: &[Value], counts: &BTreeMap<String, f64>, weight: fn(&Value) -> f64) {
    let mut cells: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for view in views {
        let cell = cells.entry(view["cell"].as_u64().expect("a cell")).or_default();
        *cell = (cell.0 + weight(view), cell.1 + jobs_of(counts, id(view)));
    }
    assert!(cells.len() > 1, "{cells:?}");
    let all = cells.values().fold((0.0, 0.0), |all, cell| (all.0 + cell.0, all.1 + cell.1));
    for (cell, (weight, jobs)) in &cells {
        let fair = all.1 * weight / all.0;
        assert!((jobs / fair - 1.0).abs() <= CELL_OFF, "cell {cell}: {jobs} of {fair:.0}");
    }
}

fn jobs_of(counts: &BTreeMap<String, f64>, node: &str) -> f64 {
    counts.get(node).copied().unwrap_or(0.0)
}

fn id(view: &Value) -> &str {
    view["node_id"].as_str().expect("an id")
}

fn cost(view: &Value) -> f64 {
    view["cost_ms"].as_f64().expect("a cost")
}

/// A count that should be `fair` is not off by more than chance explains: Chernoff's bound for
/// Poisson's distribution, which is close for small numbers, too.
#[track_caller]
fn check_chance(who: &str, count: f64, fair: f64) {
    let surprise = match count > 0.0 {
        true => fair - count + count * (count / fair).ln(),
        false => fair,
    };
    assert!(surprise <= SURPRISE, "{who} has {count} jobs, {fair:.0} are fair");
    // With so few jobs nothing could be said of a node that gets none.
    assert!(fair > SURPRISE, "{fair} jobs say nothing");
}

/// The share of a node that has just come is never more than double, nor less than half.
#[track_caller]
fn check_newcomer(count: f64, fair: f64) {
    assert!(count >= 0.5 * fair && count <= 2.0 * fair, "{count} jobs, {fair:.0} are fair");
}

/// Requirements: CELL-08, PICK-12.
#[tokio::test]
async fn two_hundred_and_fifty_nodes_in_several_cells_share_the_work() {
    let s = Scheduler::with(&SETTINGS).await;
    let fleet = Fleet::join(&[&s], 250).await;
    fleet.check_shares(200).await;
}

/// Requirements: CELL-08.
#[tokio::test]
async fn the_last_of_a_hundred_and_one_nodes_is_like_the_others() {
    let s = Scheduler::with(&SETTINGS).await;
    let fleet = Fleet::join(&[&s], 101).await;
    fleet.check_shares(100).await;
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
    fleet.check_shares(60).await;
}

/// Requirements: PICK-12.
#[tokio::test]
async fn a_node_that_joins_late_gets_its_share() {
    let s = Scheduler::with(&SETTINGS).await;
    let mut fleet = Fleet::join(&[&s], 10).await;
    fleet.nodes.push(RawNode::join(&s, "late", 4).await.serve(4, WORK));
    // Half and double the share are 6 and 12 standard deviations from it.
    check_newcomer(jobs_of(&fleet.run(1650, 12).await, "late"), 150.0);
}

/// Requirements: PICK-12.
#[tokio::test]
async fn a_node_that_reconnects_keeps_its_share() {
    let s = Scheduler::with(&SETTINGS).await;
    let mut fleet = Fleet::join(&[&s], 10).await;
    for _ in 0..2 {
        fleet.nodes[3].kill();
        s.until_reply("/v1/nodes/n3", |reply| reply.body["state"] == "offline").await;
        fleet.run(100, 12).await;
        fleet.nodes[3] = RawNode::join(&s, "n3", 4).await.serve(4, WORK);
        check_newcomer(jobs_of(&fleet.run(1500, 12).await, "n3"), 150.0);
    }
}

/// Jobs that take longer than what an unknown node is taken for.
///
/// Requirements: PICK-12.
#[tokio::test]
async fn a_node_that_joins_late_is_not_flooded_with_long_jobs() {
    let s = Scheduler::with(&SETTINGS).await;
    let mut fleet = Fleet::join_with(&[&s], 8, |_| LONG_WORK).await;
    fleet.nodes.push(RawNode::join(&s, "late", 4).await.serve(4, LONG_WORK));
    let mut late = 0.0;
    for _ in 0..4 {
        // There is a free node for each of these jobs.
        let now = jobs_of(&fleet.run(9, 9).await, "late");
        assert!(now <= 2.0, "{now} of 9 jobs");
        late += now;
    }
    check_newcomer(late, 4.0);
}

/// Requirements: CELL-08, PICK-12.
#[tokio::test]
async fn nodes_and_cells_share_the_work_by_their_slots() {
    let s = Scheduler::with(&SETTINGS).await;
    // Long enough that all slots are taken most of the time.
    let work = |_: &Value| Duration::from_millis(400);
    let slots = |n: usize| 2 << (n % 3);
    let fleet = Fleet::connect(&[&s], 100, slots, work).await;
    fleet.run(800, 400).await;
    let views = fleet.views().await;
    let counts = fleet.run(6000, 600).await;
    let max = |view: &Value| view["max"].as_f64().expect("slots");
    check_cells(&views, &counts, max);
    let all: f64 = views.iter().map(max).sum();
    for slots in [2.0, 4.0, 8.0] {
        let alike: Vec<&Value> = views.iter().filter(|view| max(view) == slots).collect();
        let jobs: f64 = alike.iter().map(|view| jobs_of(&counts, id(view))).sum();
        let fair = 6000.0 * slots * alike.len() as f64 / all;
        assert!((jobs / fair - 1.0).abs() <= 0.1, "{slots} slots: {jobs} of {fair:.0}");
        for view in alike {
            check_chance(id(view), jobs_of(&counts, id(view)), 6000.0 * slots / all);
        }
    }
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
    tokio::join!(check_turns("balanced"), check_turns("sample"));
}

async fn check_turns(policy: &str) {
    let settings = [&SETTINGS[..], &[("SELECTION__POLICY", policy)]].concat();
    let s = Scheduler::with(&settings).await;
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
    assert!(entropy >= 0.97, "{policy}: {entropy}: {counts:?}");
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
    check_chance("the streaming node", jobs_of(&fleet.run(150, 1).await, "hears"), 75.0);
}
