//! The pool table: the pools, their nodes and their free slots.
//!
//! Start at `make`. The table is for people and metrics; no job waits for it. The leader makes it
//! from the cells and publishes it; every instance shows the one that was published last.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use lingua_core::node::Resource;
use lingua_core::{Capabilities, LangPair, Needs, Nmt, NodeState, Rules, SemanticRule, Tenant};
use lingua_store::contract::CellRecord;
use serde::{Deserialize, Serialize};

use crate::cost::{JUDGE_FROM_JOBS, median_ms};
use crate::options::PoolOptions;
use crate::pool_count::{Kind, PoolCount};
use crate::versioned::{self, RecordError};

/// A usual cost that differs by less than this part is not worth another table.
const TYPICAL_NEAR_PART: u32 = 20;

/// How many nodes and slots serve one pair.
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

/// Most mixed pools in the table; the largest stay.
const MIXED_POOLS_MAX: usize = 1_000;

/// Languages and pairs of all nodes, counted together, beyond which a table is made in a thread of
/// its own.
const SMALL_FLEET: usize = 8_192;

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
    /// The part of those pools that is private nodes, by tenant.
    #[serde(default)]
    pub private: BTreeMap<String, Vec<Pool>>,
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
    pub(crate) const VERSION: u8 = 2;

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
            && self.private == other.private
    }

    /// Whether a pair has nodes, or had some within the last hour.
    pub(crate) fn knows(&self, pair: &str) -> bool {
        self.pools.iter().any(|pool| pool.pair == pair)
            || self.empty.iter().any(|pool| pool.pair == pair)
    }

    /// The pools as a tenant sees them: without private nodes of others.
    pub fn pools_for(&self, tenant: Tenant) -> Vec<Pool> {
        let others = self.private.iter().filter(|(owner, _)| *owner != tenant.as_str());
        let mut hidden: BTreeMap<&str, Pool> = BTreeMap::new();
        for pool in others.flat_map(|(_, pools)| pools) {
            hidden.entry(&pool.pair).or_default().add(pool);
        }
        let seen = self.pools.iter().map(|pool| match hidden.get(pool.pair.as_str()) {
            Some(hidden) => pool.without(hidden),
            None => pool.clone(),
        });
        seen.filter(|pool| pool.nodes > 0).collect()
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
    pub(crate) fn speaking(&self, speaks: bool) -> Self {
        Self { speech: if speaks { self.nodes } else { 0 }, ..self.clone() }
    }

    fn without(&self, other: &Self) -> Self {
        Self {
            pair: self.pair.clone(),
            nodes: self.nodes.saturating_sub(other.nodes),
            speech: self.speech.saturating_sub(other.speech),
            ready: self.ready.saturating_sub(other.ready),
            free: self.free.saturating_sub(other.free),
            slots: self.slots.saturating_sub(other.slots),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
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

/// Whether the table of these cells takes so long to make that the other tasks of the thread would
/// notice.
pub(crate) fn is_large(cells: &[CellRecord]) -> bool {
    let nodes = cells.iter().flat_map(|cell| &cell.nodes);
    let sizes = nodes.map(|node| capability_size(node.profile.capabilities()));
    sizes.sum::<usize>() > SMALL_FLEET
}

fn capability_size(caps: &Capabilities) -> usize {
    let pairs = match caps.nmt() {
        Nmt::Pairs(pairs) => pairs.len(),
        Nmt::AnyToAny => 0,
    };
    caps.asr().as_slice().len() + caps.tts().as_slice().len() + pairs
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
    let mut kinds: Vec<Kind> = vec![];
    let mut numbers = HashMap::new();
    let mut private: BTreeMap<Tenant, Vec<Kind>> = BTreeMap::new();
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
        let number = *numbers.entry(node.profile.capabilities().served()).or_insert_with(|| {
            kinds.push((Arc::clone(&node.profile), Pool::default()));
            kinds.len() - 1
        });
        kinds[number].1.add(&count);
        if !node.profile.accepts_public() {
            let kinds = private.entry(node.profile.tenant()).or_default();
            let served = node.profile.capabilities().served();
            let is_same = |kind: &&mut Kind| kind.0.capabilities().served() == served;
            match kinds.iter_mut().find(is_same) {
                Some((_, total)) => total.add(&count),
                None => kinds.push((Arc::clone(&node.profile), count)),
            }
        }
    }
    let nodes = cells.iter().flat_map(|cell| &cell.nodes);
    let known =
        nodes.filter(|node| node.speed.jobs >= JUDGE_FROM_JOBS && node.state != NodeState::Offline);
    table.typical_ms = median_ms(known.map(|node| node.speed.learned_ms).collect());
    if options.generate {
        let pools = PoolCount::of(&kinds, rules.semantic);
        if let Some(last) = last {
            table.empty = emptied(last, now_ms, |pair| pools.serves(pair));
        }
        fill(&mut table, pools, options);
        let part = |(tenant, kinds): (Tenant, Vec<Kind>)| {
            (tenant.to_string(), part_of(&table.pools, &kinds, rules.semantic))
        };
        let private = private.into_iter().map(part).collect();
        table.private = private;
    }
    table
}

/// The part of these pools that is nodes of these kinds.
fn part_of(pools: &[Pool], kinds: &[Kind], rule: SemanticRule) -> Vec<Pool> {
    let part = |pool: &Pool| {
        let pair: LangPair = pool.pair.parse().ok()?;
        let mut part = Pool { pair: pool.pair.clone(), ..Pool::default() };
        for (kind, count) in kinds {
            let has = |needs| kind.capabilities().missing(pair, needs, rule).is_none();
            if has(Needs::SPEECH_TO_TEXT) {
                part.add(&count.speaking(has(Needs::SPEECH_TO_SPEECH)));
            }
        }
        (part.nodes > 0).then_some(part)
    };
    pools.iter().filter_map(part).collect()
}

fn fill(table: &mut PoolTable, pools: PoolCount<'_>, options: PoolOptions) {
    let (exact, left_out) = pools.largest(options.max_pools, options.min_nodes_per_pool);
    table.left_out = left_out;
    let mixed = if options.mixed { pools.into_mixed(MIXED_POOLS_MAX) } else { BTreeMap::new() };
    let mixed = mixed.into_iter().map(|(target, count)| (LangPair::auto(target), count));
    table.pools = exact.into_iter().chain(mixed).map(named).collect();
}

fn named((pair, pool): (LangPair, Pool)) -> Pool {
    Pool { pair: pair.to_string(), ..pool }
}
