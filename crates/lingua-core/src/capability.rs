//! What a node can do, and whether that is enough for a job.
//!
//! Start at [`Capabilities::lack`]: the rule in its plainest form. A node serves a directed pair if
//! it recognises the source, repairs it, translates source to target and, if the job wants speech,
//! speaks the target. The cell's index ([`Roster`](crate::Roster)) answers the same question for
//! all nodes at once; a property test holds the two together.
//!
//! Invariant: the three language lists are never empty and never longer than [`LANGS_MAX`].

use std::fmt;

use crate::lang::{Lang, LangPair, Source};

/// Most languages in one list.
pub const LANGS_MAX: usize = 512;

/// Most explicit translation pairs of one node.
pub const NMT_PAIRS_MAX: usize = 16_384;

/// A step of the work on an utterance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Speech recognition.
    Asr,
    /// Repair of what was recognised.
    Semantic,
    /// Machine translation.
    Nmt,
    /// Speech synthesis.
    Tts,
    /// Keeping the speaker's tone of voice.
    Tone,
    /// Listening along while somebody speaks.
    Streaming,
}

impl Service {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Asr, Self::Semantic, Self::Nmt, Self::Tts, Self::Tone, Self::Streaming];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asr => "asr",
            Self::Semantic => "semantic",
            Self::Nmt => "nmt",
            Self::Tts => "tts",
            Self::Tone => "tone",
            Self::Streaming => "streaming",
        }
    }

    /// The service of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.as_str() == name)
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of [`Service`]s.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct ServiceSet(u8);

impl ServiceSet {
    /// No service.
    pub const EMPTY: Self = Self(0);
    /// Every service.
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

    /// The set as a mask, one bit for each of [`Service::ALL`].
    pub const fn mask(self) -> u8 {
        self.0
    }

    /// Its services.
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

/// How semantic repair decides which languages a node can serve (`pools.semantic_rule`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SemanticRule {
    /// The node only has to have some repair language.
    Declared,
    /// The source language must be among them.
    #[default]
    Source,
    /// Source and target must be among them.
    Both,
}

/// A sorted list of languages without repetition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LangSet(Box<[Lang]>);

impl LangSet {
    /// Whether the language is in the list.
    pub fn contains(&self, lang: Lang) -> bool {
        self.0.binary_search(&lang).is_ok()
    }

    /// The languages in order.
    pub fn as_slice(&self) -> &[Lang] {
        &self.0
    }

    fn count_shared(&self, other: &Self) -> usize {
        self.0.iter().filter(|&&lang| other.contains(lang)).count()
    }
}

impl FromIterator<Lang> for LangSet {
    fn from_iter<I: IntoIterator<Item = Lang>>(langs: I) -> Self {
        let mut langs: Vec<Lang> = langs.into_iter().collect();
        langs.sort_unstable();
        langs.dedup();
        Self(langs.into_boxed_slice())
    }
}

/// Which directions a node translates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nmt {
    /// Any language to any other: no list was given.
    AnyToAny,
    /// These directions, sorted, without repetition.
    Pairs(Box<[(Lang, Lang)]>),
}

impl Nmt {
    /// These directions only.
    pub fn pairs(pairs: impl IntoIterator<Item = (Lang, Lang)>) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        pairs.sort_unstable();
        pairs.dedup();
        Self::Pairs(pairs.into_boxed_slice())
    }

    /// Whether it translates this direction.
    pub fn translates(&self, src: Lang, tgt: Lang) -> bool {
        match self {
            Self::AnyToAny => true,
            Self::Pairs(pairs) => pairs.binary_search(&(src, tgt)).is_ok(),
        }
    }
}

/// What a job asks of a node besides its languages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Needs {
    /// The input is speech, not text.
    pub asr: bool,
    /// The answer has to be spoken.
    pub tts: bool,
    /// Further services.
    pub extra: ServiceSet,
}

impl Needs {
    /// Speech in, text out.
    pub const SPEECH_TO_TEXT: Self = Self { asr: true, tts: false, extra: ServiceSet::EMPTY };
    /// Speech in, speech out.
    pub const SPEECH_TO_SPEECH: Self = Self { asr: true, tts: true, extra: ServiceSet::EMPTY };

    /// All services that it takes: repair and translation always.
    pub fn services(self) -> ServiceSet {
        let mut all = self.extra.with(Service::Semantic).with(Service::Nmt);
        if self.asr {
            all = all.with(Service::Asr);
        }
        if self.tts {
            all = all.with(Service::Tts);
        }
        all
    }
}

/// The first thing that a node lacks for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Lack {
    /// A service is not there or is switched off.
    #[error("service {0} is off")]
    Service(Service),
    /// It does not recognise the source language.
    #[error("asr({0}) missing")]
    Asr(Lang),
    /// It does not repair this language.
    #[error("semantic({0}) missing")]
    Semantic(Lang),
    /// It does not translate this direction.
    #[error("nmt({0}->{1}) missing")]
    Nmt(Lang, Lang),
    /// The source is `auto`, and there is no language that it recognises, repairs and translates
    /// to the target.
    #[error("no source language that it can bring to {0}")]
    AutoSource(Lang),
    /// It does not speak the target language.
    #[error("tts({0}) missing")]
    Tts(Lang),
}

/// What a node says that it can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    asr: LangSet,
    semantic: LangSet,
    tts: LangSet,
    nmt: Nmt,
    services: ServiceSet,
}

/// Why a node's capabilities are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CapabilityError {
    /// A list is missing or empty.
    #[error("the {0} language list is empty; every node must say which languages it serves")]
    Required(Service),
    /// A list is too long.
    #[error("the {list} list has {count} entries; at most {max} are allowed")]
    TooMany {
        /// Which list.
        list: Service,
        /// How many entries it has.
        count: usize,
        /// How many it may have.
        max: usize,
    },
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
    /// Checks the lists and takes them.
    pub fn new(
        asr: LangSet,
        semantic: LangSet,
        tts: LangSet,
        nmt: Nmt,
        services: ServiceSet,
    ) -> Result<Self, CapabilityError> {
        for (list, langs) in
            [(Service::Asr, &asr), (Service::Semantic, &semantic), (Service::Tts, &tts)]
        {
            match langs.as_slice().len() {
                0 => return Err(CapabilityError::Required(list)),
                count if count > LANGS_MAX => {
                    return Err(CapabilityError::TooMany { list, count, max: LANGS_MAX });
                }
                _ => {}
            }
        }
        if let Nmt::Pairs(pairs) = &nmt
            && pairs.len() > NMT_PAIRS_MAX
        {
            let (list, count, max) = (Service::Nmt, pairs.len(), NMT_PAIRS_MAX);
            return Err(CapabilityError::TooMany { list, count, max });
        }
        Ok(Self { asr, semantic, tts, nmt, services })
    }

    /// Languages that it recognises.
    pub fn asr(&self) -> &LangSet {
        &self.asr
    }

    /// Languages that it repairs.
    pub fn semantic(&self) -> &LangSet {
        &self.semantic
    }

    /// Languages that it speaks.
    pub fn tts(&self) -> &LangSet {
        &self.tts
    }

    /// Directions that it translates.
    pub fn nmt(&self) -> &Nmt {
        &self.nmt
    }

    /// Services that are on.
    pub fn services(&self) -> ServiceSet {
        self.services
    }

    /// The first thing that it lacks for a job; `None` if it can do the job.
    pub fn lack(&self, pair: LangPair, needs: Needs, rule: SemanticRule) -> Option<Lack> {
        if let Some(off) = needs.services().iter().find(|&s| !self.services.contains(s)) {
            return Some(Lack::Service(off));
        }
        let tgt = pair.tgt;
        if let Source::Known(src) = pair.src {
            if needs.asr && !self.asr.contains(src) {
                return Some(Lack::Asr(src));
            }
            if rule != SemanticRule::Declared && !self.semantic.contains(src) {
                return Some(Lack::Semantic(src));
            }
        }
        if rule == SemanticRule::Both && !self.semantic.contains(tgt) {
            return Some(Lack::Semantic(tgt));
        }
        match pair.src {
            Source::Known(src) if !self.nmt.translates(src, tgt) => {
                return Some(Lack::Nmt(src, tgt));
            }
            Source::Auto if !self.sources(rule).any(|src| self.nmt.translates(src, tgt)) => {
                return Some(Lack::AutoSource(tgt));
            }
            _ => {}
        }
        (needs.tts && !self.tts.contains(tgt)).then_some(Lack::Tts(tgt))
    }

    /// Languages that it recognises and, as far as the rule asks, repairs.
    pub fn sources(&self, rule: SemanticRule) -> impl Iterator<Item = Lang> {
        let any = rule == SemanticRule::Declared;
        self.asr.0.iter().copied().filter(move |&src| any || self.semantic.contains(src))
    }

    /// Every exact pool that it belongs to: pairs from speech to speech.
    pub fn pairs(&self, rule: SemanticRule) -> impl Iterator<Item = LangPair> {
        self.sources(rule).flat_map(move |src| {
            let spoken = self.tts.0.iter().map(move |&tgt| LangPair::known(src, tgt));
            spoken.filter(move |pair| {
                (rule != SemanticRule::Both || self.semantic.contains(pair.tgt))
                    && self.nmt.translates(src, pair.tgt)
            })
        })
    }

    /// How many exact pools it belongs to, counted in time linear in its lists.
    pub fn pair_count(&self, rule: SemanticRule) -> usize {
        let is_source = |src| {
            self.asr.contains(src)
                && (rule == SemanticRule::Declared || self.semantic.contains(src))
        };
        let is_target = |tgt| {
            self.tts.contains(tgt) && (rule != SemanticRule::Both || self.semantic.contains(tgt))
        };
        match &self.nmt {
            Nmt::Pairs(pairs) => {
                pairs.iter().filter(|&&(src, tgt)| is_source(src) && is_target(tgt)).count()
            }
            Nmt::AnyToAny => {
                let targets = match rule {
                    SemanticRule::Both => self.tts.count_shared(&self.semantic),
                    SemanticRule::Declared | SemanticRule::Source => self.tts.0.len(),
                };
                self.sources(rule).count() * targets
            }
        }
    }
}
