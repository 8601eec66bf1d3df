//! A node's capabilities as the list of the sets that it is in.
//!
//! The list is what the index is made from and, read back, what the node can do: one text for both,
//! so that what is removed from the index is what was put in.
//!
//! | set | who is in it |
//! |---|---|
//! | `pub` | nodes that accept public jobs |
//! | `v:asr` | nodes with this service |
//! | `a:zh`, `s:zh`, `t:zh` | nodes that recognise, repair, speak this language |
//! | `any` | nodes that translate anything to anything |
//! | `auto` | those of them with a source language that they recognise and repair |
//! | `p:zh:en` | nodes that list this direction |
//! | `i:en` | those of them that bring some source language of theirs to this one |

use std::collections::BTreeSet;
use std::fmt::Write;

use lingua_core::{Capabilities, Lang, LangSet, Nmt, Profile, SemanticRule, Service, ServiceSet};
use lingua_store::Result;

use crate::reply::corrupt;

pub(super) const PUBLIC: &str = "pub";
pub(super) const ANY: &str = "any";
pub(super) const AUTO: &str = "auto";

pub(super) fn service_set(service: Service) -> String {
    format!("v:{service}")
}

pub(super) fn lang_set(kind: char, lang: Lang) -> String {
    format!("{kind}:{lang}")
}

pub(super) fn pair_set(src: Lang, tgt: Lang) -> String {
    format!("p:{src}:{tgt}")
}

/// The sets that the node is in, separated by spaces; equal profiles give equal texts.
pub(super) fn encode(profile: &Profile, rule: SemanticRule) -> String {
    let caps = profile.capabilities();
    let mut text = String::new();
    let mut put = |set: &str| {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(set);
    };
    if profile.accepts_public() {
        put(PUBLIC);
    }
    caps.services().iter().for_each(|service| put(&service_set(service)));
    for (kind, langs) in [('a', caps.asr()), ('s', caps.semantic()), ('t', caps.tts())] {
        langs.as_slice().iter().for_each(|&lang| put(&lang_set(kind, lang)));
    }
    match caps.nmt() {
        Nmt::AnyToAny => {
            put(ANY);
            if caps.sources(rule).next().is_some() {
                put(AUTO);
            }
        }
        Nmt::Pairs(pairs) => {
            let mut into = BTreeSet::new();
            for &(src, tgt) in pairs {
                put(&pair_set(src, tgt));
                let repairs = rule == SemanticRule::Declared || caps.semantic().contains(src);
                if caps.asr().contains(src) && repairs {
                    into.insert(tgt);
                }
            }
            into.into_iter().for_each(|tgt| put(&lang_set('i', tgt)));
        }
    }
    text
}

/// The profile of a node that is in these sets.
pub(super) fn decode(text: &str, slots_max: u16) -> Result<Profile> {
    let wrong = |what: &str| {
        let mut detail = String::from("the capabilities of a node: ");
        let _ = write!(detail, "{what}");
        corrupt(&detail)
    };
    let lang = |tag: &str| Lang::new(tag).map_err(|error| wrong(&error.to_string()));
    let (mut asr, mut semantic, mut tts) = (vec![], vec![], vec![]);
    let (mut pairs, mut any, mut public) = (vec![], false, false);
    let mut services = ServiceSet::EMPTY;
    for set in text.split(' ') {
        match set.split_once(':') {
            None => {
                any |= set == ANY;
                public |= set == PUBLIC;
            }
            Some(("v", name)) => {
                let service = Service::from_name(name).ok_or_else(|| wrong("an unknown service"))?;
                services = services.with(service);
            }
            Some(("a", tag)) => asr.push(lang(tag)?),
            Some(("s", tag)) => semantic.push(lang(tag)?),
            Some(("t", tag)) => tts.push(lang(tag)?),
            Some(("p", pair)) => {
                let (src, tgt) = pair.split_once(':').ok_or_else(|| wrong("half a pair"))?;
                pairs.push((lang(src)?, lang(tgt)?));
            }
            Some(_) => {}
        }
    }
    let set = |langs: Vec<Lang>| langs.into_iter().collect::<LangSet>();
    let nmt = if any { Nmt::AnyToAny } else { Nmt::pairs(pairs) };
    let caps = Capabilities::new(set(asr), set(semantic), set(tts), nmt, services)
        .map_err(|error| wrong(&error.to_string()))?;
    Profile::new(caps, slots_max.into(), public).map_err(|error| wrong(&error.to_string()))
}

#[cfg(test)]
mod tests {
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
        let no_tone = ServiceSet::ALL.without(Service::Tone);
        for nmt in [Nmt::AnyToAny, listed, Nmt::pairs([])] {
            for (services, public) in [(ServiceSet::ALL, true), (no_tone, false)] {
                let written = profile(nmt.clone(), services, public);
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
            "pub a:en a:zh s:zh t:pt-BR p:en:zh p:zh:en i:en"
        );
        assert!(text(SemanticRule::Declared).ends_with("i:en i:zh"));
    }
}
