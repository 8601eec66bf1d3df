//! A node's capabilities as text: facts, and the list of the sets that it is in.
//!
//! The list is what the index is made from and, read back, what the node can do: one text for both,
//! so that what is removed from the index is what was put in. Facts (`pub`, services, the token as
//! `by=NAME`) stand before a bar and are in no index: what a job needs of them is one set, see
//! [`needs_set`].
//!
//! | set | who is in it |
//! |---|---|
//! | `n:5` | nodes that repair and translate and have these of public, asr, tts, tone, streaming |
//! | `o:alice` | nodes of this tenant |
//! | `l:eu` | nodes with this label |
//! | `a:zh`, `s:zh`, `t:zh` | nodes that recognise, repair, speak this language |
//! | `any` | nodes that translate anything to anything |
//! | `auto` | those of them with a source language that they recognise and repair |
//! | `p:zh:en` | nodes that list this direction |
//! | `i:en` | those of them that bring some source language of theirs to this one |

use std::collections::BTreeSet;

use lingua_core::{
    Capabilities, LabelSet, Lang, LangSet, Nmt, NodeLabel, Profile, SemanticRule, Service,
    ServiceSet, Tenant, TokenName,
};
use lingua_store::Result;

use crate::reply::corrupt;

const PUBLIC: &str = "pub";
const TOKEN: &str = "by=";
pub(super) const ANY: &str = "any";
pub(super) const AUTO: &str = "auto";

/// What a job may need besides repair and translation, which it always does: public, asr, tts,
/// tone, streaming.
const NEEDS: u8 = 5;

fn needs_mask(public: bool, services: ServiceSet) -> u8 {
    let optional = [Service::Asr, Service::Tts, Service::Tone, Service::Streaming];
    let needed = std::iter::once(public).chain(optional.map(|s| services.contains(s)));
    needed.enumerate().map(|(i, needed)| u8::from(needed) << i).sum()
}

/// The set of nodes that have all of these: one look instead of one for each service.
pub(super) fn needs_set(public: bool, services: ServiceSet) -> String {
    format!("n:{}", needs_mask(public, services))
}

fn fact_words(text: &str) -> std::str::Split<'_, char> {
    text.split('|').next().unwrap_or_default().split(' ')
}

/// Whether a node with these capabilities accepts public jobs, and its services.
pub(super) fn facts(text: &str) -> (bool, ServiceSet) {
    let words = fact_words(text);
    let services = words.clone().filter_map(Service::from_name).collect();
    (words.clone().any(|word| word == PUBLIC), services)
}

pub(super) fn lang_set(kind: char, lang: Lang) -> String {
    format!("{kind}:{lang}")
}

pub(super) fn tenant_set(tenant: Tenant) -> String {
    format!("o:{tenant}")
}

pub(super) fn label_set(label: NodeLabel) -> String {
    format!("l:{label}")
}

pub(super) fn pair_set(src: Lang, tgt: Lang) -> String {
    format!("p:{src}:{tgt}")
}

/// The first byte of the text; raised with every change of its form.
pub(crate) const VERSION: char = '3';

/// Facts and the sets that the node is in, separated by spaces; equal profiles give equal texts.
pub(crate) fn encode(profile: &Profile, rule: SemanticRule) -> String {
    let (caps, public) = (profile.capabilities(), profile.accepts_public());
    let services = caps.services();
    let mut text = String::from(VERSION);
    if public {
        text.push(' ');
        text.push_str(PUBLIC);
    }
    for service in services.iter() {
        text.push(' ');
        text.push_str(service.as_str());
    }
    if let Some(token) = profile.token() {
        text.extend([" ", TOKEN, token.as_str()]);
    }
    text.push('|');
    let mut put = |set: &str| {
        text.push(' ');
        text.push_str(set);
    };
    if services.contains(Service::Semantic) && services.contains(Service::Nmt) {
        let has = needs_mask(public, services);
        (0..1 << NEEDS)
            .filter(|mask| mask & has == *mask)
            .for_each(|mask| put(&format!("n:{mask}")));
    }
    put(&tenant_set(profile.tenant()));
    caps.labels().as_slice().iter().for_each(|&label| put(&label_set(label)));
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
pub(crate) fn decode(text: &str, slots_max: u16) -> Result<Profile> {
    let wrong = |what: &str| corrupt(&format!("the capabilities of a node: {what}"));
    let lang = |tag: &str| Lang::new(tag).map_err(|error| wrong(&error.to_string()));
    let (mut asr, mut semantic, mut tts) = (vec![], vec![], vec![]);
    let (mut labels, mut pairs, mut any) = (vec![], vec![], false);
    if !text.starts_with(VERSION) {
        return Err(wrong("another version wrote them"));
    }
    let mut tenant = Tenant::default();
    let (public, services) = facts(text);
    let (_, sets) = text.split_once('|').ok_or_else(|| wrong("no bar"))?;
    for set in sets.split(' ') {
        match set.split_once(':') {
            None => any |= set == ANY,
            Some(("o", name)) => {
                tenant = Tenant::new(name).map_err(|error| wrong(&error.to_string()))?;
            }
            Some(("l", label)) => {
                labels.push(NodeLabel::new(label).map_err(|error| wrong(&error.to_string()))?);
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
    let caps = Capabilities::restored([asr, semantic, tts].map(set), nmt, services)
        .map_err(|error| wrong(&error.to_string()))?;
    let labels = LabelSet::new(labels).map_err(|error| wrong(&error.to_string()))?;
    let caps = caps.with_labels(labels);
    let token = fact_words(text).find_map(|word| word.strip_prefix(TOKEN)).map(TokenName::new);
    let token = token.transpose().map_err(|error| wrong(&error.to_string()))?;
    let profile = Profile::new(caps, slots_max.into(), public);
    let profile = profile.map_err(|error| wrong(&error.to_string()))?;
    Ok(profile.owned_by(tenant).registered_by(token))
}

#[cfg(test)]
mod tests;
