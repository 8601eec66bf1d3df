//! A node reports that it is alive, how busy it is, and what has changed.
//!
//! Start at [`Heartbeat`]. Invariant: what a heartbeat leaves out stays as it was.

use lingua_core::{Epoch, Health, Load, NodeId, Profile};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::capability::NodeFields;
use super::{CapabilityFields, JobRef, required_node};
use crate::error::{ErrorCode, RequestError};
use crate::json::As;

/// The body of `POST /v1/node/heartbeat`, and a frame of a node's socket.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename = "heartbeat")]
#[schemars(rename = "Heartbeat")]
pub struct Heartbeat {
    /// The node's id; a socket knows it already.
    #[serde(default, with = "As::<Option<NodeId>>", skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// The epoch that the registration was answered with.
    #[serde(default, with = "As::<Option<Epoch>>", skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// The node's own view of its health.
    #[serde(default, with = "As::<Option<Health>>", skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// How busy the node is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_load: Option<LoadFields>,
    /// The attempts that run on the node. An empty list means none; no list means nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Vec<JobRef>>,
    /// What has changed about what the node can do.
    #[serde(flatten)]
    pub capability: CapabilityFields,
}

/// How busy a node is, as fractions of one; a node leaves out what it does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadFields {
    /// Processor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Accelerator time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<f64>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<f64>,
}

impl Heartbeat {
    /// The node that sent it; an error if it names none.
    pub fn node(&self) -> Result<&NodeId, RequestError> {
        required_node(self.node_id.as_ref())
    }

    /// How busy the node is, if the heartbeat has it.
    pub fn load(&self) -> Result<Option<Load>, RequestError> {
        let Some(load) = self.current_load else {
            return Ok(None);
        };
        let [cpu, gpu, memory] = [load.cpu, load.gpu, load.memory].map(Option::unwrap_or_default);
        Load::new(cpu, gpu, memory).map(Some).map_err(|why| {
            let field = format!("current_load.{}", why.resource);
            RequestError::new(ErrorCode::of_core(why.code()), &field, &why.to_string())
        })
    }

    /// What the node can do from now on, given what it could do before; `None` if that has not
    /// changed.
    pub fn capability_update(&self, current: &Profile) -> Result<Option<Profile>, RequestError> {
        self.capability.update(current)
    }
}

impl<'de> Deserialize<'de> for Heartbeat {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (fields, capability) = NodeFields::read(from)?;
        let NodeFields { node_id, epoch, health, current_load, running, .. } = fields;
        Ok(Self { node_id, epoch, health, current_load, running, capability })
    }
}

/// The response to a heartbeat over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeartbeatResponse {
    /// Always true.
    pub ok: bool,
    /// Attempts that the node should stop: nobody waits for them.
    pub cancel: Vec<JobRef>,
    /// Whether the node should finish its jobs and accept no more.
    pub drain: bool,
}
