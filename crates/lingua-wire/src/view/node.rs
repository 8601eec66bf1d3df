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
    /// Its name.
    #[serde(with = "As::<NodeId>")]
    pub node_id: NodeId,
    /// Its state.
    #[serde(with = "As::<NodeState>")]
    pub state: NodeState,
    /// Whether its last heartbeat is recent enough for it to get jobs.
    pub fresh: bool,
    /// Taken slots.
    pub used: u32,
    /// All slots.
    pub max: u32,
    /// Number of its incarnation.
    #[serde(with = "As::<Epoch>")]
    pub epoch: Epoch,
    /// Number of its cell.
    pub cell: u32,
    /// Its place there.
    pub slot: u32,
    /// How busy it says it is.
    pub load: LoadView,
    /// What a job costs there, on average.
    pub cost_ms: u32,
    /// Its languages.
    pub languages: LanguageLists,
    /// Its services.
    pub services: ServiceFlags,
    /// Whether it listens along while somebody speaks.
    #[serde(default)]
    pub streaming: bool,
    /// How many exact pools it belongs to.
    pub pairs: u64,
    /// Whether it takes jobs of anybody.
    pub accept_public_jobs: bool,
    /// Whether an operator ordered it to drain.
    pub drain_ordered: bool,
    /// Version of its software.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When it last said that it is alive.
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

/// The answer of `GET /v1/nodes`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct NodeList {
    /// The nodes.
    pub nodes: Vec<NodeView>,
}
