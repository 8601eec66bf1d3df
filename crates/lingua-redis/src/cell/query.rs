//! A job's needs as the list of the sets that a node must be in.
//!
//! The order is the core's: the reply names the first set that a pinned node is not in.

use lingua_core::capability::MissingCapability;
use lingua_core::{NodeState, Query, RejectReason, Resource, SemanticRule, Service, Source};
use lingua_store::Result;
use redis::{RedisWrite, ToRedisArgs};

use super::profile::{ANY, AUTO, facts, label_set, lang_set, needs_set, pair_set, tenant_set};
use crate::reply::corrupt;

/// The sets that a node must be in, each with what it lacks if it is not.
pub(super) struct Sets {
    pub(super) required: Vec<(String, RejectReason)>,
    /// The place, from 1, of the set that counts together with the one after it: it is enough to be
    /// in one of the two.
    pub(super) either: usize,
}

pub(super) fn sets(query: &Query, rule: SemanticRule) -> Sets {
    let mut required = Vec::with_capacity(12);
    let mut put = |set: String, why: RejectReason| {
        required.push((set, why));
        required.len()
    };
    if !query.public {
        put(tenant_set(query.tenant), RejectReason::OtherTenant);
    }
    // Which part of it is missing follows from the node's facts.
    put(needs_set(query.public, query.needs.services()), RejectReason::PrivateOnly);
    for label in query.needs.labels.iter() {
        put(label_set(label), RejectReason::Lacks(MissingCapability::NodeLabel(label)));
    }
    let tgt = query.pair.tgt;
    if let Source::Known(src) = query.pair.src {
        if query.needs.asr {
            put(lang_set('a', src), RejectReason::Lacks(MissingCapability::Asr(src)));
        }
        if rule != SemanticRule::Declared {
            put(lang_set('s', src), RejectReason::Lacks(MissingCapability::Semantic(src)));
        }
    }
    if rule == SemanticRule::Both {
        put(lang_set('s', tgt), RejectReason::Lacks(MissingCapability::Semantic(tgt)));
    }
    let (all, listed, lack) = match query.pair.src {
        Source::Known(src) => (ANY, pair_set(src, tgt), MissingCapability::Nmt(src, tgt)),
        Source::Auto => (AUTO, lang_set('i', tgt), MissingCapability::AutoSource(tgt)),
    };
    let either = put(all.to_owned(), RejectReason::Lacks(lack));
    put(listed, RejectReason::Lacks(lack));
    if query.needs.tts {
        put(lang_set('t', tgt), RejectReason::Lacks(MissingCapability::Tts(tgt)));
    }
    Sets { required, either }
}

/// The names of the sets.
impl ToRedisArgs for &Sets {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        self.required.iter().for_each(|(name, _)| out.write_arg(name.as_bytes()));
    }
}

impl Sets {
    /// What the script says of a pinned node with these capabilities: the number of a set, from 1,
    /// or a word.
    pub(super) fn why(
        &self,
        query: &Query,
        said: &str,
        capabilities: &str,
    ) -> Result<RejectReason> {
        if let Ok(number) = said.parse::<usize>() {
            return match self.required.get(number.wrapping_sub(1)) {
                Some((_, RejectReason::PrivateOnly)) => Ok(lacking(query, capabilities)),
                Some(&(_, why)) => Ok(why),
                None => Err(corrupt("a set that was not asked for")),
            };
        }
        Ok(match said {
            "no_node" => RejectReason::NoNode,
            "superseded" => RejectReason::Superseded,
            "offline" => RejectReason::State(NodeState::Offline),
            "stale" => RejectReason::Stale,
            "registering" => RejectReason::State(NodeState::Registering),
            "degraded" => RejectReason::State(NodeState::Degraded),
            "draining" => RejectReason::State(NodeState::Draining),
            "excluded" => RejectReason::Excluded,
            "cpu" => RejectReason::Overloaded(Resource::Cpu),
            "gpu" => RejectReason::Overloaded(Resource::Gpu),
            "memory" => RejectReason::Overloaded(Resource::Memory),
            "full" => RejectReason::Full,
            other => return Err(corrupt(&format!("a node was refused for {other:?}"))),
        })
    }
}

/// The first of the needed facts that is not there, in the core's order.
fn lacking(query: &Query, capabilities: &str) -> RejectReason {
    let (public, services) = facts(capabilities);
    if query.public && !public {
        return RejectReason::PrivateOnly;
    }
    let needed = query.needs.services();
    let missing = Service::ALL.into_iter().find(|&s| needed.contains(s) && !services.contains(s));
    missing.map_or(RejectReason::PrivateOnly, |service| {
        RejectReason::Lacks(MissingCapability::Service(service))
    })
}
