//! The questions that the report answers.
//!
//! Start at [`all`]. A section is data: a row for each way to choose, a column for each load, and
//! how to show an outcome.
//!
//! Invariant: what a section shows comes from the scenarios that it names, with the first seed.

use lingua_core::Policy;

use super::baseline::Baseline;
use super::scenario::{
    Costs, DispatchRule, Languages, Scenario, Shape, WAIT_MS_UNLIMITED, Waiting,
};
use super::tally::QualityOutcome;
use super::theory;

/// The core's four policies by their names in the configuration.
const POLICIES: [(&str, Policy); 4] = [
    ("balanced", Policy::Balanced),
    ("least_loaded", Policy::LeastLoaded),
    ("sample", Policy::Sample { k: Policy::SAMPLE_K }),
    ("random", Policy::Random),
];

const LOADS: &[u16] = &[70, 80, 90, 95];

/// A question and the runs that answer it.
#[derive(Debug, Clone)]
pub struct Section {
    /// The question.
    pub title: &'static str,
    /// How to read a cell.
    pub legend: &'static str,
    /// One column for each.
    pub loads: &'static [u16],
    /// One row for each.
    pub rows: Vec<Row>,
    /// The text of a cell.
    pub show: fn(&QualityOutcome) -> String,
}

/// A way to choose nodes, and the scenario for it.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its name.
    pub label: String,
    /// The scenario, without load, number of jobs and seed.
    pub scenario: Scenario,
}

impl Section {
    /// Every run that the section shows.
    pub fn scenarios(&self) -> impl Iterator<Item = Scenario> {
        let loads = self.loads;
        self.rows.iter().flat_map(move |row| loads.iter().map(|&load| row.scenario.at(load)))
    }
}

/// All sections, in order.
pub fn all() -> Vec<Section> {
    vec![
        validation(),
        single_pool_loss(),
        small_pool_loss(),
        single_pool_queue(),
        overlapping_loss(),
        overlapping_queue(),
        many_cells(),
        two_level_bias(),
        spread(),
    ]
}

/// The fleet that theory has formulas for, without a queue.
pub fn theory_loss() -> Scenario {
    Scenario { shape: Shape::Theory, waiting: Waiting::NO, ..Scenario::default() }
}

/// The fleet that theory has formulas for, with a queue that nobody leaves.
pub fn theory_queue() -> Scenario {
    Scenario { waiting: Waiting::UpTo { wait_ms: WAIT_MS_UNLIMITED }, ..theory_loss() }
}

/// One pair, no queue.
pub fn single_loss() -> Scenario {
    Scenario { waiting: Waiting::NO, ..Scenario::default() }
}

/// One pair, a queue, and a chooser that sees everything: the lower bound.
pub fn single_lower_bound() -> Scenario {
    Scenario { dispatch: DispatchRule::Baseline(Baseline::LeastDelay), ..Scenario::default() }
}

/// Three pairs and a queue.
pub fn overlapping() -> Scenario {
    Scenario { languages: Languages::Overlapping, ..Scenario::default() }
}

/// Three pairs, no queue, last slots kept for rarer pairs.
pub fn overlapping_loss_kept() -> Scenario {
    Scenario { waiting: Waiting::NO_LAST_KEPT, ..overlapping() }
}

/// A pool of one node more than a cell holds, no queue.
pub fn hundred_and_one() -> Scenario {
    Scenario { nodes: 101, ..single_loss() }
}

/// Nodes that are all alike and mostly idle.
pub fn equal_nodes() -> Scenario {
    Scenario { shape: Shape::Equal, ..single_loss() }
}

fn validation() -> Section {
    let lost = percent(theory::erlang_b(100, 90.0));
    let wait_ms = 1000.0 * theory::erlang_c_wait_s(100, 90.0);
    Section {
        title: "1. Does the simulation agree with queueing theory?",
        legend: "100 equal nodes with one slot, exponential work; rejected, mean wait",
        loads: &[90],
        rows: vec![
            row(format!("no queue; Erlang B says {lost}"), theory_loss()),
            row(format!("queue; Erlang C says {wait_ms:.1} ms"), theory_queue()),
        ],
        show: |o| format!("{}, {:.1} ms", percent(o.rejected_share()), 1000.0 * o.wait_mean_s),
    }
}

fn single_pool_loss() -> Section {
    let base = single_loss();
    let mut rows = with_policies(base);
    rows.insert(1, row("balanced, costs learned", Scenario { costs: Costs::Learned, ..base }));
    rows.extend(with_baselines(base));
    Section {
        title: "2. One pair, 100 nodes, no queue",
        legend: "rejected, tries per job; response mean / p99",
        loads: LOADS,
        rows,
        show: show_loss,
    }
}

fn small_pool_loss() -> Section {
    Section {
        title: "2b. One pair, 20 nodes, no queue",
        legend: "rejected, tries per job; response mean / p99",
        loads: LOADS,
        rows: with_policies(Scenario { nodes: 20, ..single_loss() }),
        show: show_loss,
    }
}

fn single_pool_queue() -> Section {
    let base = Scenario::default();
    let mut rows = with_policies(base);
    rows.insert(1, row("balanced, costs learned", Scenario { costs: Costs::Learned, ..base }));
    rows.insert(0, row("lower bound: sees all, least delay", single_lower_bound()));
    Section {
        title: "3. One pair, 100 nodes, waits up to 2 s",
        legend: "timed out; wait mean / p99; response mean / p99",
        loads: LOADS,
        rows,
        show: show_queue,
    }
}

fn overlapping_loss() -> Section {
    let (any, kept) = (Scenario { waiting: Waiting::NO, ..overlapping() }, overlapping_loss_kept());
    let mut rows = with_policies(any);
    rows[0].label = "balanced, takes any slot".to_owned();
    rows.insert(0, row("balanced, last slots kept", kept));
    let learned = Scenario { costs: Costs::Learned, ..kept };
    rows.insert(1, row("balanced, last slots kept, costs learned", learned));
    rows.extend(with_baselines(any));
    Section {
        title: "4. Three overlapping pairs, 100 nodes, no queue",
        legend: "rejected; of the common / second / rare pair; response mean / p99",
        loads: LOADS,
        rows,
        show: |o| {
            let by_pair = [0, 1, 2].map(|pair| format!("{:.3}", 100.0 * o.rejected_share_of(pair)));
            format!("{}\n{} %\n{}", percent(o.rejected_share()), by_pair.join(" / "), response(o))
        },
    }
}

fn overlapping_queue() -> Section {
    let base = overlapping();
    let mut rows = with_policies(base);
    rows.insert(1, row("balanced, costs learned", Scenario { costs: Costs::Learned, ..base }));
    Section {
        title: "5. Three overlapping pairs, 100 nodes, waits up to 2 s",
        legend: "timed out; wait mean / p99; response mean / p99",
        loads: LOADS,
        rows,
        show: show_queue,
    }
}

fn many_cells() -> Section {
    let queue = Scenario { nodes: 1000, ..overlapping() };
    let any = Scenario { waiting: Waiting::NO, ..queue };
    let kept = Scenario { waiting: Waiting::NO_LAST_KEPT, ..queue };
    let with = |policy, instances, base| Scenario {
        dispatch: DispatchRule::Core { policy, instances },
        ..base
    };
    let learned = Scenario { costs: Costs::Learned, ..with(Policy::Balanced, 20, queue) };
    let sample = DispatchRule::Baseline(Baseline::SerialSample);
    Section {
        title: "6. Three overlapping pairs, 1000 nodes in 10 cells",
        legend: "rejected, rare pair rejected; tries per job; wait p99, response p99",
        loads: &[70, 90, 95],
        rows: vec![
            row("balanced, any slot", any),
            row("balanced, last slots kept", kept),
            row("balanced, queue", queue),
            row("balanced, queue, 20 instances", with(Policy::Balanced, 20, queue)),
            row("the same, costs learned", learned),
            row("least_loaded, any slot", with(Policy::LeastLoaded, 1, any)),
            row("documents: 20 members, serial tries", Scenario { dispatch: sample, ..any }),
        ],
        show: |o| {
            let (all, rare) = (percent(o.rejected_share()), percent(o.rejected_share_of(2)));
            let (wait_ms, response_s) = (1000.0 * o.wait_p99_s, o.response_p99_s);
            format!("{all}, {rare}\n{:.2} tries\n{wait_ms:.0} ms, {response_s:.2} s", o.tries_mean)
        },
    }
}

fn two_level_bias() -> Section {
    let base = hundred_and_one();
    let with = |baseline| Scenario { dispatch: DispatchRule::Baseline(baseline), ..base };
    Section {
        title: "7. One pair, 101 nodes: the last one is a hundred of its own",
        legend: "rejected, tries per job; response mean / p99",
        loads: &[30, 50, 70],
        rows: vec![
            row("documents: two-level random", with(Baseline::TwoLevelRandom)),
            row("random node, one try", with(Baseline::RandomNode)),
            row("balanced", base),
        ],
        show: show_loss,
    }
}

fn spread() -> Section {
    let base = equal_nodes();
    let mut rows = with_policies(base);
    rows.insert(1, row("balanced, costs learned", Scenario { costs: Costs::Learned, ..base }));
    Section {
        title: "8. Does a session settle on one node? 100 equal nodes, low load",
        legend: "entropy of the nodes of the least spread session, 1 is even; \
                 two turns in a row on one node",
        loads: &[5, 10, 30],
        rows,
        show: |o| format!("{:.4}, {}", o.spread_min, percent(o.same_node_share)),
    }
}

fn row(label: impl Into<String>, scenario: Scenario) -> Row {
    Row { label: label.into(), scenario }
}

fn with_policies(base: Scenario) -> Vec<Row> {
    let with =
        |(name, policy)| row(name, Scenario { dispatch: DispatchRule::core(policy), ..base });
    POLICIES.into_iter().map(with).collect()
}

fn with_baselines(base: Scenario) -> [Row; 3] {
    [
        ("documents: 20 members, serial tries", Baseline::SerialSample),
        ("documents: two-level random", Baseline::TwoLevelRandom),
        ("random node, one try", Baseline::RandomNode),
    ]
    .map(|(name, baseline)| {
        row(name, Scenario { dispatch: DispatchRule::Baseline(baseline), ..base })
    })
}

fn show_loss(o: &QualityOutcome) -> String {
    format!("{}, {:.2}\n{}", percent(o.rejected_share()), o.tries_mean, response(o))
}

fn show_queue(o: &QualityOutcome) -> String {
    let (mean_ms, p99_ms) = (1000.0 * o.wait_mean_s, 1000.0 * o.wait_p99_s);
    let timed_out = percent(o.rejected_share());
    format!("{timed_out}\n{mean_ms:.2} / {p99_ms:.0} ms\n{}", response(o))
}

fn response(o: &QualityOutcome) -> String {
    format!("{:.2} / {:.2} s", o.response_mean_s, o.response_p99_s)
}

fn percent(share: f64) -> String {
    format!("{:.3} %", 100.0 * share)
}
