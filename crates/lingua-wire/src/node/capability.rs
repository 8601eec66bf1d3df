//! What a node can do, as its messages describe it.
//!
//! Start at [`CapabilityFields`]: the fields of a registration that a heartbeat may repeat. Lists
//! come nested (`language_capabilities.asr_languages`) or flat (`asr_langs`); where both are given,
//! the nested one counts. [`CapabilityFields::profile`] makes a `Profile` of them,
//! [`CapabilityFields::update`] changes one.
//!
//! Invariant: a list is refused at its first entry too many, before any entry is looked at; what a
//! heartbeat leaves out stays as it was.

use lingua_core::capability::{LANGS_MAX, NMT_PAIRS_MAX};
use lingua_core::{
    Capabilities, CapabilityError, Epoch, Health, LangSet, Nmt, NodeId, Profile, Service,
    ServiceSet,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::services::with_flag;
use super::{JobRef, LoadFields, ServiceFlags};
use crate::error::{ErrorCode, RequestError};
use crate::json::{As, BoundedList};
use crate::lang;
use crate::limits::{RUNNING_MAX, SLOTS_DEFAULT};

/// The nested lists of languages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LanguageLists {
    /// Languages that the node recognises.
    #[serde(default, with = "LangList", skip_serializing_if = "Option::is_none")]
    pub asr_languages: Option<Vec<String>>,
    /// Languages in which the node repairs recognised text.
    #[serde(default, with = "LangList", skip_serializing_if = "Option::is_none")]
    pub semantic_languages: Option<Vec<String>>,
    /// Languages that the node speaks.
    #[serde(default, with = "LangList", skip_serializing_if = "Option::is_none")]
    pub tts_languages: Option<Vec<String>>,
    /// Directions that the node translates; any to any if they are left out.
    #[serde(default, with = "PairList", skip_serializing_if = "Option::is_none")]
    pub nmt_pairs: Option<Vec<(String, String)>>,
}

type LangList = BoundedList<String, LANGS_MAX>;
type PairList = BoundedList<(String, String), NMT_PAIRS_MAX>;

const NO_LISTS: LanguageLists = LanguageLists {
    asr_languages: None,
    semantic_languages: None,
    tts_languages: None,
    nmt_pairs: None,
};

/// Declares [`CapabilityFields`], and [`NodeFields`] with the same fields and some more.
macro_rules! capability_fields {
    ($($(#[$meta:meta])* pub $field:ident: $Type:ty,)*) => {
        /// The fields that describe what a node can do.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
        pub struct CapabilityFields {
            $($(#[$meta])* pub $field: $Type,)*
        }

        /// A registration or a heartbeat as it is read: the fields of both. serde's `flatten` would
        /// keep all lists in memory, however long they are, before the first bound is checked.
        #[derive(Deserialize)]
        pub(super) struct NodeFields {
            #[serde(default, with = "As::<Option<NodeId>>")]
            pub(super) node_id: Option<NodeId>,
            pub(super) version: Option<String>,
            #[serde(default, with = "As::<Option<Epoch>>")]
            pub(super) epoch: Option<Epoch>,
            #[serde(default, with = "As::<Option<Health>>")]
            pub(super) health: Option<Health>,
            pub(super) current_load: Option<LoadFields>,
            #[serde(default, with = "BoundedList::<JobRef, RUNNING_MAX>")]
            pub(super) running: Option<Vec<JobRef>>,
            $($(#[$meta])* $field: $Type,)*
        }

        impl NodeFields {
            /// Reads the fields, and hands out those that are capabilities.
            pub(super) fn read<'de, D: Deserializer<'de>>(
                from: D,
            ) -> Result<(Self, CapabilityFields), D::Error> {
                let mut fields = Self::deserialize(from)?;
                let capability = CapabilityFields { $($field: fields.$field.take(),)* };
                Ok((fields, capability))
            }
        }
    };
}

capability_fields! {
    /// The lists, nested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language_capabilities: Option<LanguageLists>,
    /// Languages that the node recognises, flat.
    #[serde(default, with = "LangList", skip_serializing_if = "Option::is_none")]
    pub asr_langs: Option<Vec<String>>,
    /// Languages in which the node repairs recognised text, flat.
    #[serde(default, with = "LangList", skip_serializing_if = "Option::is_none")]
    pub semantic_langs: Option<Vec<String>>,
    /// Languages that the node speaks, flat.
    #[serde(default, with = "LangList", skip_serializing_if = "Option::is_none")]
    pub tts_langs: Option<Vec<String>>,
    /// Directions that the node translates, flat.
    #[serde(default, with = "PairList", skip_serializing_if = "Option::is_none")]
    pub nmt_pairs: Option<Vec<(String, String)>>,
    /// Which services are on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services: Option<ServiceFlags>,
    /// How many jobs the node runs at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_jobs: Option<u64>,
    /// Whether the node gets a job with its first sound, and the audio while it is being spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streaming: Option<bool>,
    /// Whether the node accepts jobs of all tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept_public_jobs: Option<bool>,
}

impl CapabilityFields {
    /// Whether no field is given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The profile of a node that registers with these fields.
    pub fn profile(&self) -> Result<Profile, RequestError> {
        let semantic = self.langs(Service::Semantic)?;
        let asr = match self.langs(Service::Asr)? {
            // Nodes that write the flat shape may know no list for recognition: what they repair
            // was recognised.
            None if self.language_capabilities.is_none() => semantic.clone(),
            asr => asr,
        };
        let lists = [asr, semantic, self.langs(Service::Tts)?].map(Option::unwrap_or_default);
        let services = self.services(ServiceFlags::DEFAULT);
        let slots = self.max_concurrent_jobs.unwrap_or(SLOTS_DEFAULT);
        let public = self.accept_public_jobs.unwrap_or(true);
        self.assemble(lists, self.nmt()?.unwrap_or(Nmt::AnyToAny), services, slots, public)
    }

    /// The profile of a node that had `current` and now sends these fields; `None` if nothing
    /// changes.
    pub fn update(&self, current: &Profile) -> Result<Option<Profile>, RequestError> {
        if self.is_empty() {
            return Ok(None);
        }
        let had = current.capabilities();
        let semantic = self.langs(Service::Semantic)?;
        let asr = match self.langs(Service::Asr)? {
            Some(asr) => asr,
            // A node that never had a list for recognition still has none.
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

    /// The services, given those that the node had before.
    fn services(&self, before: ServiceSet) -> ServiceSet {
        let named = self.services.unwrap_or_default().apply(before);
        with_flag(named, Service::Streaming, self.streaming)
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
            RequestError::new(code, &self.list(list).0, &why.to_string())
        })?;
        Profile::new(capabilities, slots, public).map_err(|why| {
            let code = ErrorCode::of_core(why.code());
            RequestError::new(code, "max_concurrent_jobs", &why.to_string())
        })
    }

    /// The name of the field that has a service's list, and the list.
    fn list(&self, service: Service) -> (String, Option<&Vec<String>>) {
        let lists = self.language_capabilities.as_ref().unwrap_or(&NO_LISTS);
        let (name, nested, flat) = match service {
            Service::Asr => ("asr", &lists.asr_languages, &self.asr_langs),
            Service::Semantic => ("semantic", &lists.semantic_languages, &self.semantic_langs),
            Service::Tts => ("tts", &lists.tts_languages, &self.tts_langs),
            Service::Nmt | Service::Tone | Service::Streaming => {
                return ("nmt_pairs".to_owned(), None);
            }
        };
        let is_flat = flat.is_some() || self.language_capabilities.is_none();
        match nested {
            None if is_flat => (format!("{name}_langs"), flat.as_ref()),
            nested => (format!("language_capabilities.{name}_languages"), nested.as_ref()),
        }
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
        let known = pairs
            .iter()
            .enumerate()
            .map(|(at, (src, tgt))| Ok((canonical(at, 0, src)?, canonical(at, 1, tgt)?)))
            .collect::<Result<Vec<_>, RequestError>>()?;
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
        let services = profile.capabilities().services();
        Self {
            language_capabilities: Some(profile.capabilities().into()),
            services: Some(services.into()),
            streaming: Some(services.contains(Service::Streaming)),
            max_concurrent_jobs: Some(u64::from(profile.slots_max())),
            accept_public_jobs: Some(profile.accepts_public()),
            ..Self::default()
        }
    }
}
