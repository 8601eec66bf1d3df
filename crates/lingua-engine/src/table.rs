//! The pool table: the pools, their nodes and their free slots.
//!
//! Start at `make`. The table is for people and metrics; no job waits for it. The leader makes it
//! from the cells and publishes it; every instance shows the one that was published last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lingua_core::node::Resource;
use lingua_core::{
    Capabilities, Lang, LangPair, Needs, Nmt, NodeState, Profile, Rules, SemanticRule, Source,
};
use lingua_store::contract::CellRecord;
use serde::{Deserialize, Serialize};

use crate::cost::{JUDGE_FROM_JOBS, median_ms};
use crate::options::PoolOptions;
use crate::versioned::{self, RecordError};

/// A usual cost that differs by less than this part is not worth another table.
const TYPICAL_NEAR_PART: u32 = 20;

/// One pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pool {
    /// `zh:en`, or `*:en` for the mixed pool.
    pub pair: String,
    /// How many nodes serve it.
    pub nodes: u32,
    /// How many of them also speak the target language.
    #[serde(default)]
    pub speech: u32,
    /// How many of those take jobs now.
    pub ready: u32,
    /// Free slots of the ready nodes.
    pub free: u32,
    /// All slots of the ready nodes.
    pub slots: u32,
}

/// A pool that had nodes within the last hour and has none now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmptyPool {
    /// `zh:en`, or `*:en` for the mixed pool.
    pub pair: String,
    /// When a table first lacked it, in milliseconds since the epoch.
    pub since_ms: u64,
}

/// How long a pool without nodes is remembered.
const EMPTY_POOL_MS: u64 = 3_600_000;

/// Most pools without nodes that are remembered.
const EMPTY_POOLS_MAX: usize = 200;

/// The pools of the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct PoolTable {
    /// The instance that made it.
    pub generated_by: String,
    /// When it was made, in milliseconds since the epoch.
    pub generated_ms: u64,
    /// The exact pools, the largest first, then the mixed ones.
    pub pools: Vec<Pool>,
    /// How many exact pools were left out because they are too small or too many.
    pub left_out: u32,
    /// Pools that had nodes within the last hour and have none now.
    #[serde(default)]
    pub empty: Vec<EmptyPool>,
    /// How many ready nodes get no jobs because of their load, by resource.
    #[serde(default)]
    pub overloaded: BTreeMap<String, u32>,
    /// How many nodes are in each state.
    pub nodes: BTreeMap<String, u32>,
    /// Slots that are taken in the fleet.
    pub used: u32,
    /// Slots in the fleet.
    pub slots: u32,
    /// The usual cost of a job, if it is known of any node: the median of what was learned.
    #[serde(default)]
    pub typical_ms: Option<u32>,
    /// The term in which it was published; told by the store, not part of the table.
    #[serde(skip)]
    pub term: u64,
    /// Its version; told by the store, not part of the table.
    #[serde(skip)]
    pub version: u64,
}

impl PoolTable {
    /// The first byte of a published table; raised with every change of its fields.
    const VERSION: u8 = 1;

    /// The table as it is published.
    pub(crate) fn encode(&self) -> Vec<u8> {
        versioned::encode(Self::VERSION, self)
    }

    /// Reads a published table; says why it cannot.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        versioned::decode(Self::VERSION, bytes)
    }

    /// Whether another table of the same instance shows the same pools and nodes.
    pub(crate) fn shows_same(&self, other: &Self) -> bool {
        let is_near = match (self.typical_ms, other.typical_ms) {
            (Some(a), Some(b)) => a.abs_diff(b) <= a / TYPICAL_NEAR_PART,
            (a, b) => a == b,
        };
        is_near
            && (&self.pools, &self.nodes, &self.generated_by, self.left_out)
                == (&other.pools, &other.nodes, &other.generated_by, other.left_out)
            && (&self.empty, &self.overloaded) == (&other.empty, &other.overloaded)
    }

    /// Whether a pair has nodes, or had some within the last hour.
    pub(crate) fn knows(&self, pair: &str) -> bool {
        self.pools.iter().any(|pool| pool.pair == pair)
            || self.empty.iter().any(|pool| pool.pair == pair)
    }

    /// How many nodes are alive.
    pub(crate) fn nodes_alive(&self) -> u64 {
        let gone = [NodeState::Offline.as_str(), "stale"];
        let alive = self.nodes.iter().filter(|(state, _)| !gone.contains(&state.as_str()));
        alive.map(|(_, count)| u64::from(*count)).sum()
    }
}

impl Pool {
    /// The same nodes, which speak the target language or not.
    fn speaking(&self, speaks: bool) -> Self {
        Self { speech: if speaks { self.nodes } else { 0 }, ..self.clone() }
    }

    fn add(&mut self, other: &Self) {
        self.nodes += other.nodes;
        self.speech += other.speech;
        self.ready += other.ready;
        self.free += other.free;
        self.slots += other.slots;
    }
}

/// The pools of the last table that no node serves now, with those that it remembered.
fn emptied(last: &PoolTable, now_ms: u64, is_served: impl Fn(&str) -> bool) -> Vec<EmptyPool> {
    let remembered = last.empty.iter().cloned();
    let lost =
        last.pools.iter().map(|pool| EmptyPool { pair: pool.pair.clone(), since_ms: now_ms });
    let mut empty: Vec<EmptyPool> = remembered
        .chain(lost)
        .filter(|pool| now_ms.saturating_sub(pool.since_ms) < EMPTY_POOL_MS)
        .filter(|pool| !is_served(&pool.pair))
        .collect();
    // The newest are kept if there are too many.
    let surplus = empty.len().saturating_sub(EMPTY_POOLS_MAX);
    empty.drain(..surplus);
    empty
}

/// Makes the table. Nodes with the same capabilities are counted together: there are many nodes and
/// few kinds.
pub(crate) fn make(
    cells: &[CellRecord],
    rules: Rules,
    options: PoolOptions,
    last: Option<&PoolTable>,
    now_ms: u64,
) -> PoolTable {
    let mut kinds: Vec<(Arc<Profile>, Pool)> = vec![];
    let mut table = PoolTable::default();
    for (time_ms, node) in cells.iter().flat_map(|c| c.nodes.iter().map(|node| (c.now_ms, node))) {
        let is_stale = node.fresh_until_ms < time_ms;
        let state = if is_stale { "stale" } else { node.state.as_str() };
        *table.nodes.entry(state.to_owned()).or_default() += 1;
        if is_stale || node.state == NodeState::Offline {
            continue;
        }
        let slots = node.profile.slots_max();
        table.used += u32::from(node.used);
        table.slots += u32::from(slots);
        let mut count = Pool { nodes: 1, ..Pool::default() };
        if node.state == NodeState::Ready {
            let free = slots.saturating_sub(node.used).into();
            count = Pool { ready: 1, free, slots: slots.into(), ..count };
            for resource in Resource::ALL {
                if rules.thresholds.exceeded(node.load, resource) {
                    *table.overloaded.entry(resource.as_str().to_owned()).or_default() += 1;
                }
            }
        }
        let is_same = |kind: &Arc<Profile>| {
            Arc::ptr_eq(kind, &node.profile) || kind.capabilities() == node.profile.capabilities()
        };
        match kinds.iter_mut().find(|(kind, _)| is_same(kind)) {
            Some((_, total)) => total.add(&count),
            None => kinds.push((Arc::clone(&node.profile), count)),
        }
    }
    let nodes = cells.iter().flat_map(|cell| &cell.nodes);
    let known =
        nodes.filter(|node| node.speed.jobs >= JUDGE_FROM_JOBS && node.state != NodeState::Offline);
    table.typical_ms = median_ms(known.map(|node| node.speed.learned_ms).collect());
    if options.generate {
        let pools = pools_of(&kinds, rules.semantic);
        if let Some(last) = last {
            table.empty = emptied(last, now_ms, |pair| pools.serves(pair));
        }
        fill(&mut table, pools, options);
    }
    table
}

/// All pools, before some are left out.
struct Pools {
    exact: BTreeMap<LangPair, Pool>,
    mixed: BTreeMap<Lang, Pool>,
}

impl Pools {
    fn serves(&self, pair: &str) -> bool {
        pair.parse::<LangPair>().is_ok_and(|pair| match pair.src {
            Source::Auto => self.mixed.contains_key(&pair.tgt),
            Source::Known(_) => self.exact.contains_key(&pair),
        })
    }
}

fn pools_of(kinds: &[(Arc<Profile>, Pool)], rule: SemanticRule) -> Pools {
    let mut exact: BTreeMap<LangPair, Pool> = BTreeMap::new();
    let mut mixed: BTreeMap<Lang, Pool> = BTreeMap::new();
    let spoken: BTreeSet<Lang> =
        kinds.iter().flat_map(|(kind, _)| kind.capabilities().tts().as_slice()).copied().collect();
    for (profile, count) in kinds {
        let caps = profile.capabilities();
        // Each target of the kind, and whether the kind speaks it.
        let mut targets: BTreeMap<Lang, bool> = BTreeMap::new();
        for pair in text_pairs(caps, &spoken) {
            if caps.missing(pair, Needs::SPEECH_TO_TEXT, rule).is_some() {
                continue;
            }
            let speaks = caps.missing(pair, Needs::SPEECH_TO_SPEECH, rule).is_none();
            exact.entry(pair).or_default().add(&count.speaking(speaks));
            *targets.entry(pair.tgt).or_default() |= speaks;
        }
        for (target, speaks) in targets {
            mixed.entry(target).or_default().add(&count.speaking(speaks));
        }
    }
    Pools { exact, mixed }
}

fn fill(table: &mut PoolTable, Pools { exact, mut mixed }: Pools, options: PoolOptions) {
    let mut exact: Vec<(LangPair, Pool)> = exact.into_iter().collect();
    let all = exact.len();
    exact.retain(|(_, count)| count.nodes as usize >= options.min_nodes_per_pool);
    exact.sort_by_key(|(pair, count)| (std::cmp::Reverse(count.nodes), *pair));
    exact.truncate(options.max_pools);
    table.left_out = (all - exact.len()) as u32;
    if !options.mixed {
        mixed.clear();
    }
    let mixed = mixed.into_iter().map(|(target, count)| (LangPair::auto(target), count));
    let named = |(pair, pool): (LangPair, Pool)| Pool { pair: pair.to_string(), ..pool };
    table.pools = exact.into_iter().chain(mixed).map(named).collect();
}

/// The pairs that a node may serve as text. A node that translates anything to anything is counted
/// for the targets that some node speaks; there is no end to the others.
fn text_pairs(caps: &Capabilities, spoken: &BTreeSet<Lang>) -> Vec<LangPair> {
    match caps.nmt() {
        Nmt::Pairs(pairs) => pairs.iter().map(|&(src, tgt)| LangPair::known(src, tgt)).collect(),
        Nmt::AnyToAny => {
            let from = |&src: &Lang| spoken.iter().map(move |&tgt| LangPair::known(src, tgt));
            caps.asr().as_slice().iter().flat_map(from).collect()
        }
    }
}
