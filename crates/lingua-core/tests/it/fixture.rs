//! Short ways to write languages, pairs and nodes.

use std::sync::Arc;

use lingua_core::node::COST_MS_UNKNOWN;
use lingua_core::roster::NodeStatus;
use lingua_core::{
    Capabilities, CapabilityError, Lang, LangPair, LangSet, Load, Nmt, NodeState, Profile, Roster,
    ServiceSet, Slot,
};

/// `"zh en"` as a list of languages.
pub(crate) fn langs(words: &str) -> LangSet {
    words.split_whitespace().map(|tag| Lang::new(tag).expect("a language")).collect()
}

/// `"zh:en"` as a pair.
pub(crate) fn pair(text: &str) -> LangPair {
    text.parse().expect("a pair")
}

/// `"zh:en en:zh"` as translation directions, `"*"` as any to any.
pub(crate) fn nmt(words: &str) -> Nmt {
    if words == "*" {
        return Nmt::AnyToAny;
    }
    Nmt::pairs(words.split_whitespace().map(|word| {
        let (src, tgt) = word.split_once(':').expect("src:tgt");
        (Lang::new(src).expect("a language"), Lang::new(tgt).expect("a language"))
    }))
}

/// A node's abilities, all services on.
pub(crate) fn caps(
    asr: &str,
    semantic: &str,
    tts: &str,
    pairs: &str,
) -> Result<Capabilities, CapabilityError> {
    Capabilities::new(langs(asr), langs(semantic), langs(tts), nmt(pairs), ServiceSet::ALL)
}

/// Puts a ready node into a slot of a roster.
pub(crate) fn enroll(roster: &mut Roster, slot: usize, caps: Capabilities, slots: u64) {
    let profile = Profile::new(caps, slots, true).expect("a profile");
    let standing = NodeStatus {
        state: NodeState::Ready,
        fresh_until_ms: u64::MAX,
        load: Load::default(),
        cost_ms: COST_MS_UNKNOWN,
        used: 0,
        limit: lingua_core::node::SLOTS_MAX,
    };
    roster.enroll(Slot::new(slot).expect("a slot"), Arc::new(profile), standing);
}
