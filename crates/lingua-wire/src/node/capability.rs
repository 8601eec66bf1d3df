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
    Capabilities, CapabilityError, Epoch, LabelSet, LangSet, Nmt, NodeId, NodeLabel, NodeState,
    Profile, Service, ServiceSet,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_with::skip_serializing_none;

use super::{JobRef, LoadFields};
use crate::error::{RequestError, invalid};
use crate::json::{As, BoundedList};
use crate::labels::LabelList;
use crate::lang;
use crate::limits::{RUNNING_MAX, SLOTS_DEFAULT};
use crate::wire_types::wire_types;

wire_types! {
    /// The nested lists of languages.
    #[derive(Default)]
    pub struct LanguageLists {
        /// Languages that the node recognises.
        #[serde(default, with = "LangList")]
        pub asr_languages: Option<Vec<String>>,
        /// Languages in which the node repairs recognised text.
        #[serde(default, with = "LangList")]
        pub semantic_languages: Option<Vec<String>>,
        /// Languages that the node speaks.
        #[serde(default, with = "LangList")]
        pub tts_languages: Option<Vec<String>>,
        /// Directions that the node translates; any to any if they are left out.
        #[serde(default, with = "PairList")]
        pub nmt_pairs: Option<Vec<(String, String)>>,
    }

    /// Which services are on. A service that is not named is on, except `tone`.
    #[derive(Copy, Default)]
    pub struct ServiceFlags {
        /// It recognises speech.
        pub asr: Option<bool>,
        /// It translates text.
        pub nmt: Option<bool>,
        /// It synthesises speech.
        pub tts: Option<bool>,
        /// Keeping the tone of voice.
        pub tone: Option<bool>,
        /// Repair of what was recognised.
        pub semantic: Option<bool>,
    }
}

type LangList = BoundedList<String, LANGS_MAX>;
type PairList = BoundedList<(String, String), NMT_PAIRS_MAX>;

/// The services of a node that names none.
const SERVICES_DEFAULT: ServiceSet =
    ServiceSet::ALL.without(Service::Tone).without(Service::Streaming);

/// Declares [`CapabilityFields`], and [`NodeFields`] with the same fields and some more.
macro_rules! capability_fields {
    ($($(#[$meta:meta])* pub $field:ident: $Type:ty,)*) => {
        /// The fields that describe what a node can do.
        #[skip_serializing_none]
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
            #[serde(default, with = "As::<Option<NodeState>>")]
            pub(super) health: Option<NodeState>,
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
    pub language_capabilities: Option<LanguageLists>,
    /// Languages that the node recognises, flat.
    #[serde(default, with = "LangList")]
    pub asr_langs: Option<Vec<String>>,
    /// Languages in which the node repairs recognised text, flat.
    #[serde(default, with = "LangList")]
    pub semantic_langs: Option<Vec<String>>,
    /// Languages that the node speaks, flat.
    #[serde(default, with = "LangList")]
    pub tts_langs: Option<Vec<String>>,
    /// Directions that the node translates, flat.
    #[serde(default, with = "PairList")]
    pub nmt_pairs: Option<Vec<(String, String)>>,
    /// Which services are on.
    pub services: Option<ServiceFlags>,
    /// How many jobs the node runs at the same time.
    pub max_concurrent_jobs: Option<u64>,
    /// Whether the node gets a job with its first sound, and the audio while it is being spoken.
    pub streaming: Option<bool>,
    /// Whether the node accepts jobs of all tenants.
    pub accept_public_jobs: Option<bool>,
    /// Labels that jobs may require, such as `["eu", "region:eu"]`; an object such as
    /// `{"region": "eu"}` stands for `["region:eu"]`.
    #[serde(default, with = "LabelList")]
    pub labels: Option<Vec<NodeLabel>>,
}

impl CapabilityFields {
    /// The profile of a node that registers with these fields.
    pub fn profile(&self) -> Result<Profile, RequestError> {
        self.profile_after(None)
    }

    /// The profile of a node that had `current` and now sends these fields; `None` if nothing
    /// changes.
    pub fn update(&self, current: &Profile) -> Result<Option<Profile>, RequestError> {
        if *self == Self::default() {
            return Ok(None);
        }
        let profile = self.profile_after(Some(current))?;
        Ok(Some(profile).filter(|profile| profile != current))
    }

    fn profile_after(&self, current: Option<&Profile>) -> Result<Profile, RequestError> {
        let had = current.map(Profile::capabilities);
        // Nodes that write the flat shape may have no list for recognition: what they repair was
        // recognised.
        let is_one_list = match had {
            Some(had) => had.asr() == had.semantic(),
            None => self.language_capabilities.is_none(),
        };
        let semantic = self.langs(Service::Semantic)?;
        let asr = self.langs(Service::Asr)?.or_else(|| semantic.clone().filter(|_| is_one_list));
        let tts = self.langs(Service::Tts)?;
        let nmt = self.nmt()?.or_else(|| had.map(|had| had.nmt().clone()));
        let or_before = |given: Option<LangSet>, before: fn(&Capabilities) -> &LangSet| {
            given.or_else(|| had.map(before).cloned()).unwrap_or_default()
        };
        let lists = [
            or_before(asr, Capabilities::asr),
            or_before(semantic, Capabilities::semantic),
            or_before(tts, Capabilities::tts),
        ];
        let nmt = nmt.unwrap_or(Nmt::AnyToAny);
        let capabilities = match had {
            None => {
                let [asr, semantic, tts] = lists;
                if asr.is_empty() && semantic.is_empty() && self.tts_langs.is_some() {
                    // In the flat shape the list for repair stands for recognition too.
                    return Err(self.required(CapabilityError::Required(Service::Semantic)));
                }
                Capabilities::new(asr, semantic, tts, nmt, self.services(SERVICES_DEFAULT))
            }
            Some(had) => had.changed(lists, nmt, |before| self.services(before)),
        };
        let capabilities = capabilities.map_err(|why| self.required(why))?;
        let capabilities = match &self.labels {
            None => capabilities,
            Some(labels) => capabilities.with_labels(
                LabelSet::new(labels.iter().copied()).map_err(|why| invalid!("labels", "{why}"))?,
            ),
        };
        let slots = current.map_or(SLOTS_DEFAULT, |current| current.slots_max().into());
        let slots = self.max_concurrent_jobs.unwrap_or(slots);
        let public = self.accept_public_jobs.or(current.map(Profile::accepts_public));
        let profile = Profile::new(capabilities, slots, public.unwrap_or(true))
            .map_err(|why| RequestError::of_core(why.code(), "max_concurrent_jobs", &why))?;
        Ok(match current {
            Some(current) => profile.owned_like(current),
            None => profile,
        })
    }

    fn required(&self, why: CapabilityError) -> RequestError {
        let (CapabilityError::Required(list) | CapabilityError::TooMany { list, .. }) = why;
        RequestError::of_core(why.code(), &self.list(list).0, &why)
    }

    /// The services, given those that the node had before.
    fn services(&self, before: ServiceSet) -> ServiceSet {
        let named = self.services.unwrap_or_default();
        let flags = [
            (Service::Asr, named.asr),
            (Service::Nmt, named.nmt),
            (Service::Tts, named.tts),
            (Service::Tone, named.tone),
            (Service::Semantic, named.semantic),
            (Service::Streaming, self.streaming),
        ];
        flags.into_iter().fold(before, |set, (service, flag)| match flag {
            Some(true) => set.with(service),
            Some(false) => set.without(service),
            None => set,
        })
    }

    /// The name of the field that has a service's list, and the list.
    fn list(&self, service: Service) -> (String, Option<&Vec<String>>) {
        let lists = self.language_capabilities.as_ref();
        let (name, nested, flat) = match service {
            Service::Asr => ("asr", lists.map(|l| &l.asr_languages), &self.asr_langs),
            Service::Semantic => {
                ("semantic", lists.map(|l| &l.semantic_languages), &self.semantic_langs)
            }
            Service::Tts => ("tts", lists.map(|l| &l.tts_languages), &self.tts_langs),
            Service::Nmt | Service::Tone | Service::Streaming => {
                return ("nmt_pairs".to_owned(), None);
            }
        };
        match nested {
            None => (format!("{name}_langs"), flat.as_ref()),
            Some(None) if flat.is_some() => (format!("{name}_langs"), flat.as_ref()),
            Some(nested) => (format!("language_capabilities.{name}_languages"), nested.as_ref()),
        }
    }

    fn langs(&self, service: Service) -> Result<Option<LangSet>, RequestError> {
        let (field, Some(list)) = self.list(service) else {
            return Ok(None);
        };
        let langs = list.iter().enumerate();
        let langs = langs.map(|(at, text)| lang::language(format_args!("{field}[{at}]"), text));
        langs.collect::<Result<_, _>>().map(Some)
    }

    fn nmt(&self) -> Result<Option<Nmt>, RequestError> {
        let nested = self.language_capabilities.as_ref().and_then(|lists| lists.nmt_pairs.as_ref());
        let field = nested.map_or("nmt_pairs", |_| "language_capabilities.nmt_pairs");
        let Some(pairs) = nested.or(self.nmt_pairs.as_ref()) else {
            return Ok(None);
        };
        let pair = |(at, (src, tgt)): (usize, &(String, String))| {
            let src = lang::language(format_args!("{field}[{at}][0]"), src)?;
            Ok((src, lang::language(format_args!("{field}[{at}][1]"), tgt)?))
        };
        let pairs: Result<Vec<_>, RequestError> = pairs.iter().enumerate().map(pair).collect();
        Ok(Some(Nmt::pairs(pairs?)))
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
