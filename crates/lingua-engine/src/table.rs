//! The pool table: which pools there are and how they do.
//!
//! It is for people, metrics and hints; no job waits for it. The leader makes it from the cells and
//! publishes it; everybody shows the one that was published last.

use std::collections::BTreeMap;
use std::sync::Arc;

use lingua_core::{Lang, LangPair, NodeState, Profile, SemanticRule};
use lingua_store::contract::CellRecord;
use serde::{Deserialize, Serialize};

use crate::options::PoolOptions;

/// One pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// `zh:en`, or `*:en` for the mixed one.
    pub pair: String,
    /// Nodes that serve it.
    pub nodes: u32,
    /// Of those, the ones that take jobs now.
    pub ready: u32,
    /// Free slots of those.
    pub free: u32,
    /// Slots of those, free or not.
    pub slots: u32,
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct PoolTable {
    /// Who made it.
    pub generated_by: String,
    /// When.
    pub generated_ms: u64,
    /// The pools: exact ones by size, then the mixed ones.
    pub pools: Vec<Pool>,
    /// Exact pools that were left out because there are too many.
    pub left_out: u32,
    /// Nodes by state.
    pub nodes: BTreeMap<String, u32>,
    /// Slots taken.
    pub used: u32,
    /// Slots in all.
    pub slots: u32,
    /// The term it was published in; told by the store, not part of the table.
    #[serde(skip)]
    pub term: u64,
    /// Its version, likewise.
    #[serde(skip)]
    pub version: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    nodes: u32,
    ready: u32,
    free: u32,
    slots: u32,
}

/// Makes the table. Nodes with the same capabilities are counted together: there are many nodes and
/// few kinds.
pub(crate) fn make(views: &[CellRecord], rule: SemanticRule, options: PoolOptions) -> PoolTable {
    let mut kinds: Vec<(Arc<Profile>, Count)> = vec![];
    let mut table = PoolTable::default();
    for view in views {
        for node in &view.nodes {
            let stale = node.fresh_until_ms < view.now_ms;
            let state = if stale { "stale" } else { node.state.as_str() };
            *table.nodes.entry(state.to_owned()).or_default() += 1;
            let gone = stale || node.state == NodeState::Offline;
            if gone {
                continue;
            }
            table.used += u32::from(node.used);
            table.slots += u32::from(node.profile.slots_max());
            let known = kinds.iter().position(|(kind, _)| {
                Arc::ptr_eq(kind, &node.profile)
                    || kind.capabilities() == node.profile.capabilities()
            });
            let at = known.unwrap_or_else(|| {
                kinds.push((Arc::clone(&node.profile), Count::default()));
                kinds.len() - 1
            });
            let count = &mut kinds[at].1;
            count.nodes += 1;
            if node.state == NodeState::Ready {
                count.ready += 1;
                count.slots += u32::from(node.profile.slots_max());
                count.free += u32::from(node.profile.slots_max().saturating_sub(node.used));
            }
        }
    }
    fill(&mut table, &kinds, rule, options);
    table
}

fn fill(
    table: &mut PoolTable,
    kinds: &[(Arc<Profile>, Count)],
    rule: SemanticRule,
    options: PoolOptions,
) {
    let mut exact: BTreeMap<LangPair, Count> = BTreeMap::new();
    let mut mixed: BTreeMap<Lang, Count> = BTreeMap::new();
    for (profile, count) in kinds {
        let mut targets: Vec<Lang> = vec![];
        for pair in profile.capabilities().pairs(rule) {
            add(exact.entry(pair).or_default(), *count);
            targets.push(pair.tgt);
        }
        targets.sort_unstable();
        targets.dedup();
        for target in targets {
            add(mixed.entry(target).or_default(), *count);
        }
    }
    let mut exact: Vec<(LangPair, Count)> = exact.into_iter().collect();
    exact.retain(|(_, count)| count.nodes as usize >= options.min_nodes_per_pool);
    exact.sort_by_key(|(pair, count)| (std::cmp::Reverse(count.nodes), *pair));
    table.left_out = exact.len().saturating_sub(options.max_pools) as u32;
    exact.truncate(options.max_pools);
    let mixed = mixed.into_iter().map(|(target, count)| (LangPair::auto(target), count));
    table.pools = exact
        .into_iter()
        .chain(mixed)
        .map(|(pair, Count { nodes, ready, free, slots })| Pool {
            pair: pair.to_string(),
            nodes,
            ready,
            free,
            slots,
        })
        .collect();
}

fn add(to: &mut Count, count: Count) {
    to.nodes += count.nodes;
    to.ready += count.ready;
    to.free += count.free;
    to.slots += count.slots;
}
