//! A node says that it is alive, how busy it is, and what has changed.
//!
//! Start at [`Heartbeat`]. Invariant: what a heartbeat leaves out stays as it was.

use lingua_core::{Epoch, Health, Load, NodeId, Profile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CapabilityFields, JobRef, required_node};
use crate::error::{ErrorCode, RequestError};
use crate::limits::RUNNING_MAX;
use crate::message::{Inbound, Message, read_json};
use crate::plain;
use crate::schema::Shown;

/// The body of `POST /v1/node/heartbeat`, and a frame of a node's socket.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename = "heartbeat")]
#[schemars(rename = "Heartbeat")]
pub struct Heartbeat {
    /// Who says it.
    #[serde(with = "plain::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Shown<NodeId>>")]
    pub node_id: Option<NodeId>,
    /// The number that its registration was answered with.
    #[serde(with = "plain::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Shown<Epoch>>")]
    pub epoch: Option<Epoch>,
    /// What it says of itself.
    #[serde(with = "plain::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Shown<Health>>")]
    pub health: Option<Health>,
    /// How busy it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_load: Option<LoadFields>,
    /// The attempts that it works on. An empty list says that there are none; no list says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Vec<JobRef>>,
    /// What has changed about what it can do.
    #[serde(flatten)]
    pub capability: CapabilityFields,
}

/// How busy a node is, as fractions of one; what it does not have, it leaves out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadFields {
    /// Processor time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Accelerator time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<f64>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<f64>,
}

impl Heartbeat {
    /// Who says it; an error if it does not say.
    pub fn node(&self) -> Result<&NodeId, RequestError> {
        required_node(self.node_id.as_ref())
    }

    /// How busy the node is, if it says so.
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

    /// What the node can do from now on, given what it could do before; `None` if it names no
    /// capability, or none that is new.
    pub fn capability_update(&self, current: &Profile) -> Result<Option<Profile>, RequestError> {
        self.capability.update(current)
    }
}

impl Message for Heartbeat {
    const NAME: &'static str = "heartbeat";
}

/// The fields of [`Heartbeat`] that are not those of [`CapabilityFields`].
#[derive(Deserialize)]
struct Head {
    #[serde(with = "plain::option", default)]
    node_id: Option<NodeId>,
    #[serde(with = "plain::option", default)]
    epoch: Option<Epoch>,
    #[serde(with = "plain::option", default)]
    health: Option<Health>,
    current_load: Option<LoadFields>,
    #[serde(default, deserialize_with = "plain::bounded::<_, _, RUNNING_MAX>")]
    running: Option<Vec<JobRef>>,
}

impl Inbound<'_> for Heartbeat {
    fn read(text: &str) -> Result<Self, RequestError> {
        let capability = read_json(text)?;
        let Head { node_id, epoch, health, current_load, running } = read_json(text)?;
        Ok(Self { node_id, epoch, health, current_load, running, capability })
    }
}

/// The answer to a heartbeat by HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeartbeatResponse {
    /// Always true.
    pub ok: bool,
    /// Attempts that it should stop: nobody waits for them.
    pub cancel: Vec<JobRef>,
    /// Whether it should finish what it has and take no more.
    pub drain: bool,
}

impl Message for HeartbeatResponse {
    const NAME: &'static str = "heartbeat_response";
}
