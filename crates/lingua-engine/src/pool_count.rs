//! Counts the nodes of every pool without a look at every pair of languages.
//!
//! Start at [`PoolCount::of`]. Nodes with the same capabilities are one kind. Of the kinds that
//! translate anything to anything, languages that the same kinds recognise are one class of
//! sources, and languages that the same kinds bring about and speak are one class of targets: all
//! pairs of two classes have equal counts. Kinds that list their pairs are counted pair by pair.
//!
//! Invariant: the counts are those that a look at every pair would give; the test compares.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use lingua_core::{Capabilities, Lang, LangPair, Needs, Nmt, Profile, SemanticRule, Source};

use crate::table::Pool;

/// Nodes with the same capabilities, counted.
pub(crate) type Kind = (Arc<Profile>, Pool);

/// A set of kinds, as bits.
type KindSet = Box<[u64]>;

/// The pools of a fleet, by classes of languages.
pub(crate) struct PoolCount<'a> {
    /// The kinds that translate anything to anything and serve speech at all.
    any: Vec<&'a Kind>,
    sources: Classes<KindSet>,
    /// Which kinds translate to a target, and which of them speak it.
    targets: Classes<(KindSet, KindSet)>,
    /// The pairs that some kind lists.
    listed: HashMap<LangPair, Pool>,
    mixed: BTreeMap<Lang, Pool>,
}

/// Languages that the same kinds serve.
struct Classes<K> {
    classes: Vec<(K, Vec<Lang>)>,
    class_of: HashMap<Lang, usize>,
}

impl<K: Clone + Eq + Hash> Classes<K> {
    fn of(kinds_of: BTreeMap<Lang, K>) -> Self {
        let mut classes: Vec<(K, Vec<Lang>)> = vec![];
        let (mut numbers, mut class_of) = (HashMap::new(), HashMap::new());
        for (lang, kinds) in kinds_of {
            let number = *numbers.entry(kinds.clone()).or_insert_with(|| {
                classes.push((kinds, vec![]));
                classes.len() - 1
            });
            classes[number].1.push(lang);
            class_of.insert(lang, number);
        }
        Self { classes, class_of }
    }

    fn find(&self, lang: Lang) -> Option<&K> {
        self.class_of.get(&lang).map(|&number| &self.classes[number].0)
    }
}

fn with(set: &mut KindSet, number: usize) {
    set[number / 64] |= 1 << (number % 64);
}

/// The numbers of the kinds in both sets.
fn in_both<'a>(a: &'a KindSet, b: &'a KindSet) -> impl Iterator<Item = usize> + 'a {
    a.iter().zip(b).enumerate().flat_map(|(word, (a, b))| {
        let bits = a & b;
        (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit)
    })
}

impl<'a> PoolCount<'a> {
    pub(crate) fn of(kinds: &'a [Kind], rule: SemanticRule) -> Self {
        let spoken: BTreeSet<Lang> = kinds.iter().flat_map(|(k, _)| tts(k)).copied().collect();
        let text = Needs::SPEECH_TO_TEXT.services();
        let has_text = |caps: &Capabilities| text.iter().all(|s| caps.services().contains(s));
        let (mut any, mut lists) = (vec![], vec![]);
        for kind in kinds.iter().filter(|(kind, _)| has_text(kind.capabilities())) {
            match kind.0.capabilities().nmt() {
                Nmt::AnyToAny if kind.0.capabilities().sources(rule).next().is_some() => {
                    any.push(kind);
                }
                Nmt::AnyToAny => {}
                Nmt::Pairs(pairs) => lists.push((kind, pairs)),
            }
        }
        let none: KindSet = vec![0; any.len().div_ceil(64)].into();
        let mut sources: BTreeMap<Lang, KindSet> = BTreeMap::new();
        let everyone = {
            let mut all = none.clone();
            (0..any.len()).for_each(|number| with(&mut all, number));
            all
        };
        let translated = if rule == SemanticRule::Both { &none } else { &everyone };
        let mut targets: BTreeMap<Lang, (KindSet, KindSet)> =
            spoken.iter().map(|&tgt| (tgt, (translated.clone(), none.clone()))).collect();
        for (number, (kind, _)) in any.iter().enumerate() {
            let caps = kind.capabilities();
            for src in caps.sources(rule) {
                with(sources.entry(src).or_insert_with(|| none.clone()), number);
            }
            if rule == SemanticRule::Both {
                for tgt in caps.semantic().as_slice() {
                    targets.entry(*tgt).and_modify(|(text, _)| with(text, number));
                }
            }
            let speaks = caps.services().contains(lingua_core::Service::Tts);
            for tgt in caps.tts().as_slice().iter().filter(|_| speaks) {
                targets.entry(*tgt).and_modify(|(_, speech)| with(speech, number));
            }
        }
        let (sources, targets) = (Classes::of(sources), Classes::of(targets));
        let mut count =
            Self { any, sources, targets, listed: HashMap::new(), mixed: BTreeMap::new() };
        count.count_mixed();
        for ((kind, nodes), pairs) in lists {
            count.add_listed(kind.capabilities(), nodes, pairs, rule);
        }
        count
    }

    /// Every target that a kind brings about from some source.
    fn count_mixed(&mut self) {
        for ((text, speech), langs) in &self.targets.classes {
            let pool = self.sum(in_both(text, text), speech);
            if pool.nodes > 0 {
                self.mixed.extend(langs.iter().map(|&tgt| (tgt, pool.clone())));
            }
        }
    }

    fn add_listed(
        &mut self,
        caps: &Capabilities,
        nodes: &Pool,
        pairs: &[(Lang, Lang)],
        rule: SemanticRule,
    ) {
        // Each target of the kind, and whether the kind speaks it.
        let mut targets: BTreeMap<Lang, bool> = BTreeMap::new();
        for &(src, tgt) in pairs {
            let pair = LangPair::known(src, tgt);
            if caps.missing(pair, Needs::SPEECH_TO_TEXT, rule).is_some() {
                continue;
            }
            let speaks = caps.missing(pair, Needs::SPEECH_TO_SPEECH, rule).is_none();
            self.listed.entry(pair).or_default().add(&nodes.speaking(speaks));
            *targets.entry(tgt).or_default() |= speaks;
        }
        for (target, speaks) in targets {
            self.mixed.entry(target).or_default().add(&nodes.speaking(speaks));
        }
    }

    /// The nodes of some kinds; `speech` has those that speak the target.
    fn sum(&self, kinds: impl Iterator<Item = usize>, speech: &KindSet) -> Pool {
        let mut pool = Pool::default();
        for number in kinds {
            let speaks = speech[number / 64] >> (number % 64) & 1 == 1;
            pool.add(&self.any[number].1.speaking(speaks));
        }
        pool
    }

    /// The nodes of a pair that do not list it.
    fn unlisted(&self, src: Lang, tgt: Lang) -> Pool {
        match (self.sources.find(src), self.targets.find(tgt)) {
            (Some(sources), Some((text, speech))) => self.sum(in_both(sources, text), speech),
            _ => Pool::default(),
        }
    }

    /// Whether a pool has nodes.
    pub(crate) fn serves(&self, pair: &str) -> bool {
        pair.parse::<LangPair>().is_ok_and(|pair| match pair.src {
            Source::Auto => self.mixed.contains_key(&pair.tgt),
            Source::Known(src) => {
                self.listed.contains_key(&pair) || self.unlisted(src, pair.tgt).nodes > 0
            }
        })
    }

    /// The largest exact pools, at most `max` and of at least `min_nodes` nodes, the largest first;
    /// and how many were left out.
    pub(crate) fn largest(&self, max: usize, min_nodes: usize) -> (Vec<(LangPair, Pool)>, u32) {
        let mut largest = Largest { max, min_nodes, pools: BTreeMap::new() };
        let mut all = 0_u64;
        for (&pair, listed) in &self.listed {
            let Source::Known(src) = pair.src else { continue };
            let mut pool = self.unlisted(src, pair.tgt);
            all += u64::from(pool.nodes == 0);
            pool.add(listed);
            largest.offer(pair, &pool);
        }
        for (kinds, sources) in &self.sources.classes {
            for ((text, speech), targets) in &self.targets.classes {
                let pool = self.sum(in_both(kinds, text), speech);
                if pool.nodes == 0 {
                    continue;
                }
                all += sources.len() as u64 * targets.len() as u64;
                self.offer_class(&mut largest, sources, targets, &pool);
            }
        }
        let kept: Vec<(LangPair, Pool)> =
            largest.pools.into_iter().map(|((_, pair), pool)| (pair, pool)).collect();
        let left_out = all - kept.len() as u64;
        (kept, u32::try_from(left_out).unwrap_or(u32::MAX))
    }

    /// Offers the pairs of two classes in their order, until one is not among the largest.
    fn offer_class(&self, largest: &mut Largest, sources: &[Lang], targets: &[Lang], pool: &Pool) {
        for &src in sources {
            for &tgt in targets {
                let pair = LangPair::known(src, tgt);
                if !self.listed.contains_key(&pair) && !largest.offer(pair, pool) {
                    return;
                }
            }
        }
    }

    /// The mixed pools, the largest first if there are more than `max`; in the order of their
    /// targets.
    pub(crate) fn into_mixed(self, max: usize) -> BTreeMap<Lang, Pool> {
        let mut mixed = self.mixed;
        if mixed.len() > max {
            let mut by_size: Vec<(Reverse<u32>, Lang)> =
                mixed.iter().map(|(tgt, pool)| (Reverse(pool.nodes), *tgt)).collect();
            by_size.sort_unstable();
            let kept: HashSet<Lang> = by_size.into_iter().take(max).map(|(_, tgt)| tgt).collect();
            mixed.retain(|tgt, _| kept.contains(tgt));
        }
        mixed
    }
}

fn tts(kind: &Profile) -> &[Lang] {
    kind.capabilities().tts().as_slice()
}

/// Where a pool is among all: the largest first.
type PoolRank = (Reverse<u32>, LangPair);

/// The largest pools that were offered.
struct Largest {
    max: usize,
    min_nodes: usize,
    pools: BTreeMap<PoolRank, Pool>,
}

impl Largest {
    /// Keeps a pool if it is among the largest, and returns whether it is.
    fn offer(&mut self, pair: LangPair, pool: &Pool) -> bool {
        let rank = (Reverse(pool.nodes), pair);
        let has_room = self.pools.len() < self.max;
        let is_kept = (pool.nodes as usize) >= self.min_nodes
            && (has_room || self.pools.last_key_value().is_some_and(|(last, _)| rank < *last));
        if is_kept {
            self.pools.insert(rank, pool.clone());
            if self.pools.len() > self.max {
                self.pools.pop_last();
            }
        }
        is_kept
    }
}

#[cfg(test)]
mod tests;
