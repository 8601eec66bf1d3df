//! What a node says that it can do, and what the scheduler makes of it.

use lingua_core::capability::{LANGS_MAX, NMT_PAIRS_MAX};
use lingua_core::{Health, LangPair, Nmt, Profile, SemanticRule, Service, ServiceSet};
use lingua_wire::node::{CapabilityFields, Heartbeat, Register, RegisterParts};
use lingua_wire::{ErrorCode, RequestError, parse, to_json};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use crate::values::lang;

fn register(body: &serde_json::Value) -> Result<RegisterParts, RequestError> {
    parse::<Register>(body.to_string().as_bytes())?.into_parts()
}

fn update(current: &Profile, body: &serde_json::Value) -> Result<Option<Profile>, RequestError> {
    parse::<Heartbeat>(body.to_string().as_bytes())?.capability_update(current)
}

fn languages(profile: &Profile) -> [Vec<&str>; 3] {
    let caps = profile.capabilities();
    [caps.asr(), caps.semantic(), caps.tts()]
        .map(|set| set.as_slice().iter().map(|lang| lang.as_str()).collect())
}

fn flat() -> serde_json::Value {
    json!({"semantic_langs": ["zh_CN", "eng"], "tts_langs": ["en"]})
}

#[test]
fn fields_left_out_of_a_registration_get_their_defaults() {
    let parts = register(&flat()).unwrap();
    assert_eq!(parts.node, None);
    assert_eq!(parts.health, Health::Ready);
    assert_eq!(parts.profile.slots_max(), 4);
    assert!(parts.profile.accepts_public());
    let caps = parts.profile.capabilities();
    assert_eq!(caps.nmt(), &Nmt::AnyToAny);
    let usual = ServiceSet::ALL.without(Service::Tone).without(Service::Streaming);
    assert_eq!(caps.services(), usual);
    assert_eq!(languages(&parts.profile), [vec!["en", "zh-CN"], vec!["en", "zh-CN"], vec!["en"]]);
}

#[test]
fn both_shapes_give_the_same_profile() {
    let lists = json!({"asr_languages": ["zh"], "semantic_languages": ["zh", "en"],
        "tts_languages": ["en"], "nmt_pairs": [["zh", "en"]]});
    let nested = register(&json!({ "language_capabilities": lists })).unwrap();
    let flat = register(&json!({"asr_langs": ["zh"], "semantic_langs": ["zh", "en"],
        "tts_langs": ["en"], "nmt_pairs": [["zh", "en"]]}));
    assert_eq!(Ok(nested), flat);
}

#[test]
fn where_both_shapes_are_given_the_nested_list_counts() {
    let parts = register(&json!({
        "language_capabilities": {"asr_languages": ["zh"], "nmt_pairs": [["zh", "en"]]},
        "asr_langs": ["fr"], "semantic_langs": ["zh"], "tts_langs": ["en"], "nmt_pairs": [],
    }))
    .unwrap();
    assert_eq!(languages(&parts.profile), [vec!["zh"], vec!["zh"], vec!["en"]]);
    assert!(parts.profile.capabilities().nmt().translates(lang("zh"), lang("en")));
}

#[test]
fn services_that_are_not_named_are_on_but_for_tone() {
    let mut body = flat();
    body["services"] = json!({"tts": false, "tone": true, "later": true, "nmt": null});
    let services = register(&body).unwrap().profile.capabilities().services();
    assert_eq!(services, ServiceSet::ALL.without(Service::Tts).without(Service::Streaming));
}

#[rstest]
#[case(json!({"language_capabilities": {"semantic_languages": ["zh"], "tts_languages": ["zh"]}}),
       ErrorCode::AsrLanguagesRequired, "language_capabilities.asr_languages")]
#[case(json!({"asr_langs": [], "semantic_langs": ["zh"], "tts_langs": ["zh"]}),
       ErrorCode::AsrLanguagesRequired, "asr_langs")]
#[case(json!({}), ErrorCode::AsrLanguagesRequired, "asr_langs")]
#[case(json!({"tts_langs": ["zh"]}), ErrorCode::SemanticLanguagesRequired, "semantic_langs")]
#[case(json!({"asr_langs": ["zh"], "tts_langs": ["zh"]}),
       ErrorCode::SemanticLanguagesRequired, "semantic_langs")]
#[case(json!({"asr_langs": ["zh"], "semantic_langs": [], "tts_langs": ["zh"]}),
       ErrorCode::SemanticLanguagesRequired, "semantic_langs")]
#[case(json!({"language_capabilities": {"asr_languages": ["zh"], "semantic_languages": ["zh"]}}),
       ErrorCode::TtsLanguagesRequired, "language_capabilities.tts_languages")]
#[case(json!({"language_capabilities": {"asr_languages": ["zh"], "semantic_languages": ["zh"],
              "tts_languages": []}, "tts_langs": ["zh"]}),
       ErrorCode::TtsLanguagesRequired, "language_capabilities.tts_languages")]
#[case(json!({"semantic_langs": ["zh"], "tts_langs": null}),
       ErrorCode::TtsLanguagesRequired, "tts_langs")]
fn a_missing_or_empty_list_is_refused(
    #[case] body: serde_json::Value,
    #[case] code: ErrorCode,
    #[case] field: &str,
) {
    let error = register(&body).unwrap_err();
    assert_eq!((error.code, error.field.as_str()), (code, field), "{error}");
}

#[test]
fn a_million_languages_are_refused_at_the_first_too_many() {
    // The tail is not JSON: a parser that reads so far reports another error.
    let many = r#""zh","#.repeat(LANGS_MAX + 1);
    let pairs = r#"["zh","en"],"#.repeat(NMT_PAIRS_MAX + 1);
    for (body, field, max) in [
        (format!(r#"{{"asr_langs":[{many} ..."#), "asr_langs", LANGS_MAX),
        (
            format!(r#"{{"language_capabilities":{{"tts_languages":[{many} ..."#),
            "language_capabilities.tts_languages",
            LANGS_MAX,
        ),
        (format!(r#"{{"nmt_pairs":[{pairs} ..."#), "nmt_pairs", NMT_PAIRS_MAX),
    ] {
        let error = parse::<Register>(body.as_bytes()).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidRequest);
        assert!(error.field.starts_with(field), "{error:?}");
        assert!(error.detail.contains(&format!("more than {max} entries")), "{error}");
    }
}

#[test]
fn a_heartbeat_changes_what_it_names_and_nothing_else() {
    let before = register(&json!({"asr_langs": ["zh"], "semantic_langs": ["zh", "en"],
        "tts_langs": ["en"], "nmt_pairs": [["zh", "en"]], "services": {"tone": true},
        "max_concurrent_jobs": 2, "accept_public_jobs": false}))
    .unwrap()
    .profile;
    assert_eq!(update(&before, &json!({"node_id": "n", "health": "ready"})), Ok(None));
    let same = json!({"max_concurrent_jobs": 2, "tts_langs": ["eng"]});
    assert_eq!(update(&before, &same), Ok(None));

    let after = update(&before, &json!({"max_concurrent_jobs": 8})).unwrap().unwrap();
    assert_eq!(after.slots_max(), 8);
    assert_eq!(after.capabilities(), before.capabilities());
    assert!(!after.accepts_public());

    let nested = json!({"language_capabilities": {"tts_languages": ["fr"]}});
    let after = update(&before, &nested).unwrap().unwrap();
    assert_eq!(languages(&after), [vec!["zh"], vec!["en", "zh"], vec!["fr"]]);
    assert_eq!(after.capabilities().nmt(), before.capabilities().nmt());

    let after = update(&before, &json!({"services": {"tts": false}})).unwrap().unwrap();
    let services = before.capabilities().services();
    assert_eq!(after.capabilities().services(), services.without(Service::Tts));
    let after = update(&before, &json!({"streaming": true})).unwrap().unwrap();
    assert_eq!(after.capabilities().services(), services.with(Service::Streaming));
    let after = update(&before, &json!({"nmt_pairs": []})).unwrap().unwrap();
    assert_eq!(after.capabilities().pair_count(SemanticRule::Source), 0);
}

#[test]
fn a_list_that_a_heartbeat_empties_switches_its_service_off_until_it_has_languages() {
    let before = register(&flat()).unwrap().profile;
    let on = before.capabilities().services();
    for (list, service) in [("tts_langs", Service::Tts), ("asr_langs", Service::Asr)] {
        let silent = update(&before, &json!({list: []})).unwrap().unwrap();
        assert_eq!(silent.capabilities().services(), on.without(service));
        let other = update(&silent, &json!({"max_concurrent_jobs": 2})).unwrap().unwrap();
        assert_eq!(other.capabilities().services(), on.without(service));
        let again = update(&other, &json!({list: ["ja"]})).unwrap().unwrap();
        assert_eq!(again.capabilities().services(), on);
        let off = json!({list: ["ja"], "services": {service.as_str(): false}});
        let off = update(&other, &off).unwrap().unwrap();
        assert_eq!(off.capabilities().services(), on.without(service));
    }
    let error = update(&before, &json!({"max_concurrent_jobs": 0})).unwrap_err();
    assert_eq!(error.field, "max_concurrent_jobs");
}

#[test]
fn recognition_follows_repair_for_nodes_that_never_named_it() {
    let before = register(&flat()).unwrap().profile;
    let after = update(&before, &json!({"semantic_langs": ["ja"]})).unwrap().unwrap();
    assert_eq!(languages(&after), [vec!["ja"], vec!["ja"], vec!["en"]]);
    assert!(
        after
            .capabilities()
            .pairs(SemanticRule::Source)
            .any(|pair| { pair == LangPair::known(lang("ja"), lang("en")) })
    );
}

fn tag() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => "[a-z]{2}",
        1 => "[a-zA-Z]{3}",
        1 => "[a-z]{2}[-_][A-Za-z]{2}",
        1 => any::<String>(),
    ]
}

fn fields() -> impl Strategy<Value = CapabilityFields> {
    let list = || proptest::option::of(proptest::collection::vec(tag(), 0..4));
    let pairs = proptest::option::of(proptest::collection::vec((tag(), tag()), 0..4));
    let slots = proptest::option::of(prop_oneof![0_u64..2000, any::<u64>()]);
    (list(), list(), list(), pairs, slots, any::<Option<bool>>()).prop_map(
        |(asr_langs, semantic_langs, tts_langs, nmt_pairs, max_concurrent_jobs, public)| {
            CapabilityFields {
                asr_langs,
                semantic_langs,
                tts_langs,
                nmt_pairs,
                max_concurrent_jobs,
                accept_public_jobs: public,
                labels: public.map(|_| vec!["eu".parse().expect("a label")]),
                ..CapabilityFields::default()
            }
        },
    )
}

fn all_fields(profile: &Profile) -> CapabilityFields {
    let services = profile.capabilities().services();
    CapabilityFields {
        language_capabilities: Some(profile.capabilities().into()),
        services: Some(services.into()),
        streaming: Some(services.contains(Service::Streaming)),
        max_concurrent_jobs: Some(u64::from(profile.slots_max())),
        accept_public_jobs: Some(profile.accepts_public()),
        labels: Some(profile.capabilities().labels().as_slice().to_vec()),
        ..CapabilityFields::default()
    }
}

proptest! {
    #[test]
    fn a_registration_becomes_a_profile_that_survives_the_wire_or_a_named_error(
        capability in fields(),
    ) {
        let sent = Register { capability, ..Register::default() };
        let read: Register = parse(to_json(&sent).as_bytes()).unwrap();
        prop_assert_eq!(&read, &sent);
        match read.into_parts() {
            Ok(parts) => {
                let again = all_fields(&parts.profile);
                prop_assert_eq!(again.profile().unwrap(), parts.profile.clone());
                prop_assert_eq!(again.update(&parts.profile).unwrap(), None);
            }
            Err(error) => {
                prop_assert!(!error.field.is_empty());
                prop_assert!(error.detail.starts_with(&error.field));
            }
        }
    }
}
