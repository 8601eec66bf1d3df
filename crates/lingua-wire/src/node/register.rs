//! A node introduces itself, and reports that it is alive, how busy it is, and what has changed.
//!
//! Start at [`Register::into_parts`] and [`Heartbeat`]. Invariant: what a heartbeat leaves out
//! stays as it was.

use lingua_core::{Epoch, Health, Load, NodeId, NodeState, Profile};
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_with::skip_serializing_none;

use super::capability::NodeFields;
use super::{CapabilityFields, JobRef, required_node};
use crate::error::RequestError;
use crate::json::As;
use crate::limits::VERSION_BYTES_MAX;
use crate::message::{at_most, check_optional_label};
use crate::wire_types::wire_types;

/// The body of `POST /v1/node/register`, and the first frame of a node's socket.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "type", rename = "register")]
#[schemars(rename = "Register")]
pub struct Register {
    /// The node's id; the scheduler makes one up if it is left out.
    #[serde(default, with = "As::<Option<NodeId>>")]
    pub node_id: Option<NodeId>,
    /// Version of the node's software; for people to read.
    pub version: Option<String>,
    /// The node's own view of its health; `ready` if it is left out.
    #[serde(default, with = "As::<Option<Health>>")]
    pub health: Option<Health>,
    /// The attempts that run on the node and that it goes on with, if it was connected before.
    pub running: Option<Vec<JobRef>>,
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
    /// The attempts that the node goes on with.
    pub running: Vec<JobRef>,
}

impl Register {
    /// Checks what the node can do and gives it as values of the core.
    pub fn into_parts(self) -> Result<RegisterParts, RequestError> {
        let profile = self.capability.profile()?;
        let health = self.health.unwrap_or_default();
        let version = self.version.filter(|version| !version.is_empty());
        let running = self.running.unwrap_or_default();
        Ok(RegisterParts { node: self.node_id, profile, health, version, running })
    }

    pub(crate) fn check_bounds(&self) -> Result<(), RequestError> {
        let version = self.version.as_deref().filter(|version| !version.is_empty());
        at_most("version", version.unwrap_or_default(), VERSION_BYTES_MAX)?;
        check_optional_label("version", version)
    }
}

impl<'de> Deserialize<'de> for Register {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (fields, capability) = NodeFields::read(from)?;
        let NodeFields { node_id, version, health, running, .. } = fields;
        let health = health.map(|state| {
            let gone = "health: a node that registers is not offline; say ready, or leave it out";
            state.health().ok_or_else(|| D::Error::custom(gone))
        });
        Ok(Self { node_id, version, health: health.transpose()?, running, capability })
    }
}

wire_types! {
    /// The response to a registration over HTTP.
    pub struct RegisterResponse {
        /// Always true.
        pub ok: bool,
        /// The node's id from now on.
        pub node_id: NodeId,
        /// Number of this incarnation of the node.
        pub epoch: Epoch,
        /// The node's state in the scheduler.
        pub status: NodeState,
        /// How many pools of a known source language the node belongs to.
        pub pairs: u64,
        /// How often the node has to send a heartbeat, in milliseconds.
        pub heartbeat_interval_ms: u64,
    }

    /// The response to a heartbeat over HTTP.
    pub struct HeartbeatResponse {
        /// Always true.
        pub ok: bool,
        /// Attempts that the node should stop, because their results are not needed.
        pub cancel: Vec<JobRef>,
        /// Whether the node should finish its jobs and accept no more.
        pub drain: bool,
    }
}

wire_types! {
    without Eq;

    /// How busy a node is, as fractions of one; what a node leaves out stays as it was, at first 0.
    #[derive(Copy, Default)]
    pub struct LoadFields {
        /// Share of the processor that is busy, 0 to 1.
        pub cpu: Option<f64>,
        /// Share of the accelerator that is busy, 0 to 1.
        pub gpu: Option<f64>,
        /// Share of the main memory that is used, 0 to 1.
        pub memory: Option<f64>,
    }
}

/// The body of `POST /v1/node/heartbeat`, and a frame of a node's socket.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename = "heartbeat")]
#[schemars(rename = "Heartbeat")]
pub struct Heartbeat {
    /// The node's id; a socket knows it already.
    #[serde(default, with = "As::<Option<NodeId>>")]
    pub node_id: Option<NodeId>,
    /// The epoch that the registration was answered with.
    #[serde(default, with = "As::<Option<Epoch>>")]
    pub epoch: Option<Epoch>,
    /// The node's own view of its health; `offline` signs it off.
    #[serde(default, with = "As::<Option<NodeState>>")]
    pub health: Option<NodeState>,
    /// How busy the node is.
    pub current_load: Option<LoadFields>,
    /// The attempts that run on the node. An empty list means none. Without a list what the node
    /// runs goes on.
    pub running: Option<Vec<JobRef>>,
    /// What has changed about what the node can do.
    #[serde(flatten)]
    pub capability: CapabilityFields,
}

impl Heartbeat {
    /// The node that sent it; an error if it names none.
    pub fn node(&self) -> Result<&NodeId, RequestError> {
        required_node(self.node_id.as_ref())
    }

    /// How busy the node is, if the heartbeat has it, given how busy it was.
    pub fn load(&self, before: Load) -> Result<Option<Load>, RequestError> {
        let Some(LoadFields { cpu, gpu, memory }) = self.current_load else {
            return Ok(None);
        };
        before.changed([cpu, gpu, memory]).map(Some).map_err(|why| {
            let field = format!("current_load.{}", why.resource);
            RequestError::of_core(why.code(), &field, &why)
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
