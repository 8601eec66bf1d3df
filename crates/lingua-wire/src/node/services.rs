//! Which services of a node are on.

use lingua_core::{Service, ServiceSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which services are on. A service that is not named is on, except `tone`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceFlags {
    /// Speech recognition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asr: Option<bool>,
    /// Machine translation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nmt: Option<bool>,
    /// Speech synthesis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tts: Option<bool>,
    /// Keeping the tone of voice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tone: Option<bool>,
    /// Repair of what was recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub semantic: Option<bool>,
}

impl ServiceFlags {
    /// The services of a node that names none.
    pub(super) const DEFAULT: ServiceSet =
        ServiceSet::ALL.without(Service::Tone).without(Service::Streaming);

    /// Adds the services that are on and removes those that are off.
    pub(super) fn apply(self, to: ServiceSet) -> ServiceSet {
        let flags = [
            (Service::Asr, self.asr),
            (Service::Nmt, self.nmt),
            (Service::Tts, self.tts),
            (Service::Tone, self.tone),
            (Service::Semantic, self.semantic),
        ];
        flags.into_iter().fold(to, |set, (service, flag)| with_flag(set, service, flag))
    }
}

/// The set with a service switched on or off; `None` leaves it as it was.
pub(super) fn with_flag(set: ServiceSet, service: Service, flag: Option<bool>) -> ServiceSet {
    match flag {
        Some(true) => set.with(service),
        Some(false) => set.without(service),
        None => set,
    }
}

impl From<ServiceSet> for ServiceFlags {
    fn from(set: ServiceSet) -> Self {
        let flag = |service| Some(set.contains(service));
        Self {
            asr: flag(Service::Asr),
            nmt: flag(Service::Nmt),
            tts: flag(Service::Tts),
            tone: flag(Service::Tone),
            semantic: flag(Service::Semantic),
        }
    }
}
