//! The nodes: speeds, slots, languages.
//!
//! Start at [`SimFleet::new`]. Speeds, slots and languages are stratified, not drawn: each ten
//! nodes have the same mixture of speeds and languages, and over each hundred these do not depend
//! on each other, so that one run differs from the next by its jobs only. It matters: a fleet whose
//! rare nodes have 19 % of the capacity instead of 20 % rejects twice as many rare jobs.
//!
//! Invariant: a node of class `c` serves the pairs `0..=c`; each class has the same share of the
//! capacity as of the nodes.

use lingua_core::{Capabilities, Lang, LangPair, LangSet, Nmt, Profile, ServiceSet};

use super::scenario::{Languages, Scenario, Shape};

/// How many pairs there are: common, second, rare.
pub const PAIRS: usize = 3;

/// Each job that a node already runs makes all of them this much slower.
pub const CONTENTION: f64 = 0.15;

/// Source languages by pair; the target is always English.
const SOURCES: [&str; PAIRS] = ["zh", "ja", "sw"];
const TARGET: &str = "en";

/// One node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeSpec {
    /// Seconds of work that it does in a second when it has one job.
    pub speed: f64,
    /// How many jobs it takes at once.
    pub slots: u16,
    /// How many pairs it serves beyond the common one.
    pub class: usize,
}

/// All nodes.
#[derive(Debug, Clone)]
pub struct SimFleet {
    /// The nodes in order.
    pub specs: Vec<NodeSpec>,
    /// For each pair, the nodes that serve it.
    pub capable: [Vec<usize>; PAIRS],
}

impl SimFleet {
    /// The fleet that a scenario asks for.
    pub fn new(scenario: &Scenario) -> Self {
        let specs: Vec<NodeSpec> = (0..scenario.nodes as usize)
            .map(|i| {
                let (speed, slots) = match scenario.shape {
                    Shape::Unequal => unequal(i),
                    Shape::Equal => (1.0, 4),
                    Shape::Theory => (1.0, 1),
                };
                let class = match scenario.languages {
                    Languages::One => 0,
                    Languages::Overlapping => class(i),
                };
                NodeSpec { speed, slots, class }
            })
            .collect();
        let serving = |pair| (0..specs.len()).filter(|&i| specs[i].class >= pair).collect();
        let capable = std::array::from_fn(serving);
        Self { specs, capable }
    }

    /// Seconds of work that the nodes do in a second when all slots are taken.
    pub fn capacity(&self) -> f64 {
        let full =
            |spec: &NodeSpec| f64::from(spec.slots) * spec.speed / slowdown(spec.slots.into());
        self.specs.iter().map(full).sum()
    }
}

/// By how much `jobs` jobs on a node are slower than one alone.
pub fn slowdown(jobs: usize) -> f64 {
    1.0 + CONTENTION * (jobs.max(1) - 1) as f64
}

/// The pairs as the core names them.
pub fn lang_pairs() -> [LangPair; PAIRS] {
    SOURCES.map(|source| LangPair::known(lang(source), lang(TARGET)))
}

/// What a node of this class registers with.
pub fn profile(spec: &NodeSpec) -> Profile {
    let sources = || SOURCES[..=spec.class].iter().map(|tag| lang(tag));
    let nmt = Nmt::pairs(sources().map(|source| (source, lang(TARGET))));
    let (asr, semantic, tts) =
        (sources().collect(), sources().collect(), LangSet::from_iter([lang(TARGET)]));
    let capabilities = Capabilities::new(asr, semantic, tts, nmt, ServiceSet::ALL)
        .expect("no list is empty or long");
    Profile::new(capabilities, spec.slots.into(), true).expect("every node has a few slots")
}

fn lang(tag: &str) -> Lang {
    Lang::new(tag).expect("the tags above are well-formed")
}

/// Half of the nodes serve one pair, 30 % two, 20 % all three.
fn class(i: usize) -> usize {
    match i % 10 {
        0..5 => 0,
        5..8 => 1,
        _ => 2,
    }
}

/// 30 % are slow, half normal, 20 % fast; the faster have more slots, but 30 % of all, a tenth of
/// each speed, have four whatever their speed. The multiplier makes a Latin square of class and
/// speed.
fn unequal(i: usize) -> (f64, u16) {
    match (7 * (i % 10) + i / 10) % 10 {
        0..2 => (0.5, 2),
        2 => (0.5, 4),
        3..8 => (1.0, 4),
        8 => (2.0, 4),
        _ => (2.0, 8),
    }
}

#[cfg(test)]
mod tests {
    use lingua_core::SemanticRule;

    use super::*;

    fn overlapping(nodes: u32) -> SimFleet {
        SimFleet::new(&Scenario { nodes, languages: Languages::Overlapping, ..Scenario::default() })
    }

    #[test]
    fn a_hundred_nodes_have_the_shares_that_the_yardstick_asks_for() {
        let fleet = overlapping(100);
        let share =
            |test: &dyn Fn(&NodeSpec) -> bool| fleet.specs.iter().filter(|s| test(s)).count();
        assert_eq!([0, 1, 2].map(|class| share(&|s| s.class == class)), [50, 30, 20]);
        assert_eq!([0.5, 1.0, 2.0].map(|speed| share(&|s| s.speed == speed)), [30, 50, 20]);
        assert_eq!([2, 4, 8].map(|slots| share(&|s| s.slots == slots)), [20, 70, 10]);
        assert_eq!(fleet.capable.each_ref().map(Vec::len), [100, 50, 20]);
    }

    #[test]
    fn each_class_has_its_share_of_the_capacity() {
        let fleet = overlapping(100);
        for (class, share) in [(0, 0.5), (1, 0.3), (2, 0.2)] {
            let specs = fleet.specs.iter().copied().filter(|s| s.class == class).collect();
            let part = SimFleet { specs, capable: Default::default() };
            assert!((part.capacity() / fleet.capacity() - share).abs() < 1e-9);
        }
    }

    #[test]
    fn the_core_sees_one_two_and_three_pairs() {
        let pairs_of = |class| {
            let profile = profile(&NodeSpec { speed: 1.0, slots: 4, class });
            profile.capabilities().pair_count(SemanticRule::default())
        };
        assert_eq!([0, 1, 2].map(pairs_of), [1, 2, 3]);
    }
}
