//! The scheduler processes and their store as an operator sees them.
//!
//! Start at [`ClusterView`]: the response of `GET /v1/cluster`.

use std::collections::BTreeMap;

use lingua_core::{InstanceId, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::As;

/// All instances and what they share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterView {
    /// The instance that answered.
    #[serde(with = "As::<InstanceId>")]
    pub instance_id: InstanceId,
    /// Version of that instance.
    pub version: String,
    /// Every known instance.
    pub instances: Vec<InstanceView>,
    /// The leader, if there is one.
    #[serde(with = "As::<Option<InstanceId>>", default)]
    pub leader: Option<InstanceId>,
    /// Number of the leader's term.
    #[serde(with = "As::<Term>")]
    pub term: Term,
    /// Version of the pool table.
    pub table_version: u64,
    /// When the pool table was published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table_published_ms: Option<u64>,
    /// How many nodes are in each state.
    #[serde(default)]
    pub nodes: BTreeMap<String, u64>,
    /// The store that the instances share.
    pub store: StoreView,
}

/// One scheduler process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceView {
    /// The instance.
    #[serde(with = "As::<InstanceId>")]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreView {
    /// `embedded` or `redis`.
    pub kind: String,
    /// Whether it answers this instance.
    pub up: bool,
}
