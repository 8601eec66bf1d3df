//! Why each node would or would not get a job.
//!
//! Start at [`ExplainedNode::new`]: one verdict of the core, in words.

use lingua_core::roster::NodeVerdict;
use lingua_core::{LangPair, NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::As;

/// The answer of `POST /v1/explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainResponse {
    /// The pool that the job belongs to.
    #[serde(with = "As::<LangPair>")]
    pub pool: LangPair,
    /// How nodes are chosen.
    pub policy: String,
    /// The node that would get it now.
    #[serde(with = "As::<Option<NodeId>>", default)]
    pub chosen: Option<NodeId>,
    /// How many nodes are there and can do it, busy or not.
    pub capable: u64,
    /// How many free slots those have.
    pub free: u64,
    /// What would happen if it were sent now: a code of the error, if there would be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The nodes, one by one.
    pub nodes: Vec<ExplainedNode>,
}

/// What selection thinks of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedNode {
    /// Which node.
    #[serde(with = "As::<NodeId>")]
    pub node_id: NodeId,
    /// Number of its cell.
    pub cell: u32,
    /// `chosen`, `as_good` (luck decided against it), `eligible` or `refused`.
    pub verdict: String,
    /// Less is better; what it counts depends on the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<u64>,
    /// Why it cannot get the job: the first reason found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl ExplainedNode {
    /// A verdict in words.
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
