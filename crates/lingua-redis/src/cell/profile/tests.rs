use super::*;

fn langs(tags: &[&str]) -> LangSet {
    tags.iter().map(|tag| Lang::new(tag).unwrap()).collect()
}

fn profile(nmt: Nmt, services: ServiceSet, public: bool) -> Profile {
    let caps =
        Capabilities::new(langs(&["zh", "en"]), langs(&["zh"]), langs(&["pt-BR"]), nmt, services);
    Profile::new(caps.unwrap(), 4, public).unwrap()
}

#[test]
fn a_profile_reads_back_as_it_was_written() {
    let lang = |tag| Lang::new(tag).unwrap();
    let listed = Nmt::pairs([(lang("zh"), lang("en")), (lang("en"), lang("zh-Hant-TW"))]);
    let no_tone = ServiceSet::ALL.without(Service::Tone).without(Service::Streaming);
    for nmt in [Nmt::AnyToAny, listed, Nmt::pairs([])] {
        for (services, public) in [(ServiceSet::ALL, true), (no_tone, false)] {
            let plain = profile(nmt.clone(), services, public);
            let labels = ["region:eu", "gpu"].map(|label| NodeLabel::new(label).unwrap());
            let caps = plain.capabilities().clone().with_labels(LabelSet::new(labels).unwrap());
            let written = Profile::new(caps, 4, public).unwrap();
            let text = encode(&written, SemanticRule::Source);
            assert_eq!(decode(&text, 4).unwrap(), written, "{text}");
        }
    }
}

#[test]
fn the_sets_are_those_of_the_core_index() {
    let lang = |tag| Lang::new(tag).unwrap();
    let listed = Nmt::pairs([(lang("zh"), lang("en")), (lang("en"), lang("zh"))]);
    let text = |rule| encode(&profile(listed.clone(), ServiceSet::EMPTY, true), rule);
    // English is recognised but not repaired.
    assert_eq!(
        text(SemanticRule::Source),
        "3 pub| o:default a:en a:zh s:zh t:pt-BR p:en:zh p:zh:en i:en"
    );
    assert!(text(SemanticRule::Declared).ends_with("i:en i:zh"));
}

#[test]
fn a_node_is_in_the_set_of_everything_that_it_has_and_of_less() {
    let no_tone = ServiceSet::ALL.without(Service::Tone).without(Service::Streaming);
    let text = encode(&profile(Nmt::AnyToAny, no_tone, true), SemanticRule::Source);
    assert!(
        text.starts_with(
            "3 pub asr semantic nmt tts| n:0 n:1 n:2 n:3 n:4 n:5 n:6 n:7 o:default a:en"
        )
    );
    assert_eq!(needs_set(true, no_tone), "n:7");
    assert_eq!(needs_set(false, ServiceSet::ALL), "n:30");
    assert_eq!(facts(&text), (true, no_tone));
    let no_nmt = ServiceSet::ALL.without(Service::Nmt);
    let text = encode(&profile(Nmt::AnyToAny, no_nmt, false), SemanticRule::Source);
    assert!(text.starts_with("3 asr semantic tts tone streaming| o:default a:en"), "{text}");
}
