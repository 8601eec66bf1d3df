//! Instances, nodes and pools as an operator sees them.
//!
//! Start at [`ClusterView`], [`NodeView`] and [`PoolView`]. [`ExplainResponse`] says why each node
//! would or would not get a job.

use std::collections::BTreeMap;

use lingua_core::roster::NodeVerdict;
use lingua_core::{
    CELL_NODES_MAX, CELLS_MAX, Epoch, InstanceId, Lang, LangPair, Load, NodeId, NodeLabel,
    NodeState, Resource, Source, Term,
};

use crate::json::BoundedList;
use crate::node::{LanguageLists, ServiceFlags};
use crate::wire_types::wire_types;

/// Most nodes that there can be.
const NODES_MAX: usize = CELLS_MAX * CELL_NODES_MAX;

/// Most pools that the view of a node lists.
pub const NODE_POOLS_MAX: usize = 1000;

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

wire_types! {
    /// All instances and what they share.
    pub struct ClusterView {
        /// The instance that answered.
        pub instance_id: InstanceId,
        /// Version of that instance.
        pub version: String,
        /// Every known instance.
        pub instances: Vec<InstanceView>,
        /// The leader, if there is one.
        #[serialize_always]
        pub leader: Option<InstanceId>,
        /// Number of the leader's term.
        pub term: Term,
        /// Version of the pool table.
        pub table_version: u64,
        /// When the pool table was published.
        pub table_published_ms: Option<u64>,
        /// How many nodes are in each state.
        #[serde(default)]
        pub nodes: BTreeMap<String, u64>,
        /// The store that the instances share.
        pub store: StoreView,
        /// Whether this is what was seen last, because the store does not answer.
        #[serde(default, skip_serializing_if = "is_false")]
        pub stale: bool,
        /// When it was seen, if it is stale.
        pub as_of_ms: Option<u64>,
    }

    /// One scheduler process.
    pub struct InstanceView {
        /// The configured name of the instance.
        pub instance_id: InstanceId,
        /// The address at which clients reach it.
        pub address: String,
        /// Whether its announcement is still valid.
        pub alive: bool,
        /// Whether it is the leader.
        pub leader: bool,
        /// When its announcement expires.
        pub until_ms: u64,
    }

    /// The store that holds the state.
    pub struct StoreView {
        /// `embedded` or `redis`.
        pub kind: String,
        /// Whether it answers this instance.
        pub up: bool,
    }

    /// The nodes that can serve a directed pair of languages.
    pub struct PoolView {
        /// `zh:en`, or `*:en` for the mixed pool.
        pub pool: LangPair,
        /// Source language, or `auto`.
        pub src_lang: Source,
        /// Language that the nodes of the pool translate to.
        pub tgt_lang: Lang,
        /// How many nodes serve the pair, with text as the result.
        pub nodes: u64,
        /// How many of them also speak the target language.
        #[serde(default)]
        pub speech: u64,
        /// How many of them accept jobs.
        pub ready: u64,
        /// Free slots of the nodes that accept jobs.
        pub free: u64,
        /// All slots of the nodes that accept jobs.
        pub slots: u64,
        /// The nodes; only in the response for a single pool.
        #[serde(default, with = "BoundedList::<NodeId, NODES_MAX>")]
        pub node_ids: Option<Vec<NodeId>>,
        /// The pool by cell; only in the response for a single pool.
        pub cells: Option<Vec<PoolCell>>,
        /// Whether this is what was seen last, because the store does not answer.
        #[serde(default, skip_serializing_if = "is_false")]
        pub stale: bool,
        /// When it was seen, if it is stale.
        pub as_of_ms: Option<u64>,
    }

    /// The part of a pool that is in one cell.
    pub struct PoolCell {
        /// Number of the cell.
        pub cell: u32,
        /// How many of its nodes serve the pair.
        pub nodes: u64,
        /// How many of them accept jobs.
        pub ready: u64,
        /// Free slots of the nodes that accept jobs.
        pub free: u64,
        /// All slots of the nodes that accept jobs.
        pub slots: u64,
    }

    /// The response of `GET /v1/pools`.
    #[derive(Default)]
    pub struct PoolList {
        /// Version of the pool table that the list comes from.
        pub table_version: u64,
        /// The instance that made the table.
        pub generated_by: Option<InstanceId>,
        /// When it made the table.
        pub generated_ms: Option<u64>,
        /// All pools that a node serves.
        pub pools: Vec<PoolView>,
        /// How many exact pools are left out because they are too small or too many.
        #[serde(default)]
        pub left_out: u64,
        /// Whether this is what was seen last, because the store does not answer.
        #[serde(default, skip_serializing_if = "is_false")]
        pub stale: bool,
        /// When it was seen, if it is stale.
        pub as_of_ms: Option<u64>,
    }

    /// The response of `POST /v1/explain`.
    pub struct ExplainResponse {
        /// The pool that the job belongs to.
        pub pool: LangPair,
        /// The pool that would serve it, if that is one with fewer subtags.
        pub served_as: Option<LangPair>,
        /// The policy that chooses among the nodes.
        pub policy: String,
        /// The node that would get the job now.
        #[serialize_always]
        pub chosen: Option<NodeId>,
        /// How many registered nodes can run the job, busy or not.
        pub capable: u64,
        /// Free slots of these nodes.
        pub free: u64,
        /// The code of the error that the job would end with if it were sent now.
        pub error: Option<String>,
        /// The verdict about each node.
        pub nodes: Vec<ExplainedNode>,
    }

    /// The verdict of the selection about a node.
    pub struct ExplainedNode {
        /// The name that the node registered with.
        pub node_id: NodeId,
        /// Number of the cell that the node is in.
        pub cell: u32,
        /// `chosen`, `as_good` (a random draw chose another node), `eligible` or `refused`.
        pub verdict: String,
        /// Lower is better; what it counts depends on the policy.
        pub score: Option<u64>,
        /// The first reason why the node cannot get the job.
        pub why: Option<String>,
    }
}

wire_types! {
    without Eq;

    /// A registered node, as operators see it.
    pub struct NodeView {
        /// The name that the node registered with.
        pub node_id: NodeId,
        /// The state of the node.
        pub state: NodeState,
        /// Whether the last heartbeat is recent enough for the node to get jobs.
        pub fresh: bool,
        /// Slots in use.
        pub used: u32,
        /// Jobs that the node does at once at most.
        pub max: u32,
        /// Number of the node's incarnation.
        pub epoch: Epoch,
        /// Number of the cell that the node is in.
        pub cell: u32,
        /// Number of the node in its cell.
        pub slot: u32,
        /// How busy the node reports to be.
        pub load: LoadView,
        /// How long a job takes there on average, in milliseconds.
        pub cost_ms: u32,
        /// The languages and directions that it serves.
        pub languages: LanguageLists,
        /// The services that are on.
        pub services: ServiceFlags,
        /// Whether it gets audio while it is being spoken.
        #[serde(default)]
        pub streaming: bool,
        /// How many pools of a known source language it belongs to.
        pub pairs: u64,
        /// Whether it accepts jobs of all tenants.
        pub accept_public_jobs: bool,
        /// Its labels, which jobs may require.
        #[serde(
            default,
            with = "crate::json::As::<Vec<NodeLabel>>",
            skip_serializing_if = "Vec::is_empty"
        )]
        pub labels: Vec<NodeLabel>,
        /// Whether an operator ordered it to drain.
        pub drain_ordered: bool,
        /// Version of the node's software.
        pub version: Option<String>,
        /// When the last sign of life came.
        pub last_heartbeat_ms: u64,
        /// For how long there was none, if the node is offline or silent for too long.
        pub silent_ms: Option<u64>,
        /// The pools that it belongs to, at most 1000; only in the response for a single node.
        #[serde(default, with = "BoundedList::<LangPair, NODE_POOLS_MAX>")]
        pub pools: Option<Vec<LangPair>>,
        /// Whether this is what was seen last, because the store does not answer.
        #[serde(default, skip_serializing_if = "is_false")]
        pub stale: bool,
        /// When it was seen, if it is stale.
        pub as_of_ms: Option<u64>,
    }

    /// How busy a node is, as fractions of one.
    #[derive(Copy, Default)]
    pub struct LoadView {
        /// Share of the processor that is busy, 0 to 1.
        pub cpu: f64,
        /// Share of the accelerator that is busy, 0 to 1.
        pub gpu: f64,
        /// Share of the main memory that is used, 0 to 1.
        pub memory: f64,
    }

    /// The response of `GET /v1/nodes`.
    #[derive(Default)]
    pub struct NodeList {
        /// The nodes that the caller may see.
        pub nodes: Vec<NodeView>,
        /// Whether this is what was seen last, because the store does not answer.
        #[serde(default, skip_serializing_if = "is_false")]
        pub stale: bool,
        /// When it was seen, if it is stale.
        pub as_of_ms: Option<u64>,
    }
}

impl From<Load> for LoadView {
    fn from(load: Load) -> Self {
        let fraction = |resource| f64::from(load.permille(resource)) / 1000.0;
        Self {
            cpu: fraction(Resource::Cpu),
            gpu: fraction(Resource::Gpu),
            memory: fraction(Resource::Memory),
        }
    }
}

impl PoolView {
    /// A pool without nodes.
    pub fn new(pool: LangPair) -> Self {
        let (src_lang, tgt_lang) = (pool.src, pool.tgt);
        Self {
            pool,
            src_lang,
            tgt_lang,
            nodes: 0,
            speech: 0,
            ready: 0,
            free: 0,
            slots: 0,
            node_ids: None,
            cells: None,
            stale: false,
            as_of_ms: None,
        }
    }
}

impl ExplainedNode {
    /// The verdict of the core as a message.
    pub fn new(node_id: NodeId, cell: u32, verdict: NodeVerdict) -> Self {
        let (word, score, why) = match verdict {
            NodeVerdict::Chosen { score } => ("chosen", Some(score), None),
            NodeVerdict::AsGood { score } => ("as_good", Some(score), None),
            NodeVerdict::Eligible { score } => ("eligible", Some(score), None),
            NodeVerdict::Refused(why) => ("refused", None, Some(why.to_string())),
        };
        Self { node_id, cell, verdict: word.to_owned(), score, why }
    }
}
