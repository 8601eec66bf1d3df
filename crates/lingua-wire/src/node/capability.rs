//! What a node can do, as it says it.
//!
//! Start at [`CapabilityFields`]: the fields of a registration that a heartbeat may repeat. Lists
//! come nested (`language_capabilities.asr_languages`) or flat (`asr_langs`); where both are given,
//! the nested one counts. [`CapabilityFields::profile`] makes a `Profile` of them,
//! [`CapabilityFields::update`] changes one.
//!
//! Invariant: a list is refused at its first entry too many, before any entry is looked at; what a
//! heartbeat leaves out stays as it was.

use lingua_core::capability::{LANGS_MAX, NMT_PAIRS_MAX};
use lingua_core::{Capabilities, CapabilityError, LangSet, Nmt, Profile, Service, ServiceSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ServiceFlags;
use crate::error::{ErrorCode, RequestError};
use crate::lang;
use crate::limits::SLOTS_DEFAULT;
use crate::plain;

/// The nested lists of languages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LanguageLists {
    /// Languages that it recognises.
    #[serde(
        default,
        deserialize_with = "plain::bounded::<_, _, LANGS_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = LANGS_MAX))]
    pub asr_languages: Option<Vec<String>>,
    /// Languages that it repairs.
    #[serde(
        default,
        deserialize_with = "plain::bounded::<_, _, LANGS_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = LANGS_MAX))]
    pub semantic_languages: Option<Vec<String>>,
    /// Languages that it speaks.
    #[serde(
        default,
        deserialize_with = "plain::bounded::<_, _, LANGS_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = LANGS_MAX))]
    pub tts_languages: Option<Vec<String>>,
    /// Directions that it translates; none given means any to any.
    #[serde(
        default,
        deserialize_with = "plain::bounded::<_, _, NMT_PAIRS_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = NMT_PAIRS_MAX))]
    pub nmt_pairs: Option<Vec<(String, String)>>,
}

/// The fields that say what a node can do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CapabilityFields {
    /// The lists, nested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language_capabilities: Option<LanguageLists>,
    /// Languages that it recognises, flat.
    #[serde(
        default,
        deserialize_with = "plain::bounded::<_, _, LANGS_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = LANGS_MAX))]
    pub asr_langs: Option<Vec<String>>,
    /// Languages that it repairs, flat.
    #[serde(
        default,
        deserialize_with = "plain::bounded::<_, _, LANGS_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = LANGS_MAX))]
    pub semantic_langs: Option<Vec<String>>,
    /// Languages that it speaks, flat.
    #[serde(
        default,
        deserialize_with = "plain::bounded::<_, _, LANGS_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = LANGS_MAX))]
    pub tts_langs: Option<Vec<String>>,
    /// Directions that it translates, flat.
    #[serde(
        default,
        deserialize_with = "plain::bounded::<_, _, NMT_PAIRS_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = NMT_PAIRS_MAX))]
    pub nmt_pairs: Option<Vec<(String, String)>>,
    /// Which services are on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<ServiceFlags>,
    /// How many jobs it takes at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent_jobs: Option<u64>,
    /// Whether it listens along: it gets a job with its first sound, and the audio as it is spoken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streaming: Option<bool>,
    /// Whether it takes jobs of anybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept_public_jobs: Option<bool>,
}

impl CapabilityFields {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The profile of a node that says this and nothing else.
    pub fn profile(&self) -> Result<Profile, RequestError> {
        let semantic = self.langs(Service::Semantic)?;
        let asr = match self.langs(Service::Asr)? {
            // The flat shape knows no list for recognition: what is repaired was recognised.
            None if self.language_capabilities.is_none() => semantic.clone(),
            asr => asr,
        };
        let lists = [asr, semantic, self.langs(Service::Tts)?].map(Option::unwrap_or_default);
        let services = self.services(ServiceFlags::DEFAULT);
        let slots = self.max_concurrent_jobs.unwrap_or(SLOTS_DEFAULT);
        let public = self.accept_public_jobs.unwrap_or(true);
        self.assemble(lists, self.nmt()?.unwrap_or(Nmt::AnyToAny), services, slots, public)
    }

    /// The profile of a node that had this one and says that something is different; `None` if
    /// it says nothing new.
    pub fn update(&self, current: &Profile) -> Result<Option<Profile>, RequestError> {
        if self.is_empty() {
            return Ok(None);
        }
        let had = current.capabilities();
        let semantic = self.langs(Service::Semantic)?;
        let asr = match self.langs(Service::Asr)? {
            Some(asr) => asr,
            // A node that never named a list for recognition still does not.
            None if had.asr() == had.semantic() => semantic.as_ref().unwrap_or(had.asr()).clone(),
            None => had.asr().clone(),
        };
        let semantic = semantic.unwrap_or_else(|| had.semantic().clone());
        let tts = self.langs(Service::Tts)?.unwrap_or_else(|| had.tts().clone());
        let nmt = self.nmt()?.unwrap_or_else(|| had.nmt().clone());
        let services = self.services(had.services());
        let slots = self.max_concurrent_jobs.unwrap_or(u64::from(current.slots_max()));
        let public = self.accept_public_jobs.unwrap_or(current.accepts_public());
        let profile = self.assemble([asr, semantic, tts], nmt, services, slots, public)?;
        Ok(Some(profile).filter(|profile| profile != current))
    }

    /// The services with what is said of them.
    fn services(&self, before: ServiceSet) -> ServiceSet {
        let named = self.services.unwrap_or_default().apply(before);
        match self.streaming {
            Some(true) => named.with(Service::Streaming),
            Some(false) => named.without(Service::Streaming),
            None => named,
        }
    }

    fn assemble(
        &self,
        [asr, semantic, tts]: [LangSet; 3],
        nmt: Nmt,
        services: ServiceSet,
        slots: u64,
        public: bool,
    ) -> Result<Profile, RequestError> {
        let capabilities = Capabilities::new(asr, semantic, tts, nmt, services).map_err(|why| {
            let (CapabilityError::Required(list) | CapabilityError::TooMany { list, .. }) = why;
            let code = ErrorCode::of_core(why.code());
            RequestError::new(code, self.field_of(list), &why.to_string())
        })?;
        Profile::new(capabilities, slots, public).map_err(|why| {
            let code = ErrorCode::of_core(why.code());
            RequestError::new(code, "max_concurrent_jobs", &why.to_string())
        })
    }

    /// The list of a service as it was given, and the name of the field that counts.
    fn list(&self, service: Service) -> (&'static str, Option<&Vec<String>>) {
        let nested = self.language_capabilities.as_ref();
        let (nested, nested_name, flat, flat_name) = match service {
            Service::Asr => (
                nested.and_then(|lists| lists.asr_languages.as_ref()),
                "language_capabilities.asr_languages",
                self.asr_langs.as_ref(),
                "asr_langs",
            ),
            Service::Semantic => (
                nested.and_then(|lists| lists.semantic_languages.as_ref()),
                "language_capabilities.semantic_languages",
                self.semantic_langs.as_ref(),
                "semantic_langs",
            ),
            Service::Tts => (
                nested.and_then(|lists| lists.tts_languages.as_ref()),
                "language_capabilities.tts_languages",
                self.tts_langs.as_ref(),
                "tts_langs",
            ),
            Service::Nmt | Service::Tone | Service::Streaming => return ("nmt_pairs", None),
        };
        let use_flat = flat.is_some() || self.language_capabilities.is_none();
        match nested {
            None if use_flat => (flat_name, flat),
            _ => (nested_name, nested),
        }
    }

    fn field_of(&self, service: Service) -> &'static str {
        self.list(service).0
    }

    fn langs(&self, service: Service) -> Result<Option<LangSet>, RequestError> {
        let (field, Some(list)) = self.list(service) else {
            return Ok(None);
        };
        let canonical = list.iter().enumerate().map(|(at, text)| {
            lang::canonical(text).map_err(|why| lang::refuse(&format!("{field}[{at}]"), text, &why))
        });
        canonical.collect::<Result<LangSet, _>>().map(Some)
    }

    fn nmt(&self) -> Result<Option<Nmt>, RequestError> {
        let nested = self.language_capabilities.as_ref().and_then(|lists| lists.nmt_pairs.as_ref());
        let Some(pairs) = nested.or(self.nmt_pairs.as_ref()) else {
            return Ok(None);
        };
        let prefix = if nested.is_some() { "language_capabilities." } else { "" };
        let canonical = |at: usize, end: usize, text: &str| {
            let field = || format!("{prefix}nmt_pairs[{at}][{end}]");
            lang::canonical(text).map_err(|why| lang::refuse(&field(), text, &why))
        };
        let mut known = Vec::with_capacity(pairs.len());
        for (at, (src, tgt)) in pairs.iter().enumerate() {
            known.push((canonical(at, 0, src)?, canonical(at, 1, tgt)?));
        }
        Ok(Some(Nmt::pairs(known)))
    }
}

impl From<&Capabilities> for LanguageLists {
    fn from(capabilities: &Capabilities) -> Self {
        let tags = |set: &LangSet| Some(set.as_slice().iter().map(ToString::to_string).collect());
        let nmt_pairs = match capabilities.nmt() {
            Nmt::AnyToAny => None,
            Nmt::Pairs(pairs) => {
                Some(pairs.iter().map(|(src, tgt)| (src.to_string(), tgt.to_string())).collect())
            }
        };
        Self {
            asr_languages: tags(capabilities.asr()),
            semantic_languages: tags(capabilities.semantic()),
            tts_languages: tags(capabilities.tts()),
            nmt_pairs,
        }
    }
}

impl From<&Profile> for CapabilityFields {
    fn from(profile: &Profile) -> Self {
        Self {
            language_capabilities: Some(profile.capabilities().into()),
            services: Some(profile.capabilities().services().into()),
            streaming: Some(profile.capabilities().services().contains(Service::Streaming)),
            max_concurrent_jobs: Some(u64::from(profile.slots_max())),
            accept_public_jobs: Some(profile.accepts_public()),
            ..Self::default()
        }
    }
}
