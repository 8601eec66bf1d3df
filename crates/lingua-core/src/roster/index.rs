//! Which nodes recognise, repair, translate and speak what, as sets of slots.
//!
//! Start at [`Index::stages`]: it hands out, one after the other, the set of nodes that have each
//! part of what a job needs. Languages are indexed one by one, never pair by pair, so that a node
//! with 100 × 100 languages costs 200 entries and not 10,000; only explicit translation pairs are
//! kept as pairs.
//!
//! Invariant: a slot is in the intersection of all stages if and only if
//! [`Capabilities::missing`](crate::Capabilities::missing) finds nothing missing.

use hashbrown::HashMap;

use super::query::{Query, RejectReason};
use crate::capability::{MissingCapability as Missing, Nmt, SemanticRule, Service};
use crate::id::{Slot, Tenant};
use crate::label::NodeLabel;
use crate::lang::{Lang, Source};
use crate::node::Profile;
use crate::slot_set::SlotSet;

#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    langs: HashMap<Lang, ByLang>,
    services: [SlotSet; Service::ALL.len()],
    labels: HashMap<NodeLabel, SlotSet>,
    public: SlotSet,
    /// The nodes of each tenant.
    tenants: HashMap<Tenant, SlotSet>,
    /// Nodes that translate anything to anything.
    any_to_any: SlotSet,
    /// Of those, the ones with a source language that they recognise and repair.
    auto_any: SlotSet,
    /// Nodes that list their directions.
    pairs: HashMap<(Lang, Lang), SlotSet>,
    /// Of those, the ones that bring some source language of theirs to this target.
    auto_into: HashMap<Lang, SlotSet>,
    /// How many updates there were.
    #[cfg(test)]
    pub(super) updates: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct ByLang {
    asr: SlotSet,
    semantic: SlotSet,
    tts: SlotSet,
}

impl Index {
    /// Adds or removes a node. One walk for both, so that what is added is exactly what is removed.
    pub(super) fn set(&mut self, slot: Slot, profile: &Profile, rule: SemanticRule, member: bool) {
        #[cfg(test)]
        {
            self.updates += 1;
        }
        let caps = profile.capabilities();
        self.public.set(slot, member && profile.accepts_public());
        update_entry(&mut self.tenants, profile.tenant(), |set| set.set(slot, member));
        for (set, service) in self.services.iter_mut().zip(Service::ALL) {
            set.set(slot, member && caps.services().contains(service));
        }
        for &label in caps.labels().as_slice() {
            update_entry(&mut self.labels, label, |set| set.set(slot, member));
        }
        for &lang in caps.asr().as_slice() {
            update_entry(&mut self.langs, lang, |sets| sets.asr.set(slot, member));
        }
        for &lang in caps.semantic().as_slice() {
            update_entry(&mut self.langs, lang, |sets| sets.semantic.set(slot, member));
        }
        for &lang in caps.tts().as_slice() {
            update_entry(&mut self.langs, lang, |sets| sets.tts.set(slot, member));
        }
        match caps.nmt() {
            Nmt::AnyToAny => {
                self.any_to_any.set(slot, member);
                self.auto_any.set(slot, member && caps.sources(rule).next().is_some());
            }
            Nmt::Pairs(pairs) => {
                for &(src, tgt) in pairs {
                    update_entry(&mut self.pairs, (src, tgt), |set| set.set(slot, member));
                    if caps.asr().contains(src) && caps.repairs_source(src, rule) {
                        update_entry(&mut self.auto_into, tgt, |set| set.set(slot, member));
                    }
                }
            }
        }
    }

    /// Calls `stage` with each part of what the job needs and the nodes that have it.
    #[inline]
    pub(super) fn stages(
        &self,
        query: &Query,
        rule: SemanticRule,
        mut stage: impl FnMut(RejectReason, SlotSet),
    ) {
        match query.public {
            true => stage(RejectReason::PrivateOnly, self.public),
            false => {
                let own = self.tenants.get(&query.tenant).copied().unwrap_or_default();
                stage(RejectReason::OtherTenant, own);
            }
        }
        let lacks = RejectReason::Lacks;
        let needed = query.needs.services();
        for (set, service) in self.services.iter().zip(Service::ALL) {
            if needed.contains(service) {
                stage(lacks(Missing::Service(service)), *set);
            }
        }
        for label in query.needs.labels.iter() {
            let labelled = self.labels.get(&label).copied().unwrap_or_default();
            stage(lacks(Missing::NodeLabel(label)), labelled);
        }
        let tgt = query.pair.tgt;
        let into = self.langs.get(&tgt).copied().unwrap_or_default();
        if let Source::Known(src) = query.pair.src {
            let from = self.langs.get(&src).copied().unwrap_or_default();
            if query.needs.asr {
                stage(lacks(Missing::Asr(src)), from.asr);
            }
            if rule != SemanticRule::Declared {
                stage(lacks(Missing::Semantic(src)), from.semantic);
            }
        }
        if rule == SemanticRule::Both {
            stage(lacks(Missing::Semantic(tgt)), into.semantic);
        }
        match query.pair.src {
            Source::Known(src) => {
                let listed = self.pairs.get(&(src, tgt)).copied().unwrap_or_default();
                stage(lacks(Missing::Nmt(src, tgt)), self.any_to_any | listed);
            }
            Source::Auto => {
                let listed = self.auto_into.get(&tgt).copied().unwrap_or_default();
                stage(lacks(Missing::AutoSource(tgt)), self.auto_any | listed);
            }
        }
        if query.needs.tts {
            stage(lacks(Missing::Tts(tgt)), into.tts);
        }
    }

    #[cfg(test)]
    pub(super) fn is_blank(&self) -> bool {
        let sets = [self.public, self.any_to_any, self.auto_any];
        self.langs.is_empty()
            && self.tenants.is_empty()
            && self.labels.is_empty()
            && self.pairs.is_empty()
            && self.auto_into.is_empty()
            && sets.iter().chain(&self.services).all(|set| set.is_empty())
    }
}

/// Changes an entry, and removes it when it is empty: a language that no node has leaves no trace.
fn update_entry<K, V>(map: &mut HashMap<K, V>, key: K, change: impl FnOnce(&mut V))
where
    K: std::hash::Hash + Eq + Copy,
    V: Default + PartialEq,
{
    let entry = map.entry(key).or_default();
    change(entry);
    if *entry == V::default() {
        map.remove(&key);
    }
}
