//! The leader's lease and the pool table, in memory.
//!
//! Invariants: terms rise. Only the present term publishes. Versions rise by one.

use lingua_core::planted::{self, Bug};
use lingua_core::{InstanceId, Term};

use super::journal::ChangeLog;
use super::journal::record::DurableChange;
use crate::contract::{
    ElectReply, ElectRequest, Incarnation, PublishReply, PublishRequest, PublishedTable,
    TABLE_BYTES_MAX,
};
use crate::error::{Result, StoreError};

#[derive(Debug, Clone, Default)]
pub(super) struct Leadership {
    term: Term,
    lease: Option<LeaderLease>,
    table: Option<PublishedTable>,
    changes: ChangeLog,
}

impl AsMut<ChangeLog> for Leadership {
    fn as_mut(&mut self) -> &mut ChangeLog {
        &mut self.changes
    }
}

#[derive(Debug, Clone)]
struct LeaderLease {
    instance: InstanceId,
    incarnation: Incarnation,
    until_ms: u64,
}

impl Leadership {
    /// Starts without a leader; terms continue after this one.
    pub(super) fn restore(term: Term) -> Self {
        let mut leadership = Self { term, ..Self::default() };
        leadership.changes.enable();
        leadership
    }

    /// Who leads now, and whether the leader has changed.
    pub(super) fn elect(&mut self, request: ElectRequest, now_ms: u64) -> (ElectReply, bool) {
        let ElectRequest { instance, incarnation, lease_ms } = request;
        let until_ms = now_ms.saturating_add(lease_ms);
        if let Some(lease) = self.lease.as_mut().filter(|lease| lease.until_ms >= now_ms) {
            if lease.instance == instance && lease.incarnation == incarnation {
                lease.until_ms = lease.until_ms.max(until_ms);
                return (ElectReply::Leading { term: self.term, until_ms: lease.until_ms }, false);
            }
            let (leader, until_ms) = (lease.instance.clone(), lease.until_ms);
            return (ElectReply::Following { leader, term: self.term, until_ms }, false);
        }
        self.term = self.term.after(now_ms);
        self.changes.push(|| DurableChange::Term(self.term));
        self.lease = Some(LeaderLease { instance, incarnation, until_ms });
        (ElectReply::Leading { term: self.term, until_ms }, true)
    }

    pub(super) fn resign(&mut self, instance: &InstanceId, term: Term, now_ms: u64) -> bool {
        let held = self.holds(instance, term, now_ms);
        if held {
            self.lease = None;
        }
        held
    }

    pub(super) fn publish(&mut self, publish: PublishRequest, now_ms: u64) -> Result<PublishReply> {
        let bytes = publish.table.len();
        StoreError::check_limit("the pool table in bytes", bytes, TABLE_BYTES_MAX)?;
        let leads = self.holds(&publish.instance, publish.term, now_ms);
        if !leads && !planted::is(Bug::LeaderWithoutTerm) {
            return Ok(PublishReply::NotLeader);
        }
        let version = self.table.as_ref().map_or(0, |table| table.version);
        if version != publish.replaces {
            return Ok(PublishReply::Conflict(version));
        }
        let version = version + 1;
        self.table = Some(PublishedTable {
            version,
            term: publish.term,
            published_ms: now_ms,
            table: publish.table,
        });
        Ok(PublishReply::Published(version))
    }

    pub(super) fn table(&self) -> Option<PublishedTable> {
        self.table.clone()
    }

    fn holds(&self, instance: &InstanceId, term: Term, now_ms: u64) -> bool {
        let lease = self.lease.as_ref().filter(|lease| lease.until_ms >= now_ms);
        term == self.term && lease.is_some_and(|lease| lease.instance == *instance)
    }
}
