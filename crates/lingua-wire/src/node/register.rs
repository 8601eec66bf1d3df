//! A node introduces itself.
//!
//! Start at [`Register::into_parts`].

use lingua_core::{Epoch, Health, NodeId, NodeState, Profile};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::CapabilityFields;
use super::capability::NodeFields;
use crate::error::RequestError;
use crate::json::As;
use crate::limits::VERSION_BYTES_MAX;
use crate::message::{at_most, check_optional_label};

/// The body of `POST /v1/node/register`, and the first frame of a node's socket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "type", rename = "register")]
#[schemars(rename = "Register")]
pub struct Register {
    /// The node's id; the scheduler makes one up if it is left out.
    #[serde(default, with = "As::<Option<NodeId>>", skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// Version of the node's software; for people to read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The node's own view of its health; `ready` if it is left out.
    #[serde(default, with = "As::<Option<Health>>", skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// What the node can do.
    #[serde(flatten)]
    pub capability: CapabilityFields,
}

/// A registration that was checked, as values of the core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterParts {
    /// The node's id; `None` asks the scheduler to make one up.
    pub node: Option<NodeId>,
    /// What the node can do.
    pub profile: Profile,
    /// The node's own view of its health.
    pub health: Health,
    /// Version of the node's software.
    pub version: Option<String>,
}

impl Register {
    /// Checks what the node can do and gives it as values of the core.
    pub fn into_parts(self) -> Result<RegisterParts, RequestError> {
        let profile = self.capability.profile()?;
        let health = self.health.unwrap_or_default();
        let version = self.version.filter(|version| !version.is_empty());
        Ok(RegisterParts { node: self.node_id, profile, health, version })
    }

    pub(crate) fn check_bounds(&self) -> Result<(), RequestError> {
        let version = self.version.as_deref().filter(|version| !version.is_empty());
        at_most("version", version.unwrap_or_default(), VERSION_BYTES_MAX)?;
        check_optional_label("version", version)
    }
}

impl<'de> Deserialize<'de> for Register {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (NodeFields { node_id, version, health, .. }, capability) = NodeFields::read(from)?;
        Ok(Self { node_id, version, health, capability })
    }
}

/// The response to a registration over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegisterResponse {
    /// Always true.
    pub ok: bool,
    /// The node's id from now on.
    #[serde(with = "As::<NodeId>")]
    pub node_id: NodeId,
    /// Number of this incarnation of the node.
    #[serde(with = "As::<Epoch>")]
    pub epoch: Epoch,
    /// The node's state in the scheduler.
    #[serde(with = "As::<NodeState>")]
    pub status: NodeState,
    /// How many pools of a known source language the node belongs to.
    pub pairs: u64,
    /// How often the node has to send a heartbeat, in milliseconds.
    pub heartbeat_interval_ms: u64,
}
