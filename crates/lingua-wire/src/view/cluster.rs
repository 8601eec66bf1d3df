//! The scheduler itself as an operator sees it.
//!
//! Start at [`ClusterView`]: the answer of `GET /v1/cluster`.

use std::collections::BTreeMap;

use lingua_core::{InstanceId, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::As;

/// All instances and what they share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterView {
    /// The instance that answers.
    #[serde(with = "As::<InstanceId>")]
    pub instance_id: InstanceId,
    /// Version of its software.
    pub version: String,
    /// Every instance that is known.
    pub instances: Vec<InstanceView>,
    /// The instance that leads, if one does.
    #[serde(with = "As::<Option<InstanceId>>", default)]
    pub leader: Option<InstanceId>,
    /// Number of its reign.
    #[serde(with = "As::<Term>")]
    pub term: Term,
    /// Version of the pool table.
    pub table_version: u64,
    /// When that was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_published_ms: Option<u64>,
    /// How many nodes there are in each state.
    #[serde(default)]
    pub nodes: BTreeMap<String, u64>,
    /// What they share.
    pub store: StoreView,
}

/// One scheduler process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceView {
    /// Its name.
    #[serde(with = "As::<InstanceId>")]
    pub instance_id: InstanceId,
    /// Where people find it.
    pub address: String,
    /// Whether it is believed to be alive.
    pub alive: bool,
    /// Whether it leads.
    pub leader: bool,
    /// Until when it is believed to be alive.
    pub until_ms: u64,
}

/// Where the state is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreView {
    /// `embedded` or `redis`.
    pub kind: String,
    /// Whether it answers.
    pub up: bool,
}
