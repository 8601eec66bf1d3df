//! Why each node would or would not get a job.
//!
//! Start at [`ExplainedNode::new`]: the verdict of the core about one node.

use lingua_core::roster::NodeVerdict;
use lingua_core::{LangPair, NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::As;

/// The response of `POST /v1/explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainResponse {
    /// The pool that the job belongs to.
    #[serde(with = "As::<LangPair>")]
    pub pool: LangPair,
    /// The policy that chooses among the nodes.
    pub policy: String,
    /// The node that would get the job now.
    #[serde(with = "As::<Option<NodeId>>", default)]
    pub chosen: Option<NodeId>,
    /// How many registered nodes can run the job, busy or not.
    pub capable: u64,
    /// Free slots of these nodes.
    pub free: u64,
    /// The code of the error that the job would end with if it were sent now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The verdict about each node.
    pub nodes: Vec<ExplainedNode>,
}

/// The verdict of the selection about a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedNode {
    /// The node.
    #[serde(with = "As::<NodeId>")]
    pub node_id: NodeId,
    /// Number of the cell that the node is in.
    pub cell: u32,
    /// `chosen`, `as_good` (a random draw chose another node), `eligible` or `refused`.
    pub verdict: String,
    /// Lower is better; what it counts depends on the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<u64>,
    /// The first reason why the node cannot get the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
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
