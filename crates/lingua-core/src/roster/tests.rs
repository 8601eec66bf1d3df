//! The roster against the plain rule, the policies, and the explanation.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::capability::{Capabilities, LangSet, Needs, Nmt, SemanticRule, Service, ServiceSet};
use crate::id::Tenant;
use crate::label::{LabelSet, NodeLabel, RequiredLabels};
use crate::lang::{Lang, LangPair, Source};

const NOW: u64 = 1_000_000;

fn lang(n: usize) -> Lang {
    Lang::new(["zh", "en", "ja", "fr"][n % 4]).unwrap()
}

fn slot(n: usize) -> Slot {
    Slot::new(n).unwrap()
}

/// A node written down in full, so that the plain rule can be asked about it.
#[derive(Debug, Clone)]
struct Plain {
    profile: Arc<Profile>,
    status: NodeStatus,
}

fn langs(mask: u8) -> LangSet {
    (0..4).filter(|i| mask >> i & 1 == 1).map(lang).collect()
}

fn capabilities() -> impl Strategy<Value = Capabilities> {
    let pairs = prop::option::of(prop::collection::vec((0usize..4, 0usize..4), 0..6));
    let lists = (1u8..16, 1u8..16, 1u8..16);
    (lists, pairs, prop::bits::u8::masked(0b11111), prop::bool::weighted(0.7), 0u8..4).prop_map(
        |((asr, semantic, tts), pairs, services, all_on, labelled)| {
            let nmt = match pairs {
                None => Nmt::AnyToAny,
                Some(pairs) => Nmt::pairs(pairs.into_iter().map(|(s, t)| (lang(s), lang(t)))),
            };
            let on = |s: &Service| all_on || services >> *s as u8 & 1 == 1;
            let services = Service::ALL.into_iter().filter(on).collect();
            let caps = Capabilities::new(langs(asr), langs(semantic), langs(tts), nmt, services);
            caps.unwrap().with_labels(LabelSet::new(labels(labelled)).unwrap())
        },
    )
}

fn node() -> impl Strategy<Value = Plain> {
    let status = (0usize..12, 0u64..10, 0u8..20, 1u32..4, 0u16..6, 0u16..6).prop_map(
        |(state, fresh, busy, cost, used, limit)| NodeStatus {
            // Mostly ready, fresh and idle, or nothing would ever be chosen.
            state: *NodeState::ALL.get(state).unwrap_or(&NodeState::Ready),
            fresh_until_ms: if fresh == 0 { NOW - 1 } else { NOW + fresh - 1 },
            load: match busy {
                0 => Load::new(0.95, 0.0, 0.0).unwrap(),
                1 => Load::new(0.0, 0.9, 0.0).unwrap(),
                2 => Load::new(0.0, 0.0, 1.0).unwrap(),
                _ => Load::default(),
            },
            cost_ms: cost * 500,
            used,
            limit,
        },
    );
    (capabilities(), 1u64..6, prop::bool::weighted(0.8), any::<bool>(), status).prop_map(
        |(capabilities, slots, public, other, status)| {
            let profile = Profile::new(capabilities, slots, public).unwrap();
            Plain { profile: Arc::new(profile.owned_by(tenant(other))), status }
        },
    )
}

fn tenant(other: bool) -> Tenant {
    if other { Tenant::new("other").unwrap() } else { Tenant::default() }
}

/// Any of `eu` and `gpu`.
fn labels(bits: u8) -> impl Iterator<Item = NodeLabel> {
    let all = ["eu", "gpu"].into_iter().enumerate();
    all.filter(move |(i, _)| bits >> i & 1 == 1).map(|(_, label)| NodeLabel::new(label).unwrap())
}

fn query() -> impl Strategy<Value = Query> {
    let src = prop_oneof![
        3 => (0usize..4).prop_map(|n| Source::Known(lang(n))),
        1 => Just(Source::Auto)
    ];
    let policy = prop_oneof![
        Just(Policy::Balanced),
        Just(Policy::LeastLoaded),
        Just(Policy::Random),
        (1u8..5).prop_map(|k| Policy::Sample { k })
    ];
    let exclude = prop::bits::u16::masked(0b1001).prop_map(|m| SlotSet::from_mask(m.into()));
    // Mostly no labels.
    let labelled = prop_oneof![4 => Just(0u8), 1 => 1u8..4];
    (src, 0usize..4, any::<[bool; 5]>(), exclude, policy, labelled).prop_map(
        |(src, tgt, [asr, tts, public, other, keep_last], exclude, policy, labelled)| Query {
            pair: LangPair { src, tgt: lang(tgt) },
            needs: Needs {
                asr,
                tts,
                extra: ServiceSet::EMPTY,
                labels: RequiredLabels::new(labels(labelled)).unwrap(),
            },
            public,
            tenant: tenant(other),
            exclude,
            policy,
            keep_last,
        },
    )
}

fn rules() -> impl Strategy<Value = Rules> {
    prop_oneof![Just(SemanticRule::Declared), Just(SemanticRule::Source), Just(SemanticRule::Both)]
        .prop_map(|semantic| Rules { semantic, ..Rules::default() })
}

fn roster_of(rules: Rules, nodes: &BTreeMap<usize, Plain>) -> Roster {
    let mut roster = Roster::new(rules);
    for (&i, node) in nodes {
        roster.enroll(slot(i), node.profile.clone(), node.status);
    }
    roster
}

/// The capability rule for one node, without any index.
fn plainly_capable(node: &Plain, query: &Query, rules: Rules) -> bool {
    let lack = node.profile.capabilities().missing(query.pair, query.needs, rules.semantic);
    lack.is_none()
        && node.profile.admits(query.public, query.tenant)
        && node.status.fresh_until_ms >= NOW
}

fn plainly_eligible(i: usize, node: &Plain, query: &Query, rules: Rules) -> bool {
    let overloaded = |r| rules.thresholds.exceeded(node.status.load, r);
    plainly_capable(node, query, rules)
        && node.status.state == NodeState::Ready
        && !query.exclude.contains(slot(i))
        && !Resource::ALL.into_iter().any(overloaded)
        && node.status.used < node.profile.slots_max()
}

/// The capacity of the nodes that would be eligible if they were idle.
fn plain_capacity(nodes: &BTreeMap<usize, Plain>, query: &Query, rules: Rules) -> Capacity {
    let mut capacity = Capacity::default();
    for (&i, node) in nodes {
        let idle = Plain { status: NodeStatus { used: 0, ..node.status }, ..node.clone() };
        if plainly_eligible(i, &idle, query, rules) {
            let (max, status) = (node.profile.slots_max(), node.status);
            let weight = u64::from(u32::MAX / status.cost_ms);
            capacity.all += u64::from(max) * weight;
            let free = if status.limit == 0 { 0 } else { max.saturating_sub(status.used) };
            capacity.free += u64::from(free) * weight;
        }
    }
    capacity
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_choice_follows_the_plain_rule(
        rules in rules(),
        nodes in prop::collection::btree_map(0usize..100, node(), 0..8),
        query in query(),
        random in any::<u32>(),
    ) {
        let roster = roster_of(rules, &nodes);
        let choice = roster.choose(&query, NOW, random);
        let capable = nodes.values().filter(|n| plainly_capable(n, &query, rules)).count();
        prop_assert_eq!(usize::from(choice.capable), capable);
        let eligible: Vec<usize> = nodes.iter()
            .filter(|&(&i, n)| plainly_eligible(i, n, &query, rules)).map(|(&i, _)| i).collect();
        let free: u32 = eligible.iter().map(|i| &nodes[i])
            .map(|n| u32::from(n.profile.slots_max() - n.status.used)).sum();
        prop_assert_eq!(choice.free, free);
        prop_assert_eq!(choice.capacity, plain_capacity(&nodes, &query, rules));
        for (&i, node) in &nodes {
            let admitted = roster.admits(slot(i), &query, NOW).is_ok();
            prop_assert_eq!(admitted, plainly_eligible(i, node, &query, rules), "slot {}", i);
        }
        match choice.slot {
            Some(chosen) => prop_assert!(eligible.contains(&chosen.index())),
            None if query.keep_last => {
                // Only few slots may be left.
                let most = (KEPT_PERCENT as usize * nodes.len()).div_ceil(100);
                prop_assert!(free as usize <= most);
                prop_assert!(free == 0 || query.policy == Policy::Balanced);
            }
            None => prop_assert!(eligible.is_empty()),
        }
    }

    #[test]
    fn an_explanation_agrees_with_the_choice(
        rules in rules(),
        nodes in prop::collection::btree_map(0usize..100, node(), 0..8),
        query in query(),
        random in any::<u32>(),
    ) {
        let roster = roster_of(rules, &nodes);
        let explanation = roster.explain(&query, NOW, random);
        prop_assert_eq!(explanation.choice, roster.choose(&query, NOW, random));
        prop_assert_eq!(explanation.verdicts.len(), nodes.len());
        let mut chosen = None;
        for (slot, verdict) in explanation.verdicts {
            let admitted = roster.admits(slot, &query, NOW);
            match verdict {
                NodeVerdict::Chosen { .. } => {
                    prop_assert_eq!(chosen.replace(slot), None);
                    prop_assert_eq!(admitted, Ok(()));
                }
                NodeVerdict::AsGood { .. } | NodeVerdict::Eligible { .. } => {
                    prop_assert_eq!(admitted, Ok(()));
                }
                NodeVerdict::Refused(RejectReason::KeptForRarerPairs) => {
                    prop_assert_eq!(admitted, Ok(()));
                }
                NodeVerdict::Refused(why) => prop_assert_eq!(admitted, Err(why)),
            }
        }
        prop_assert_eq!(chosen, explanation.choice.slot);
    }

    #[test]
    fn lost_languages_leave_the_index(
        rules in rules(),
        old in prop::collection::btree_map(0usize..6, node(), 1..6),
        new in prop::collection::btree_map(0usize..6, node(), 1..6),
        query in query(),
        random in any::<u32>(),
    ) {
        let mut roster = roster_of(rules, &old);
        for &i in old.keys().filter(|i| !new.contains_key(i)) {
            roster.remove(slot(i));
        }
        for (&i, node) in &new {
            roster.enroll(slot(i), node.profile.clone(), node.status);
        }
        let fresh = roster_of(rules, &new);
        prop_assert_eq!(roster.explain(&query, NOW, random), fresh.explain(&query, NOW, random));
        new.keys().for_each(|&i| roster.remove(slot(i)));
        prop_assert!(roster.index.is_blank());
        prop_assert!(roster.enrolled.is_empty() && roster.free.is_empty());
    }
}

fn zh_en_node(slots: u64, cost_ms: u32, used: u16) -> Plain {
    let both = || [lang(0), lang(1)].into_iter().collect::<LangSet>();
    let caps = Capabilities::new(both(), both(), both(), Nmt::AnyToAny, ServiceSet::ALL).unwrap();
    Plain {
        profile: Arc::new(Profile::new(caps, slots, true).unwrap()),
        status: NodeStatus {
            state: NodeState::Ready,
            fresh_until_ms: NOW + 10,
            load: Load::default(),
            cost_ms,
            used,
            limit: slots as u16,
        },
    }
}

fn flexible(mut node: Plain) -> Plain {
    let all = || (0..4).map(lang).collect::<LangSet>();
    let caps = Capabilities::new(all(), all(), all(), Nmt::AnyToAny, ServiceSet::ALL).unwrap();
    let slots = node.profile.slots_max().into();
    node.profile = Arc::new(Profile::new(caps, slots, true).unwrap());
    node
}

fn zh_en(policy: Policy) -> Query {
    Query { policy, ..Query::new(LangPair::known(lang(0), lang(1))) }
}

/// How often each slot is chosen over evenly spread random numbers.
fn shares(roster: &Roster, query: &Query) -> BTreeMap<usize, u32> {
    const DRAWS: u32 = 10_000;
    let mut counts = BTreeMap::new();
    for i in 0..DRAWS {
        // A Weyl sequence: evenly spread, in no order that a policy could follow.
        let random = i.wrapping_mul(0x9E37_79B9);
        if let Some(slot) = roster.choose(query, NOW, random).slot {
            *counts.entry(slot.index()).or_default() += 1;
        }
    }
    counts
}

fn fleet(nodes: impl IntoIterator<Item = Plain>) -> Roster {
    roster_of(Rules::default(), &nodes.into_iter().enumerate().collect())
}

/// The slots that are chosen at all, and that they are chosen equally often.
fn equals(roster: &Roster, query: &Query) -> Vec<usize> {
    let counts = shares(roster, query);
    let fair = 10_000 / counts.len() as u32;
    let is_fair = |n: &u32| (fair * 9 / 10..=fair * 11 / 10).contains(n);
    assert!(counts.values().all(is_fair), "{counts:?}");
    counts.into_keys().collect()
}

#[test]
fn balanced_takes_the_least_expected_delay() {
    // 2000 ms idle; 1000 ms with 4 jobs: 1600 ms; 1000 ms with 3 jobs: 1450 ms.
    let roster = fleet([zh_en_node(8, 2000, 0), zh_en_node(8, 1000, 4), zh_en_node(8, 1000, 3)]);
    assert_eq!(equals(&roster, &zh_en(Policy::Balanced)), [2]);
}

#[test]
fn costs_within_thirty_percent_of_the_best_are_equal() {
    let costs = [1000, 1300, 1301, 1100];
    let roster = fleet(costs.map(|cost_ms| zh_en_node(8, cost_ms, 0)));
    assert_eq!(equals(&roster, &zh_en(Policy::Balanced)), [0, 1, 3]);
    // Of two nodes that count as equal the one with fewer jobs is better, whatever they cost.
    let roster = fleet([zh_en_node(8, 1000, 1), zh_en_node(8, 1140, 0), zh_en_node(8, 1100, 0)]);
    assert_eq!(equals(&roster, &zh_en(Policy::Balanced)), [1, 2]);
}

#[test]
fn six_jobs_on_two_nodes_of_four_slots_go_three_and_three() {
    for seed in 0..100u32 {
        let nodes = [zh_en_node(4, 900, 0), zh_en_node(4, 1100, 0)];
        let mut roster = fleet(nodes);
        for n in 0..6u32 {
            let random = (seed * 6 + n).wrapping_mul(0x9E37_79B9);
            let slot = roster.choose(&zh_en(Policy::Balanced), NOW, random).slot.unwrap();
            roster.set_used(slot, roster.used(slot) + 1);
        }
        assert_eq!([0, 1].map(|n| roster.used(slot(n))), [3, 3]);
    }
}

#[test]
fn a_node_at_its_limit_gets_jobs_only_if_no_other_is_left() {
    let mut new = zh_en_node(4, 10, 1);
    new.status.limit = 1;
    let mut roster = fleet([new, zh_en_node(2, 1000, 1)]);
    assert_eq!(equals(&roster, &zh_en(Policy::Balanced)), [1]);
    roster.set_used(slot(1), 2);
    assert_eq!(equals(&roster, &zh_en(Policy::Balanced)), [0], "a limit refuses nothing");
    roster.set_used(slot(1), 1);
    roster.set_limit(slot(0), 2);
    assert_eq!(equals(&roster, &zh_en(Policy::Balanced)), [0]);
}

#[test]
fn a_limit_doubles_with_a_success_and_halves_with_a_failure() {
    use AttemptOutcome::{Failed, Succeeded, Unknown};
    let after = |outcomes: &[AttemptOutcome]| {
        outcomes.iter().fold(LIMIT_NEW, |limit, &outcome| limit_after(limit, outcome, 6))
    };
    assert_eq!(after(&[]), 1);
    assert_eq!(after(&[Succeeded, Succeeded]), 4);
    assert_eq!(after(&[Succeeded; 9]), 6, "never more than its slots");
    assert_eq!(after(&[Succeeded, Succeeded, Failed, Unknown]), 2);
    assert_eq!(after(&[Failed; 3]), 0);
    assert_eq!(limit_after_heartbeat(after(&[Failed; 3])), 1);
    assert_eq!(after(&[Failed, Succeeded]), 1);
}

#[test]
fn balanced_spreads_over_idle_nodes_before_it_doubles_up() {
    let nodes = (0..10).map(|n| zh_en_node(8, 1000, u16::from(n < 5)));
    let counts = shares(&fleet(nodes), &zh_en(Policy::Balanced));
    assert_eq!(counts.into_keys().collect::<Vec<_>>(), [5, 6, 7, 8, 9]);
}

#[test]
fn balanced_prefers_the_less_flexible_node_and_keeps_last_slots() {
    let common = zh_en_node(4, 1000, 1);
    let rare = flexible(zh_en_node(4, 1000, 1));
    let roster = fleet([common.clone(), rare.clone()]);
    assert_eq!(shares(&roster, &zh_en(Policy::Balanced)).into_keys().collect::<Vec<_>>(), [0]);

    let mut last = rare.clone();
    last.status.used = 3;
    let mut full = common;
    full.status.used = 4;
    let roster = fleet([full, last]);
    let waiting = Query { keep_last: true, ..zh_en(Policy::Balanced) };
    let choice = roster.choose(&waiting, NOW, 0);
    assert_eq!((choice.slot, choice.capable, choice.free), (None, 2, 1));
    let explained = roster.explain(&waiting, NOW, 0).verdicts;
    assert_eq!(explained[1].1, NodeVerdict::Refused(RejectReason::KeptForRarerPairs));
    assert_eq!(roster.choose(&zh_en(Policy::Balanced), NOW, 0).slot, Some(slot(1)));
    let rare_pair = Query { pair: LangPair::known(lang(2), lang(3)), ..waiting };
    assert_eq!(roster.choose(&rare_pair, NOW, 0).slot, Some(slot(1)));
}

#[test]
fn a_few_slots_are_kept_on_all_flexible_nodes_together() {
    let waiting = Query { keep_last: true, ..zh_en(Policy::Balanced) };
    let full = zh_en_node(4, 1000, 4);
    // One of four slots is kept, wherever it is, and no slot of a node that has no other.
    for (max, free, is_kept) in [(1, 2, false), (1, 1, true), (4, 2, false), (4, 1, true)] {
        let flexible_nodes = (0..4).map(|n| {
            let room =
                u16::from(n == 0) * free.min(max) + u16::from(n == 1) * (free - free.min(max));
            flexible(zh_en_node(max.into(), 1000, max - room))
        });
        let roster = fleet([full.clone()].into_iter().chain(flexible_nodes));
        let choice = roster.choose(&waiting, NOW, 0);
        assert_eq!(choice.slot.is_none(), is_kept, "{free} of 4 nodes with {max} slots");
    }
    let alone = fleet([full, flexible(zh_en_node(1, 1000, 0))]);
    assert_eq!(alone.choose(&waiting, NOW, 0).slot, Some(slot(1)));
}

#[test]
fn scarce_flexible_nodes_are_used_only_if_no_other_is_open() {
    let mut slow = zh_en_node(4, 9000, 3);
    let scarce = flexible(zh_en_node(4, 100, 3));
    let nodes = |slow: &Plain| fleet([slow.clone(), scarce.clone()]);
    assert_eq!(nodes(&slow).choose(&zh_en(Policy::Balanced), NOW, 0).slot, Some(slot(0)));
    slow.status.used = 4;
    assert_eq!(nodes(&slow).choose(&zh_en(Policy::Balanced), NOW, 0).slot, Some(slot(1)));
    slow.status.used = 3;
    let idle = flexible(zh_en_node(4, 100, 0));
    let roster = fleet([slow, idle]);
    assert_eq!(roster.choose(&zh_en(Policy::Balanced), NOW, 0).slot, Some(slot(1)));
}

#[test]
fn least_loaded_goes_by_share_not_by_number() {
    let roster = fleet([zh_en_node(2, 1, 1), zh_en_node(8, 9999, 3), zh_en_node(8, 1, 4)]);
    let counts = shares(&roster, &zh_en(Policy::LeastLoaded));
    assert_eq!(counts.into_keys().collect::<Vec<_>>(), [1]);
}

#[test]
fn sample_takes_the_least_used_and_any_of_several() {
    let mut fresher = zh_en_node(8, 1, 1);
    fresher.status.fresh_until_ms += 5;
    let roster = fleet([zh_en_node(8, 1, 1), fresher, zh_en_node(8, 1, 2)]);
    assert_eq!(equals(&roster, &zh_en(Policy::Sample { k: 20 })), [0, 1]);
    assert_eq!(equals(&roster, &zh_en(Policy::Sample { k: 1 })), [0, 1, 2]);
}

#[test]
fn sample_never_misses_a_free_slot() {
    let mut nodes = vec![zh_en_node(1, 1, 1); 99];
    nodes.push(zh_en_node(1, 1, 0));
    let roster = fleet(nodes);
    assert_eq!(shares(&roster, &zh_en(Policy::Sample { k: 1 })), BTreeMap::from([(99, 10_000)]));
}

#[test]
fn random_is_uniform() {
    let roster = fleet((0..10).map(|used| zh_en_node(16, 100 * u32::from(used) + 1, used)));
    let counts = shares(&roster, &zh_en(Policy::Random));
    assert_eq!(counts.len(), 10);
    assert!(counts.values().all(|&n| (900..=1100).contains(&n)), "{counts:?}");
}

#[test]
fn equal_nodes_get_equal_shares() {
    for policy in [Policy::Balanced, Policy::LeastLoaded, Policy::Random, Policy::Sample { k: 20 }]
    {
        let roster = fleet(vec![zh_en_node(4, 1000, 0); 100]);
        let counts = shares(&roster, &zh_en(policy));
        assert_eq!(counts.len(), 100, "{policy:?}");
        assert!(counts.values().all(|&n| (50..=180).contains(&n)), "{policy:?}: {counts:?}");
    }
}

/// Otherwise every heartbeat would rewrite every pool.
#[test]
fn the_same_capabilities_do_not_rewrite_the_index() {
    let mut roster = fleet([zh_en_node(4, 1000, 0)]);
    assert_eq!(roster.index.updates, 1);
    let again = zh_en_node(4, 1000, 0);
    roster.enroll(slot(0), again.profile, again.status);
    assert_eq!(roster.index.updates, 1);
    let other = flexible(zh_en_node(4, 1000, 0));
    roster.enroll(slot(0), other.profile, other.status);
    assert_eq!(roster.index.updates, 3, "out with the old, in with the new");
}

#[test]
fn more_leases_than_slots_is_full_not_a_panic() {
    let roster = fleet([zh_en_node(2, 1000, 5)]);
    let choice = roster.choose(&zh_en(Policy::Balanced), NOW, 0);
    assert_eq!((choice.slot, choice.capable, choice.free), (None, 1, 0));
}
