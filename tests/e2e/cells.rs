//! How nodes fill the cells of a fleet, and that a job finds a slot in any of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::raw_node::register;
use crate::scheduler::{Scheduler, job_with};

/// The nodes send nothing and acknowledge nothing, which must not matter here.
const PATIENT: [(&str, &str); 3] = [
    ("SCHEDULER__HEARTBEAT_STALE_MS", "600000"),
    ("SCHEDULER__RUN_LEASE_MS", "600000"),
    ("SCHEDULER__RESERVATION_TTL_MS", "600000"),
];

/// The nodes of each cell.
async fn cells(s: &Scheduler) -> BTreeMap<u64, Vec<String>> {
    let mut cells: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let body = s.get("/v1/nodes").await.body;
    for node in body["nodes"].as_array().expect("nodes") {
        let id = node["node_id"].as_str().expect("an id").to_owned();
        cells.entry(node["cell"].as_u64().expect("a cell")).or_default().push(id);
    }
    cells
}

async fn join(s: &Scheduler, id: &str) {
    let reply = s.post("/v1/node/register", register(id, 1)).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
}

/// Requirements: CELL-03, CELL-04, CELL-05, CELL-06, CELL-07, PICK-15.
#[tokio::test]
async fn two_hundred_and_fifty_nodes_open_four_cells_and_a_job_finds_every_slot() {
    let s = Scheduler::with(&PATIENT).await;
    for n in 0..250 {
        join(&s, &format!("n{n}")).await;
    }
    let placed = cells(&s).await;
    let mut sizes: Vec<usize> = placed.values().map(Vec::len).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [52, 66, 66, 66], "a cell is opened for every 66 nodes");

    // The nodes of all cells but the last leave. A job finds one behind the gap.
    let at_once = || job_with(json!({"wait_ms": 0}));
    let last = *placed.keys().next_back().expect("a cell");
    let leaving: Vec<&String> =
        placed.iter().filter(|(cell, _)| **cell != last).flat_map(|(_, nodes)| nodes).collect();
    for id in &leaving {
        s.post("/v1/node/offline", json!({"node_id": id})).await;
    }
    let mut used = BTreeSet::new();
    let (_, node) = s.dispatch(at_once()).await;
    assert!(placed[&last].contains(&node), "{node} has left");
    used.insert(node);
    // They come again, in another order, and keep their cells.
    for id in leaving.iter().rev() {
        join(&s, id).await;
    }
    let sorted = |cells: BTreeMap<u64, Vec<String>>| -> Vec<(u64, BTreeSet<String>)> {
        cells.into_iter().map(|(cell, nodes)| (cell, nodes.into_iter().collect())).collect()
    };
    assert_eq!(sorted(cells(&s).await), sorted(placed));

    // Jobs that do not wait get the other 249 slots, whichever cell those are in.
    for _ in 0..249 {
        let (_, node) = s.dispatch(at_once()).await;
        assert!(used.insert(node.clone()), "{node} has one slot");
    }
    let refused = s.post("/v1/dispatch/f2f", at_once()).await;
    assert_eq!(refused.error(), (503, "ALL_CANDIDATES_FULL_OR_FAILED"), "{}", refused.body);
    let explained: Value = s.post("/v1/explain", at_once()).await.body;
    assert_eq!((&explained["capable"], &explained["free"]), (&json!(250), &json!(0)));
}
