//! What a node can do, and whether that is enough for a job.
//!
//! Start at [`Capabilities::missing`]: the rule in its plainest form. A node serves a directed pair
//! if it recognises the source, repairs it, translates source to target and, if the job wants
//! speech, speaks the target. The cell's index ([`Roster`](crate::Roster)) answers the same
//! question for all nodes at once; a property test holds the two together.
//!
//! Invariant: the three language lists are never longer than [`LANGS_MAX`]. At a registration they
//! have languages; a list that is empty later has its service switched off.

use std::fmt;

use crate::label::{LabelSet, NodeLabel, RequiredLabels};
use crate::lang::{Lang, LangPair, Source};
use crate::named_enum;

/// Most languages in one list.
pub const LANGS_MAX: usize = 512;

/// Most explicit translation pairs of one node.
pub const NMT_PAIRS_MAX: usize = 16_384;

named_enum! {
    /// A step of the work on an utterance. The order is that of the bits of a [`ServiceSet`].
    pub enum Service {
        /// Audio to text (speech recognition).
        Asr = "asr",
        /// Repair of the recognised text.
        Semantic = "semantic",
        /// Text to text in another language (machine translation).
        Nmt = "nmt",
        /// Text to audio (speech synthesis).
        Tts = "tts",
        /// Keeping the speaker's tone of voice.
        Tone = "tone",
        /// Recognition while the speaker still speaks.
        Streaming = "streaming",
    }
}

/// A set of [`Service`]s.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct ServiceSet(u8);

impl ServiceSet {
    /// The set without any service.
    pub const EMPTY: Self = Self(0);
    /// The set of all services.
    pub const ALL: Self = Self((1 << Service::ALL.len()) - 1);

    /// The set with this service as well.
    #[must_use]
    pub const fn with(self, service: Service) -> Self {
        Self(self.0 | 1 << service as u8)
    }

    /// The set without this service.
    #[must_use]
    pub const fn without(self, service: Service) -> Self {
        Self(self.0 & !(1 << service as u8))
    }

    /// Whether the service is in the set.
    pub const fn contains(self, service: Service) -> bool {
        self.0 >> service as u8 & 1 == 1
    }

    /// The services in the set.
    pub fn iter(self) -> impl Iterator<Item = Service> {
        Service::ALL.into_iter().filter(move |&service| self.contains(service))
    }
}

impl FromIterator<Service> for ServiceSet {
    fn from_iter<I: IntoIterator<Item = Service>>(services: I) -> Self {
        services.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Debug for ServiceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

named_enum! {
    /// How semantic repair decides which languages a node can serve (`pools.semantic_rule`).
    #[derive(Default)]
    pub enum SemanticRule {
        /// The node only has to have some repair language.
        Declared = "declared",
        /// The source language must be among them.
        #[default]
        Source = "source",
        /// Source and target must be among them.
        Both = "both",
    }
}

/// The services that have a list of languages, in the order of the lists.
const LISTS: [Service; 3] = [Service::Asr, Service::Semantic, Service::Tts];

/// A sorted list of languages without repetition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct LangSet(Box<[Lang]>);

impl LangSet {
    /// Whether the language is in the list.
    pub fn contains(&self, lang: Lang) -> bool {
        self.0.binary_search(&lang).is_ok()
    }

    /// Whether no language is in the list.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The languages in order.
    pub fn as_slice(&self) -> &[Lang] {
        &self.0
    }
}

impl FromIterator<Lang> for LangSet {
    fn from_iter<I: IntoIterator<Item = Lang>>(langs: I) -> Self {
        Self(sorted(langs))
    }
}

/// The items in order, without repetition.
fn sorted<T: Ord>(items: impl IntoIterator<Item = T>) -> Box<[T]> {
    let mut items: Vec<T> = items.into_iter().collect();
    items.sort_unstable();
    items.dedup();
    items.into_boxed_slice()
}

/// Which directions a node translates.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Nmt {
    /// Any language to any other: no list was given.
    AnyToAny,
    /// These directions, sorted, without repetition.
    Pairs(Box<[(Lang, Lang)]>),
}

impl Nmt {
    /// These directions only.
    pub fn pairs(pairs: impl IntoIterator<Item = (Lang, Lang)>) -> Self {
        Self::Pairs(sorted(pairs))
    }

    /// Whether it translates this direction.
    pub fn translates(&self, src: Lang, tgt: Lang) -> bool {
        match self {
            Self::AnyToAny => true,
            Self::Pairs(pairs) => pairs.binary_search(&(src, tgt)).is_ok(),
        }
    }
}

/// What a job needs of a node besides its languages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Needs {
    /// The input is speech, not text.
    pub asr: bool,
    /// The result is speech.
    pub tts: bool,
    /// Services that the job names itself, beside those that the other fields imply.
    pub extra: ServiceSet,
    /// Labels that the node must have.
    pub labels: RequiredLabels,
}

impl Needs {
    /// Speech in, text out.
    pub const SPEECH_TO_TEXT: Self =
        Self { asr: true, tts: false, extra: ServiceSet::EMPTY, labels: RequiredLabels::NONE };
    /// Speech in, speech out.
    pub const SPEECH_TO_SPEECH: Self = Self { tts: true, ..Self::SPEECH_TO_TEXT };

    /// All services that the job needs; repair and translation always.
    pub fn services(self) -> ServiceSet {
        let all = self.extra.with(Service::Semantic).with(Service::Nmt);
        let all = if self.asr { all.with(Service::Asr) } else { all };
        if self.tts { all.with(Service::Tts) } else { all }
    }

    /// Whether a node that has all of this, in the same languages, has what another job needs.
    pub fn covers(self, other: Self) -> bool {
        let has = self.services();
        other.services().iter().all(|service| has.contains(service))
            && self.labels.contains_all(&other.labels)
    }
}

/// The first thing that a node lacks for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum MissingCapability {
    /// The node does not have the service, or has switched it off.
    #[error("service {0} is off")]
    Service(Service),
    /// The job requires a label that the node does not have.
    #[error("label {0} missing")]
    NodeLabel(NodeLabel),
    /// The node does not recognise the source language.
    #[error("asr({0}) missing")]
    Asr(Lang),
    /// The node does not repair this language.
    #[error("semantic({0}) missing")]
    Semantic(Lang),
    /// The node does not translate this direction.
    #[error("nmt({0}->{1}) missing")]
    Nmt(Lang, Lang),
    /// The source is `auto`, and the node has no language that it recognises, repairs and
    /// translates to the target.
    #[error("no source language that it can bring to {0}")]
    AutoSource(Lang),
    /// The node does not speak the target language.
    #[error("tts({0}) missing")]
    Tts(Lang),
}

/// What a node can do, as it registered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Capabilities {
    asr: LangSet,
    semantic: LangSet,
    tts: LangSet,
    nmt: Nmt,
    services: ServiceSet,
    labels: LabelSet,
}

/// Why a node's capabilities are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum CapabilityError {
    /// A list is missing or empty.
    #[error("the {0} language list is empty; every node must say which languages it serves")]
    Required(Service),
    /// A list is too long.
    #[error("the {list} list has {count} entries; at most {max} are allowed")]
    TooMany { list: Service, count: usize, max: usize },
}

impl CapabilityError {
    /// The error code that users see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Required(Service::Asr) => "ASR_LANGUAGES_REQUIRED",
            Self::Required(Service::Semantic) => "SEMANTIC_LANGUAGES_REQUIRED",
            Self::Required(Service::Tts) => "TTS_LANGUAGES_REQUIRED",
            Self::Required(_) | Self::TooMany { .. } => "INVALID_REQUEST",
        }
    }
}

impl Capabilities {
    /// Checks that the lists are neither empty nor too long.
    pub fn new(
        asr: LangSet,
        semantic: LangSet,
        tts: LangSet,
        nmt: Nmt,
        services: ServiceSet,
    ) -> Result<Self, CapabilityError> {
        let lists = [&asr, &semantic, &tts];
        let empty = LISTS.into_iter().zip(lists).find(|(_, list)| list.is_empty());
        match empty {
            Some((service, _)) => Err(CapabilityError::Required(service)),
            None => Self::restored([asr, semantic, tts], nmt, services),
        }
    }

    /// The capabilities of a node that is registered: lists may be empty.
    pub fn restored(
        lists: [LangSet; 3],
        nmt: Nmt,
        services: ServiceSet,
    ) -> Result<Self, CapabilityError> {
        let pairs = match &nmt {
            Nmt::AnyToAny => 0,
            Nmt::Pairs(pairs) => pairs.len(),
        };
        let langs = LISTS.into_iter().zip(&lists).map(|(list, set)| (list, set.0.len(), LANGS_MAX));
        for (list, count, max) in langs.chain([(Service::Nmt, pairs, NMT_PAIRS_MAX)]) {
            if count > max {
                return Err(CapabilityError::TooMany { list, count, max });
            }
        }
        let [asr, semantic, tts] = lists;
        Ok(Self { asr, semantic, tts, nmt, services, labels: LabelSet::default() })
    }

    /// Other lists for recognition, repair and speech, of a node that is registered. A list may be
    /// empty: then its service is off, until the list has languages again. `services` changes the
    /// services further.
    pub fn changed(
        &self,
        lists: [LangSet; 3],
        nmt: Nmt,
        services: impl FnOnce(ServiceSet) -> ServiceSet,
    ) -> Result<Self, CapabilityError> {
        let before = [&self.asr, &self.semantic, &self.tts];
        let mut all = self.services;
        for ((service, had), list) in LISTS.into_iter().zip(before).zip(&lists) {
            if had.is_empty() && !list.is_empty() {
                all = all.with(service);
            }
        }
        let mut all = services(all);
        for (service, list) in LISTS.into_iter().zip(&lists) {
            if list.is_empty() {
                all = all.without(service);
            }
        }
        Ok(Self::restored(lists, nmt, all)?.with_labels(self.labels.clone()))
    }

    /// The same with these labels.
    #[must_use]
    pub fn with_labels(self, labels: LabelSet) -> Self {
        Self { labels, ..self }
    }

    /// All but the labels, for comparisons: what pools depend on.
    pub fn served(&self) -> (&LangSet, &LangSet, &LangSet, &Nmt, ServiceSet) {
        (&self.asr, &self.semantic, &self.tts, &self.nmt, self.services)
    }

    /// The labels of the node.
    pub fn labels(&self) -> &LabelSet {
        &self.labels
    }

    /// Languages that the node recognises.
    pub fn asr(&self) -> &LangSet {
        &self.asr
    }

    /// Languages that the node repairs.
    pub fn semantic(&self) -> &LangSet {
        &self.semantic
    }

    /// Languages that the node speaks.
    pub fn tts(&self) -> &LangSet {
        &self.tts
    }

    /// Directions that the node translates.
    pub fn nmt(&self) -> &Nmt {
        &self.nmt
    }

    /// Services that are switched on.
    pub fn services(&self) -> ServiceSet {
        self.services
    }

    /// The tags by which the node knows a pair that it serves. A node that translates any language
    /// may serve `en-US` although it has registered `en` only.
    pub fn registered(&self, served: LangPair) -> LangPair {
        let has = |tag| [&self.asr, &self.semantic, &self.tts].iter().any(|l| l.contains(tag));
        let is_known = |pair: &LangPair| match pair.src {
            Source::Known(src) => has(src) && has(pair.tgt),
            Source::Auto => has(pair.tgt),
        };
        match self.nmt {
            Nmt::Pairs(_) => served,
            Nmt::AnyToAny => served.lookups().find(is_known).unwrap_or(served),
        }
    }

    /// The first thing that the node lacks for a job; `None` if it can do the job.
    pub fn missing(
        &self,
        pair: LangPair,
        needs: Needs,
        rule: SemanticRule,
    ) -> Option<MissingCapability> {
        if let Some(off) = needs.services().iter().find(|&s| !self.services.contains(s)) {
            return Some(MissingCapability::Service(off));
        }
        if let Some(label) = needs.labels.missing_from(&self.labels) {
            return Some(MissingCapability::NodeLabel(label));
        }
        let tgt = pair.tgt;
        if let Source::Known(src) = pair.src {
            if needs.asr && !self.asr.contains(src) {
                return Some(MissingCapability::Asr(src));
            }
            if !self.repairs_source(src, rule) {
                return Some(MissingCapability::Semantic(src));
            }
        }
        if !self.repairs_target(tgt, rule) {
            return Some(MissingCapability::Semantic(tgt));
        }
        match pair.src {
            Source::Known(src) if !self.nmt.translates(src, tgt) => {
                return Some(MissingCapability::Nmt(src, tgt));
            }
            Source::Auto if !self.sources(rule).any(|src| self.nmt.translates(src, tgt)) => {
                return Some(MissingCapability::AutoSource(tgt));
            }
            _ => {}
        }
        (needs.tts && !self.tts.contains(tgt)).then_some(MissingCapability::Tts(tgt))
    }

    /// Languages that the node recognises and, if the rule asks for it, repairs.
    pub fn sources(&self, rule: SemanticRule) -> impl Iterator<Item = Lang> {
        self.asr.0.iter().copied().filter(move |&src| self.repairs_source(src, rule))
    }

    fn targets(&self, rule: SemanticRule) -> impl Iterator<Item = Lang> {
        self.tts.0.iter().copied().filter(move |&tgt| self.repairs_target(tgt, rule))
    }

    /// Whether the node repairs a source language as far as the rule asks for it.
    pub(crate) fn repairs_source(&self, src: Lang, rule: SemanticRule) -> bool {
        rule == SemanticRule::Declared || self.semantic.contains(src)
    }

    fn repairs_target(&self, tgt: Lang, rule: SemanticRule) -> bool {
        rule != SemanticRule::Both || self.semantic.contains(tgt)
    }

    /// Every exact pool that it belongs to: pairs from speech to speech.
    pub fn pairs(&self, rule: SemanticRule) -> impl Iterator<Item = LangPair> {
        self.sources(rule).flat_map(move |src| {
            let translated = self.targets(rule).filter(move |&tgt| self.nmt.translates(src, tgt));
            translated.map(move |tgt| LangPair::known(src, tgt))
        })
    }

    /// How many exact pools it belongs to, counted in time linear in its lists.
    pub fn pair_count(&self, rule: SemanticRule) -> usize {
        let is_source = |src| self.asr.contains(src) && self.repairs_source(src, rule);
        match &self.nmt {
            Nmt::Pairs(pairs) => {
                let serves = |&&(src, tgt): &&(Lang, Lang)| {
                    is_source(src) && self.tts.contains(tgt) && self.repairs_target(tgt, rule)
                };
                pairs.iter().filter(serves).count()
            }
            Nmt::AnyToAny => self.sources(rule).count() * self.targets(rule).count(),
        }
    }
}
