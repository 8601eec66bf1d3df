//! Instances and their inboxes, in memory.
//!
//! Invariants: two living processes never share a name. An inbox holds a bounded number of messages
//! and keeps each until its reader acknowledges it.

use std::collections::{BTreeMap, VecDeque};

use lingua_core::InstanceId;

use super::StoreLimits;
use crate::contract::{
    ADDRESS_BYTES_MAX, AnnounceReply, AnnounceRequest, BusDelivery, Bytes, Envelope, Incarnation,
    InstanceRecord, MESSAGE_BYTES_MAX,
};
use crate::error::{Result, StoreError};

#[derive(Debug, Clone)]
pub(super) struct Instances {
    limits: StoreLimits,
    known: BTreeMap<InstanceId, Instance>,
}

#[derive(Debug, Clone)]
struct Instance {
    incarnation: Incarnation,
    address: String,
    until_ms: u64,
    inbox: VecDeque<Envelope>,
    last_seq: u64,
}

impl Instances {
    pub(super) fn new(limits: StoreLimits) -> Self {
        Self { limits, known: BTreeMap::new() }
    }

    /// Records that an instance is alive; also returns whether it is new.
    pub(super) fn announce(
        &mut self,
        p: AnnounceRequest,
        now_ms: u64,
    ) -> Result<(AnnounceReply, bool)> {
        let what = "an instance's address in bytes";
        StoreError::check_limit(what, p.address.len(), ADDRESS_BYTES_MAX)?;
        let until_ms = now_ms.saturating_add(p.lease_ms);
        if let Some(known) = self.known.get_mut(&p.instance) {
            let (alive, same) = (known.until_ms >= now_ms, known.incarnation == p.incarnation);
            if alive && !same {
                return Ok((AnnounceReply::NameTaken { until_ms: known.until_ms }, false));
            }
            known.incarnation = p.incarnation;
            known.address = p.address;
            known.until_ms = until_ms;
            return Ok((AnnounceReply::Present, !alive || !same));
        }
        let limit = self.limits.instances_max;
        if self.known.len() >= limit {
            self.known.retain(|_, instance| instance.until_ms >= now_ms);
        }
        StoreError::check_limit("the number of instances", self.known.len() + 1, limit)?;
        let instance = Instance {
            incarnation: p.incarnation,
            address: p.address,
            until_ms,
            inbox: VecDeque::new(),
            last_seq: 0,
        };
        self.known.insert(p.instance, instance);
        Ok((AnnounceReply::Present, true))
    }

    pub(super) fn withdraw(&mut self, instance: &InstanceId, incarnation: Incarnation) -> bool {
        let known = self.known.get(instance).is_some_and(|i| i.incarnation == incarnation);
        if known {
            self.known.remove(instance);
        }
        known
    }

    pub(super) fn list(&self, now_ms: u64) -> Vec<InstanceRecord> {
        let view = |(id, known): (&InstanceId, &Instance)| InstanceRecord {
            instance: id.clone(),
            incarnation: known.incarnation,
            address: known.address.clone(),
            until_ms: known.until_ms,
            alive: known.until_ms >= now_ms,
        };
        self.known.iter().map(view).collect()
    }

    pub(super) fn send(
        &mut self,
        to: &InstanceId,
        message: Bytes,
        now_ms: u64,
    ) -> Result<BusDelivery> {
        StoreError::check_limit("a message in bytes", message.len(), MESSAGE_BYTES_MAX)?;
        let Some(known) = self.known.get_mut(to).filter(|known| known.until_ms >= now_ms) else {
            return Ok(BusDelivery::NoInstance);
        };
        if known.inbox.len() >= self.limits.inbox_max {
            return Ok(BusDelivery::InboxFull);
        }
        // Numbers follow the clock, so that a store that lost its last writes repeats none.
        known.last_seq = (known.last_seq + 1).max(now_ms * 1000);
        known.inbox.push_back(Envelope { seq: known.last_seq, message });
        Ok(BusDelivery::Sent)
    }

    pub(super) fn receive(&mut self, me: &InstanceId, after: u64, limit: usize) -> Vec<Envelope> {
        let Some(known) = self.known.get_mut(me) else { return vec![] };
        while known.inbox.front().is_some_and(|envelope| envelope.seq <= after) {
            known.inbox.pop_front();
        }
        known.inbox.iter().take(limit).cloned().collect()
    }
}
