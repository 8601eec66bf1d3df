//! Worked examples: which pools a node joins, what it lacks for a job, and which node is chosen.

use std::collections::{BTreeSet, HashSet};

use lingua_core::node::Rules;
use lingua_core::{
    LangPair, MissingCapability, Needs, Query, RejectReason, Roster, SemanticRule, Service,
    ServiceSet, Slot,
};
use rstest::rstest;

use crate::fixture::{caps, enroll, langs, nmt, pair};

const SPEECH: Needs = Needs::SPEECH_TO_SPEECH;
const TEXT: Needs = Needs::SPEECH_TO_TEXT;

#[rstest]
#[case::two_languages_each_way(
    "zh en",
    "zh en",
    "zh en",
    "*",
    SemanticRule::Declared,
    "zh:zh zh:en en:zh en:en"
)]
#[case::more_targets_than_sources(
    "zh en",
    "zh en",
    "zh en ja",
    "*",
    SemanticRule::Declared,
    "zh:zh zh:en zh:ja en:zh en:en en:ja"
)]
#[case::repair_declared(
    "zh en de",
    "zh en",
    "zh en ja",
    "*",
    SemanticRule::Declared,
    "zh:zh zh:en zh:ja en:zh en:en en:ja de:zh de:en de:ja"
)]
#[case::repair_of_the_source(
    "zh en de",
    "zh en",
    "zh en ja",
    "*",
    SemanticRule::Source,
    "zh:zh zh:en zh:ja en:zh en:en en:ja"
)]
#[case::three_sources_two_targets(
    "zh en de",
    "zh en",
    "zh en",
    "*",
    SemanticRule::Declared,
    "zh:zh zh:en en:zh en:en de:zh de:en"
)]
#[case::the_default_rule(
    "zh en",
    "zh en",
    "zh en",
    "*",
    SemanticRule::Source,
    "zh:zh zh:en en:zh en:en"
)]
#[case::listed_pairs("zh en", "zh en", "zh en", "zh:en en:zh", SemanticRule::Both, "zh:en en:zh")]
#[case::all_sources_repaired(
    "zh en de",
    "zh en de",
    "zh en",
    "*",
    SemanticRule::Source,
    "zh:zh zh:en en:zh en:en de:zh de:en"
)]
#[case::listed_pairs_by_source(
    "en zh",
    "en zh",
    "en zh",
    "en:zh zh:en",
    SemanticRule::Source,
    "en:zh zh:en"
)]
#[case::both_repaired(
    "en zh",
    "en zh",
    "en zh",
    "*",
    SemanticRule::Both,
    "en:en en:zh zh:en zh:zh"
)]
fn a_node_joins_these_pools(
    #[case] asr: &str,
    #[case] semantic: &str,
    #[case] tts: &str,
    #[case] pairs: &str,
    #[case] rule: SemanticRule,
    #[case] expected: &str,
) {
    let caps = caps(asr, semantic, tts, pairs).unwrap();
    let expected: BTreeSet<LangPair> = expected.split_whitespace().map(pair).collect();
    let joined: BTreeSet<LangPair> = caps.pairs(rule).collect();
    assert_eq!(joined, expected);
    assert_eq!(caps.pair_count(rule), expected.len());
    for pool in expected {
        assert_eq!(caps.missing(pool, SPEECH, rule), None);
    }
}

#[test]
fn a_pool_is_directed() {
    let one_way = caps("zh", "zh", "en", "*").unwrap();
    assert_eq!(one_way.missing(pair("zh:en"), SPEECH, SemanticRule::Source), None);
    assert!(one_way.missing(pair("en:zh"), SPEECH, SemanticRule::Source).is_some());
}

#[test]
fn five_by_four_languages_make_twenty_pools() {
    let many = caps("zh en de fr es", "zh en de fr", "zh en de fr", "*").unwrap();
    assert_eq!(many.pair_count(SemanticRule::Declared), 20);
    assert_eq!(many.pair_count(SemanticRule::Source), 16, "es is recognised but not repaired");
}

/// What a node with these lists lacks for a pool whose both ends are repaired.
fn lack(lists: [&str; 4], pool: &str) -> Option<String> {
    let [asr, semantic, tts, pairs] = lists;
    let caps = caps(asr, semantic, tts, pairs).expect("valid lists");
    let found = caps.missing(pair(pool), SPEECH, SemanticRule::Both);
    found.map(|lack| lack.to_string())
}

#[rstest]
#[case::all_four(["zh en", "zh en", "en", "*"], None)]
#[case::c1_semantic_source(["zh en", "en", "en", "*"], Some("semantic(zh) missing"))]
#[case::c1_semantic_target(["zh en", "zh", "en", "*"], Some("semantic(en) missing"))]
#[case::c2_asr_source(["en", "zh en", "en", "*"], Some("asr(zh) missing"))]
#[case::c3_tts_target(["zh en", "zh en", "zh", "*"], Some("tts(en) missing"))]
#[case::c4_nmt_pair(["zh en", "zh en", "en", "en:zh"], Some("nmt(zh->en) missing"))]
fn an_exact_pool_needs_all_four_capabilities(
    #[case] lists: [&str; 4],
    #[case] expected: Option<&str>,
) {
    assert_eq!(lack(lists, "zh:en").as_deref(), expected);
}

const NO_SOURCE: Option<&str> = Some("no source language that it can bring to en");

#[rstest]
#[case::all_four(["zh en", "zh en", "en", "*"], None)]
#[case::c1_semantic_target(["zh", "zh", "en", "*"], Some("semantic(en) missing"))]
#[case::c2_tts_target(["zh en", "zh en", "zh", "*"], Some("tts(en) missing"))]
#[case::c3_nmt_into_target(["zh en", "zh en", "en", "zh:ja"], NO_SOURCE)]
#[case::c4_a_source_that_is_repaired(["zh", "en", "en", "*"], NO_SOURCE)]
#[case::c3_and_c4_must_meet_in_one_source(["zh ja", "ja en", "en", "zh:en"], NO_SOURCE)]
fn a_mixed_pool_needs_one_source_that_meets_all_conditions(
    #[case] lists: [&str; 4],
    #[case] expected: Option<&str>,
) {
    assert_eq!(lack(lists, "auto:en").as_deref(), expected);
}

/// `zh → en` looks in pool `zh:en`, `auto → en` looks in pool `*:en`.
#[test]
fn the_source_names_the_pool() {
    assert_eq!(pair("zh:en").to_string(), "zh:en");
    assert_eq!(pair("auto:en").to_string(), "*:en");
    let mut roster = Roster::new(Rules { semantic: SemanticRule::Both, ..Rules::default() });
    enroll(&mut roster, 0, caps("zh en", "zh en", "zh en", "zh:en en:zh").unwrap(), 4);
    for pool in ["zh:en", "en:zh", "auto:en", "auto:zh"] {
        assert!(roster.choose(&Query::new(pair(pool)), 0, 0).slot.is_some(), "{pool}");
    }
    for pool in ["zh:zh", "auto:ja"] {
        assert_eq!(roster.choose(&Query::new(pair(pool)), 0, 0).capable, 0, "{pool}");
    }
}

/// One node in two pools takes a job of each, within its slots.
#[test]
fn one_node_serves_two_pools_within_its_slots() {
    let mut roster = Roster::new(Rules::default());
    enroll(&mut roster, 0, caps("zh en", "zh en", "zh en", "zh:en en:zh").unwrap(), 2);
    let slot = Slot::new(0).unwrap();
    for (used, pool) in [(0, "zh:en"), (1, "en:zh")] {
        roster.set_used(slot, used);
        assert_eq!(roster.choose(&Query::new(pair(pool)), 0, 0).slot, Some(slot));
    }
    roster.set_used(slot, 2);
    let full = roster.choose(&Query::new(pair("zh:en")), 0, 0);
    assert_eq!((full.slot, full.capable, full.free), (None, 1, 0));
}

/// Two nodes in the same two pools share the work.
#[test]
fn two_nodes_share_two_pools() {
    let mut roster = Roster::new(Rules::default());
    for slot in 0..2 {
        enroll(&mut roster, slot, caps("zh en", "zh en", "zh en", "*").unwrap(), 4);
    }
    let first = roster.choose(&Query::new(pair("zh:en")), 0, 7).slot.unwrap();
    roster.set_used(first, 4);
    let second = roster.choose(&Query::new(pair("en:zh")), 0, 7).slot.unwrap();
    assert_ne!(first, second);
}

#[rstest]
#[case::served("en zh", "en:zh zh:en", None)]
#[case::semantic_source("zh", "en:zh", Some("semantic(en) missing"))]
#[case::nmt("en zh", "zh:en", Some("nmt(en->zh) missing"))]
fn repair_of_the_source_is_required(
    #[case] semantic: &str,
    #[case] pairs: &str,
    #[case] lack: Option<&str>,
) {
    // The node recognises both languages, so that only repair and translation decide.
    let caps = caps("en zh", semantic, "en zh", pairs).unwrap();
    let found = caps.missing(pair("en:zh"), TEXT, SemanticRule::Source);
    assert_eq!(found.map(|lack| lack.to_string()).as_deref(), lack);
}

#[test]
fn tts_counts_only_when_the_job_wants_speech() {
    let silent = caps("en zh", "en zh", "en", "*").unwrap();
    assert_eq!(silent.missing(pair("en:zh"), TEXT, SemanticRule::Source), None);
    let lack = silent.missing(pair("en:zh"), SPEECH, SemanticRule::Source);
    assert_eq!(lack.unwrap().to_string(), "tts(zh) missing");
}

#[rstest]
fn a_service_that_is_off_is_not_used(
    #[values(Service::Asr, Service::Semantic, Service::Nmt, Service::Tts)] off: Service,
) {
    let all = caps("en zh", "en zh", "en zh", "*").unwrap();
    assert_eq!(all.missing(pair("en:zh"), SPEECH, SemanticRule::Source), None);
    let services = ServiceSet::ALL.without(off);
    let parts = (langs("en zh"), langs("en zh"), langs("en zh"), nmt("*"));
    let without = lingua_core::Capabilities::new(parts.0, parts.1, parts.2, parts.3, services);
    let lack = without.unwrap().missing(pair("en:zh"), SPEECH, SemanticRule::Source);
    assert_eq!(lack, Some(MissingCapability::Service(off)));
}

#[test]
fn tone_is_needed_only_by_jobs_that_ask_for_it() {
    let services = ServiceSet::ALL.without(Service::Tone);
    let node = lingua_core::Capabilities::new(
        langs("en zh"),
        langs("en zh"),
        langs("en zh"),
        nmt("*"),
        services,
    );
    let node = node.unwrap();
    assert_eq!(node.missing(pair("en:zh"), SPEECH, SemanticRule::Source), None);
    let with_tone = Needs { extra: ServiceSet::EMPTY.with(Service::Tone), ..SPEECH };
    let lack = node.missing(pair("en:zh"), with_tone, SemanticRule::Source);
    assert_eq!(lack, Some(MissingCapability::Service(Service::Tone)));
}

/// The node that the user names must be able to do the job, and may be full.
#[test]
fn a_preferred_node_is_checked() {
    let mut roster = Roster::new(Rules::default());
    enroll(&mut roster, 0, caps("en zh", "en zh", "en zh", "*").unwrap(), 1);
    enroll(&mut roster, 1, caps("fr", "fr", "fr", "*").unwrap(), 1);
    let query = Query::new(pair("en:zh"));
    let slot = |n| Slot::new(n).unwrap();
    assert_eq!(roster.admits(slot(0), &query, 0), Ok(()));
    let incapable = roster.admits(slot(1), &query, 0).unwrap_err();
    assert!(incapable.is_incapable());
    roster.set_used(slot(0), 1);
    assert_eq!(roster.admits(slot(0), &query, 0), Err(RejectReason::Full));
    assert!(!RejectReason::Full.is_incapable());
}

/// A session does not stay on one node.
#[test]
fn turns_of_a_session_spread_over_the_nodes() {
    let mut roster = Roster::new(Rules::default());
    for slot in 0..50 {
        enroll(&mut roster, slot, caps("en zh", "en zh", "en zh", "*").unwrap(), 2);
    }
    let step = u32::MAX / 50;
    let chosen: HashSet<Slot> = (0..50)
        .filter_map(|turn| roster.choose(&Query::new(pair("en:zh")), 0, turn * step + 1).slot)
        .collect();
    assert!(
        chosen.len() >= 49,
        "50 turns spread evenly over chance reached {} nodes",
        chosen.len()
    );
}
