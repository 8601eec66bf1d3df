//! Goals for nodes that join or come back while the fleet works, and for a fleet that is all new.
//!
//! Start at [`goals`]. A node is watched from the event on, in windows in which it should get
//! [`WINDOW_JOBS`] jobs: from its second minute on it gets 50 to 150 % of what the average other
//! node gets, and never more than 200 %.

use std::collections::BTreeMap;

use super::fleet::SimFleet;
use super::fleets::{FleetGoal, equal, with_instances};
use super::scenario::{CellSizes, Scenario};
use super::world::{FleetEvent, Placed, run_with};

/// Jobs in a window in which a node's share is measured. Independent draws would move a share by
/// more than half less than once in ten million windows.
const WINDOW_JOBS: f64 = 120.0;

/// All goals for nodes that are new.
pub(super) fn goals() -> Vec<FleetGoal> {
    let later = |what, measure| FleetGoal::at_most(50.0, "%", what, measure);
    let most = |what, measure| FleetGoal::at_most(200.0, "%", what, measure);
    vec![
        later("new node, 60 ms: off its share after a minute", |s| joined(s, 60, 30).off_later()),
        most("the same: highest share", |s| joined(s, 60, 30).highest),
        later("new node, 60 ms, load 0.80: off its share after a minute", |s| {
            joined(s, 60, 80).off_later()
        })
        .long(),
        most("the same: highest share", |s| joined(s, 60, 80).highest).long(),
        later("new node, 1 s, load 0.80: off its share after a minute", |s| {
            joined(s, 1000, 80).off_later()
        })
        .long(),
        most("the same: highest share", |s| joined(s, 1000, 80).highest).long(),
        later("new node, 2.5 s: off its share after a minute", |s| joined(s, 2500, 30).off_later())
            .long(),
        most("the same: highest share", |s| joined(s, 2500, 30).highest).long(),
        later("node that was away, 60 ms: off its share after a minute", |s| {
            returned(s).off_later()
        }),
        most("the same: highest share", |s| returned(s).highest),
        later("new node, cells of 100, 100, 50, 20 instances: off its share", |s| {
            among_cells(s, FleetEvent::Join).off_later()
        })
        .long(),
        most("the same: highest share", |s| among_cells(s, FleetEvent::Join).highest).long(),
        later("node that was away, the same fleet: off its share", |s| {
            among_cells(s, FleetEvent::Return).off_later()
        })
        .long(),
        most("the same: highest share", |s| among_cells(s, FleetEvent::Return).highest).long(),
        later("restart: a node is off its share after a minute", |s| after_restart(s).off_later()),
        most("restart: highest share of a node", |s| after_restart(s).highest),
    ]
}

/// A node's jobs in each window, in percent of those of the average other node.
struct WindowShares {
    /// The least, from the second minute on.
    least: f64,
    /// The highest of all.
    highest: f64,
    /// The highest from the second minute on.
    highest_later: f64,
}

impl WindowShares {
    /// By how many percent the share is off, at most, from the second minute on.
    fn off_later(&self) -> f64 {
        f64::max(100.0 - self.least, self.highest_later - 100.0)
    }
}

/// The shares of a node from `from_s` on, in windows of [`WINDOW_JOBS`] expected jobs.
fn window_shares(placed: &[Placed], node: usize, nodes: usize, from_s: f64) -> WindowShares {
    let (end_s, count) = placed
        .iter()
        .filter(|p| p.at_s >= from_s)
        .fold((from_s, 0), |(end, n), p| (p.at_s.max(end), n + 1));
    let per_s = f64::from(count) / (end_s - from_s) / nodes as f64;
    let window_s = (WINDOW_JOBS / per_s).max(10.0);
    let mut windows: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for p in placed.iter().filter(|p| p.at_s >= from_s) {
        let window = windows.entry(((p.at_s - from_s) / window_s) as usize).or_default();
        match p.node == node {
            true => window.0 += 1.0,
            false => window.1 += 1.0 / (nodes - 1) as f64,
        }
    }
    // The last one is cut off.
    windows.pop_last();
    let share = |(own, others): (f64, f64)| 100.0 * own / others;
    let later: Vec<f64> = windows
        .iter()
        .filter(|(at, _)| **at as f64 * window_s >= 60.0)
        .map(|(_, window)| share(*window))
        .collect();
    let highest = |shares: &mut dyn Iterator<Item = f64>| shares.fold(0.0, f64::max);
    WindowShares {
        least: later.iter().copied().fold(f64::INFINITY, f64::min),
        highest: highest(&mut windows.values().map(|window| share(*window))),
        highest_later: highest(&mut later.iter().copied()),
    }
}

/// A warm fleet of 21 nodes, of which the last is watched: seconds of the whole run and of the
/// event, and the scenario.
pub(super) fn watched(seed: u64, work_ms: u32, load_percent: u16) -> (f64, Scenario) {
    let scenario = Scenario { work_ms, ..equal(21, CellSizes::Hundreds) }.at(load_percent);
    let per_s = scenario.load() * SimFleet::new(&scenario).capacity() * 1000.0 / f64::from(work_ms);
    // Some minutes before the event, and several windows after it.
    let (before_s, after_s) = (200.0, 300.0 + 5.0 * WINDOW_JOBS * 21.0 / per_s);
    let jobs = ((before_s + after_s) * per_s) as u32;
    (before_s, scenario.seeded(seed).with_jobs(jobs))
}

fn joined(seed: u64, work_ms: u32, load_percent: u16) -> WindowShares {
    let (at_s, scenario) = watched(seed, work_ms, load_percent);
    let events = [(0.0, FleetEvent::Leave(20)), (at_s, FleetEvent::Join(20))];
    window_shares(&run_with(&scenario, &events).1, 20, 21, at_s)
}

fn returned(seed: u64) -> WindowShares {
    let (at_s, scenario) = watched(seed, 60, 30);
    let events = [(at_s - 30.0, FleetEvent::Leave(20)), (at_s, FleetEvent::Return(20))];
    window_shares(&run_with(&scenario, &events).1, 20, 21, at_s)
}

/// A node of the smallest of three cells, away for 30 s; 20 instances ask the cells.
fn among_cells(seed: u64, comes: fn(usize) -> FleetEvent) -> WindowShares {
    const NODES: u32 = 250;
    let (node, at_s) = (NODES as usize - 1, 200.0);
    let cells = equal(NODES, CellSizes::Filled(&[100, 100, 50])).at(80);
    let scenario = with_instances(cells, 20).seeded(seed);
    let per_s = scenario.load() * SimFleet::new(&scenario).capacity();
    let after_s = 300.0 + 5.0 * WINDOW_JOBS * f64::from(NODES) / per_s;
    let scenario = scenario.with_jobs(((at_s + after_s) * per_s) as u32);
    let events = [(at_s - 30.0, FleetEvent::Leave(node)), (at_s, comes(node))];
    window_shares(&run_with(&scenario, &events).1, node, NODES as usize, at_s)
}

/// The extremes of all nodes after a restart of everything.
fn after_restart(seed: u64) -> WindowShares {
    let (at_s, scenario) = watched(seed, 60, 50);
    let (_, placed) = run_with(&scenario, &[(at_s, FleetEvent::Restart)]);
    let shares = (0..21).map(|node| window_shares(&placed, node, 21, at_s));
    let first = WindowShares { least: f64::INFINITY, highest: 0.0, highest_later: 0.0 };
    shares.fold(first, |all, one| WindowShares {
        least: all.least.min(one.least),
        highest: all.highest.max(one.highest),
        highest_later: all.highest_later.max(one.highest_later),
    })
}
