//! A node introduces itself.
//!
//! Start at [`Register::into_parts`].

use lingua_core::{Epoch, Health, NodeId, NodeState, Profile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CapabilityFields;
use crate::error::RequestError;
use crate::limits::VERSION_BYTES_MAX;
use crate::message::{Inbound, Message, at_most, check_optional_label, read_json};
use crate::plain;
use crate::schema::Shown;

/// The body of `POST /v1/node/register`, and the first frame of a node's socket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "type", rename = "register")]
#[schemars(rename = "Register")]
pub struct Register {
    /// Its name; one is made up if it has none.
    #[serde(with = "plain::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Shown<NodeId>>")]
    pub node_id: Option<NodeId>,
    /// Version of its software.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What it says of itself; `ready` unless it says otherwise.
    #[serde(with = "plain::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Shown<Health>>")]
    pub health: Option<Health>,
    /// What it can do.
    #[serde(flatten)]
    pub capability: CapabilityFields,
}

/// What a registration says, in the core's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterParts {
    /// Its name, if it has one.
    pub node: Option<NodeId>,
    /// What it can do.
    pub profile: Profile,
    /// What it says of itself.
    pub health: Health,
    /// Version of its software.
    pub version: Option<String>,
}

impl Register {
    /// Checks what the node can do and gives it in the core's words.
    pub fn into_parts(self) -> Result<RegisterParts, RequestError> {
        let profile = self.capability.profile()?;
        let health = self.health.unwrap_or_default();
        let version = self.version.filter(|version| !version.is_empty());
        Ok(RegisterParts { node: self.node_id, profile, health, version })
    }
}

impl Message for Register {
    const NAME: &'static str = "register";

    fn check(&self) -> Result<(), RequestError> {
        let version = self.version.as_deref().filter(|version| !version.is_empty());
        at_most("version", version.unwrap_or_default(), VERSION_BYTES_MAX)?;
        check_optional_label("version", version)
    }
}

/// The fields of [`Register`] that are not those of [`CapabilityFields`].
#[derive(Deserialize)]
struct Head {
    #[serde(with = "plain::option", default)]
    node_id: Option<NodeId>,
    version: Option<String>,
    #[serde(with = "plain::option", default)]
    health: Option<Health>,
}

// Two passes over the text, because serde would otherwise keep all lists in memory before the
// first one is looked at, however long they are.
impl Inbound<'_> for Register {
    fn read(text: &str) -> Result<Self, RequestError> {
        let capability = read_json(text)?;
        let Head { node_id, version, health } = read_json(text)?;
        Ok(Self { node_id, version, health, capability })
    }
}

/// The answer to a registration by HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegisterResponse {
    /// Always true.
    pub ok: bool,
    /// Its name from now on.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<NodeId>")]
    pub node_id: NodeId,
    /// Number of this incarnation.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<Epoch>")]
    pub epoch: Epoch,
    /// Its state.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<NodeState>")]
    pub status: NodeState,
    /// How many exact pools it belongs to.
    pub pairs: u64,
    /// How often it has to say that it is alive.
    pub heartbeat_interval_ms: u64,
}

impl Message for RegisterResponse {
    const NAME: &'static str = "register_response";
}
