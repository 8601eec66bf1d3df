//! A node as an operator sees it.
//!
//! Start at [`NodeView`].

use lingua_core::{Epoch, Load, NodeId, NodeState, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::As;
use crate::node::{LanguageLists, ServiceFlags};

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeView {
    /// The node.
    #[serde(with = "As::<NodeId>")]
    pub node_id: NodeId,
    /// The state of the node.
    #[serde(with = "As::<NodeState>")]
    pub state: NodeState,
    /// Whether the last heartbeat is recent enough for the node to get jobs.
    pub fresh: bool,
    /// Slots in use.
    pub used: u32,
    /// All slots.
    pub max: u32,
    /// Number of the node's incarnation.
    #[serde(with = "As::<Epoch>")]
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
    /// Whether an operator ordered it to drain.
    pub drain_ordered: bool,
    /// Version of the node's software.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When the last heartbeat came.
    pub last_heartbeat_ms: u64,
}

/// How busy a node is, as fractions of one.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct LoadView {
    /// Processor time.
    pub cpu: f64,
    /// Accelerator time.
    pub gpu: f64,
    /// Memory.
    pub memory: f64,
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

/// The response of `GET /v1/nodes`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct NodeList {
    /// All nodes.
    pub nodes: Vec<NodeView>,
}
