//! Which services of a node are on.

use lingua_core::{Service, ServiceSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which services are on. One that is not named is on, but for `tone`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceFlags {
    /// Speech recognition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asr: Option<bool>,
    /// Machine translation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nmt: Option<bool>,
    /// Speech synthesis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tts: Option<bool>,
    /// Keeping the tone of voice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tone: Option<bool>,
    /// Repair of what was recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semantic: Option<bool>,
}

impl ServiceFlags {
    /// The services of a node that does not name any.
    pub(super) const DEFAULT: ServiceSet =
        ServiceSet::ALL.without(Service::Tone).without(Service::Streaming);

    /// The set with what is on added and what is off taken away.
    pub(super) fn apply(self, to: ServiceSet) -> ServiceSet {
        let flags = [
            (Service::Asr, self.asr),
            (Service::Nmt, self.nmt),
            (Service::Tts, self.tts),
            (Service::Tone, self.tone),
            (Service::Semantic, self.semantic),
        ];
        flags.into_iter().fold(to, |set, (service, flag)| match flag {
            Some(true) => set.with(service),
            Some(false) => set.without(service),
            None => set,
        })
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
