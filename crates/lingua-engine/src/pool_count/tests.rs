//! The counts are those of a look at every pair.

use lingua_core::{LangSet, Service, ServiceSet};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

const LANGS: [&str; 8] = ["ar", "de", "en", "es", "fr", "ja", "pt", "zh"];

fn lang(text: &str) -> Lang {
    text.parse().unwrap()
}

fn some_langs(rng: &mut StdRng) -> LangSet {
    let first = LANGS[rng.random_range(0..LANGS.len())];
    let more = LANGS.into_iter().filter(|_| rng.random_bool(0.4));
    more.chain([first]).map(lang).collect()
}

fn kind(rng: &mut StdRng) -> Kind {
    let mut services = ServiceSet::ALL;
    if rng.random_bool(0.1) {
        services = services.without(Service::ALL[rng.random_range(0..4)]);
    }
    let nmt = match rng.random_bool(0.3) {
        true => Nmt::pairs(
            (0..rng.random_range(1..12))
                .map(|_| [0; 2].map(|_| lang(LANGS[rng.random_range(0..LANGS.len())])))
                .map(|[src, tgt]| (src, tgt)),
        ),
        false => Nmt::AnyToAny,
    };
    let [asr, semantic, tts] = [0; 3].map(|_| some_langs(rng));
    let caps = Capabilities::new(asr, semantic, tts, nmt, services).unwrap();
    let (nodes, free) = (rng.random_range(1..4), rng.random_range(0..9));
    let count = Pool { nodes, ready: nodes, free, slots: 4 * nodes, ..Pool::default() };
    (Arc::new(Profile::new(caps, 4, true).unwrap()), count)
}

/// Every pair, one by one.
fn enumerated(
    kinds: &[Kind],
    rule: SemanticRule,
) -> (BTreeMap<LangPair, Pool>, BTreeMap<Lang, Pool>) {
    let spoken: BTreeSet<Lang> = kinds.iter().flat_map(|(k, _)| tts(k)).copied().collect();
    let (mut exact, mut mixed) = (BTreeMap::<_, Pool>::new(), BTreeMap::<_, Pool>::new());
    for (profile, count) in kinds {
        let caps = profile.capabilities();
        let pairs: Vec<(Lang, Lang)> = match caps.nmt() {
            Nmt::Pairs(pairs) => pairs.to_vec(),
            Nmt::AnyToAny => {
                let from = |&src: &Lang| spoken.iter().map(move |&tgt| (src, tgt));
                caps.asr().as_slice().iter().flat_map(from).collect()
            }
        };
        let mut targets: BTreeMap<Lang, bool> = BTreeMap::new();
        for pair in pairs.into_iter().map(|(src, tgt)| LangPair::known(src, tgt)) {
            if caps.missing(pair, Needs::SPEECH_TO_TEXT, rule).is_none() {
                let speaks = caps.missing(pair, Needs::SPEECH_TO_SPEECH, rule).is_none();
                exact.entry(pair).or_default().add(&count.speaking(speaks));
                *targets.entry(pair.tgt).or_default() |= speaks;
            }
        }
        for (target, speaks) in targets {
            mixed.entry(target).or_default().add(&count.speaking(speaks));
        }
    }
    (exact, mixed)
}

#[test]
fn the_counts_are_those_of_a_look_at_every_pair() {
    let rules = [SemanticRule::Declared, SemanticRule::Source, SemanticRule::Both];
    for seed in 0..600 {
        let mut rng = StdRng::seed_from_u64(seed);
        let kinds: Vec<Kind> = (0..rng.random_range(0..9)).map(|_| kind(&mut rng)).collect();
        let rule = rules[seed as usize % 3];
        let (exact, mixed) = enumerated(&kinds, rule);
        let count = PoolCount::of(&kinds, rule);
        for src in LANGS {
            for tgt in LANGS {
                let pair = LangPair::known(lang(src), lang(tgt));
                assert_eq!(count.serves(&pair.to_string()), exact.contains_key(&pair), "{seed}");
            }
        }
        let (max, min_nodes) = (rng.random_range(1..40), rng.random_range(1..4));
        let mut expected: Vec<(LangPair, Pool)> = exact.into_iter().collect();
        let all = expected.len();
        expected.retain(|(_, pool)| pool.nodes as usize >= min_nodes);
        expected.sort_by_key(|(pair, pool)| (Reverse(pool.nodes), *pair));
        expected.truncate(max);
        let left_out = (all - expected.len()) as u32;
        assert_eq!(count.largest(max, min_nodes), (expected, left_out), "seed {seed}");
        assert_eq!(count.into_mixed(usize::MAX), mixed, "seed {seed}");
    }
}

#[test]
fn of_too_many_mixed_pools_the_largest_stay() {
    let mut rng = StdRng::seed_from_u64(7);
    let kinds: Vec<Kind> = (0..8).map(|_| kind(&mut rng)).collect();
    let all = PoolCount::of(&kinds, SemanticRule::Source).into_mixed(usize::MAX);
    let kept = PoolCount::of(&kinds, SemanticRule::Source).into_mixed(3);
    assert_eq!(kept.len(), 3);
    let least = kept.values().map(|pool| pool.nodes).min();
    let others = all.iter().filter(|(tgt, _)| !kept.contains_key(tgt));
    assert!(others.map(|(_, pool)| pool.nodes).max() <= least);
}
