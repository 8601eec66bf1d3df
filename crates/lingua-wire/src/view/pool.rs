//! A pool as an operator sees it.
//!
//! Start at [`PoolView`].

use lingua_core::{CELL_NODES_MAX, CELLS_MAX, Lang, LangPair, NodeId, Source};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::{As, BoundedList};

/// Most nodes that there can be.
const NODES_MAX: usize = CELLS_MAX * CELL_NODES_MAX;

/// The nodes that can serve a directed pair of languages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolView {
    /// `zh:en`, or `*:en` for the mixed pool.
    #[serde(with = "As::<LangPair>")]
    pub pool: LangPair,
    /// Source language, or `auto`.
    #[serde(with = "As::<Source>")]
    pub src_lang: Source,
    /// Target language.
    #[serde(with = "As::<Lang>")]
    pub tgt_lang: Lang,
    /// How many nodes serve the pair.
    pub nodes: u64,
    /// How many of them accept jobs.
    pub ready: u64,
    /// Free slots of the nodes that accept jobs.
    pub free: u64,
    /// All slots of the nodes that accept jobs.
    pub slots: u64,
    /// The nodes; only in the response for a single pool.
    #[serde(
        default,
        with = "BoundedList::<NodeId, NODES_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    pub node_ids: Option<Vec<NodeId>>,
}

impl PoolView {
    /// A pool without nodes.
    pub fn new(pool: LangPair) -> Self {
        let (src_lang, tgt_lang) = (pool.src, pool.tgt);
        Self { pool, src_lang, tgt_lang, nodes: 0, ready: 0, free: 0, slots: 0, node_ids: None }
    }
}

/// The response of `GET /v1/pools`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PoolList {
    /// Version of the pool table that the list comes from.
    pub table_version: u64,
    /// All pools that a node serves.
    pub pools: Vec<PoolView>,
}
