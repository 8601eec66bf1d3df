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
    /// `alive` is as of the last announcement.
    record: InstanceRecord,
    inbox: VecDeque<Envelope>,
    last_seq: u64,
}

impl Instance {
    fn is_alive(&self, now_ms: u64) -> bool {
        self.record.until_ms >= now_ms
    }
}

impl Instances {
    pub(super) fn new(limits: StoreLimits) -> Self {
        Self { limits, known: BTreeMap::new() }
    }

    /// Records that an instance is alive; also returns whether it is new.
    pub(super) fn announce(
        &mut self,
        request: AnnounceRequest,
        now_ms: u64,
    ) -> Result<(AnnounceReply, bool)> {
        let what = "an instance's address in bytes";
        StoreError::check_limit(what, request.address.len(), ADDRESS_BYTES_MAX)?;
        let AnnounceRequest { instance, incarnation, address, lease_ms } = request;
        let until_ms = now_ms.saturating_add(lease_ms);
        let record = InstanceRecord {
            instance: instance.clone(),
            incarnation,
            address,
            until_ms,
            alive: true,
        };
        if let Some(known) = self.known.get_mut(&instance) {
            let (alive, same) = (known.is_alive(now_ms), known.record.incarnation == incarnation);
            if alive && !same {
                let until_ms = known.record.until_ms;
                return Ok((AnnounceReply::NameTaken { until_ms }, false));
            }
            known.record = record;
            return Ok((AnnounceReply::Present, !alive || !same));
        }
        let limit = self.limits.instances_max;
        if self.known.len() >= limit {
            self.known.retain(|_, instance| instance.is_alive(now_ms));
        }
        StoreError::check_limit("the number of instances", self.known.len() + 1, limit)?;
        self.known.insert(instance, Instance { record, inbox: VecDeque::new(), last_seq: 0 });
        Ok((AnnounceReply::Present, true))
    }

    pub(super) fn withdraw(&mut self, instance: &InstanceId, incarnation: Incarnation) -> bool {
        let known = self.known.get(instance).is_some_and(|i| i.record.incarnation == incarnation);
        if known {
            self.known.remove(instance);
        }
        known
    }

    pub(super) fn list(&self, now_ms: u64) -> Vec<InstanceRecord> {
        let view = |known: &Instance| InstanceRecord {
            alive: known.is_alive(now_ms),
            ..known.record.clone()
        };
        self.known.values().map(view).collect()
    }

    pub(super) fn send(
        &mut self,
        to: &InstanceId,
        message: Bytes,
        now_ms: u64,
    ) -> Result<BusDelivery> {
        StoreError::check_limit("a message in bytes", message.len(), MESSAGE_BYTES_MAX)?;
        let Some(known) = self.known.get_mut(to).filter(|known| known.is_alive(now_ms)) else {
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
